"""One scripted task for all behaviours, as a plain function and as a coroutine.

A job has a label and a list of steps; each step is a word, some with an argument after a colon.
Every start and every end is one line in a ledger, appended in a single write, so that lines of many
processes never mix and none is lost with its process.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

from windlass.app import Windlass
from windlass.context import Context
from windlass.core.retry import Retry
from windlass.core.signals import Interrupted, Reject, Snooze
from windlass.task import Task

#: Where the worker finds the ledger's path.
LEDGER = "SCRIPT_LEDGER"
#: While this file exists, a process that imports this module dies.
TRAP = "SCRIPT_TRAP"

QUICK = Retry(3, base=0.05, cap=0.05, jitter=0)

left_behind: ContextVar[str] = ContextVar("left_behind", default="nothing")


class Interrupt(BaseException):
    """Not an `Exception`, as KeyboardInterrupt is not."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise Interrupt


executor = ThreadPoolExecutor(1)
background: set[asyncio.Task[None]] = set()
hoard: list[bytes] = []


class Script:
    """The tasks of one app. They are declared under fixed names, so that the app of a test and the
    app of its worker are the same to the engine."""

    def __init__(self, app: Windlass) -> None:
        self.plain: Task[[str, list[str]], str] = app.task(
            name="plain", takes_context=True, retry=QUICK
        )(plain)
        self.coroutine: Task[[str, list[str]], str] = app.task(
            name="coroutine", takes_context=True, retry=QUICK
        )(coroutine)
        self.process: Task[[str, list[str]], str] = app.task(
            name="process", takes_context=True, run_in="process", retry=QUICK
        )(plain)
        self.process_coroutine: Task[[str, list[str]], str] = app.task(
            name="process_coroutine", takes_context=True, run_in="process", retry=QUICK
        )(coroutine)
        self.clock: Task[[], int] = app.task(name="clock")(clock)
        self.nothing: Task[[], None] = app.task(name="nothing")(nothing)
        self.bad_result: Task[[], object] = app.task(name="bad_result")(bad_result)


def plain(ctx: Context, label: str, steps: list[str]) -> str:
    note(f"start {label} {ctx.attempt} {os.getpid()}")
    for step in steps:
        name, _, argument = step.partition(":")
        if name == "sleep":
            time.sleep(float(argument))
        else:
            take_step(ctx, name, argument)
    note(f"end {label} {ctx.attempt} {os.getpid()}")
    return f"{label} done"


async def coroutine(ctx: Context, label: str, steps: list[str]) -> str:
    note(f"start {label} {ctx.attempt} {os.getpid()}")
    for step in steps:
        name, _, argument = step.partition(":")
        if name == "sleep":
            await asyncio.sleep(float(argument))
        elif name == "swallow":
            await swallow_cancellation()
        elif name == "cancel":
            raise asyncio.CancelledError
        elif name == "leave_coroutine":
            background.add(asyncio.create_task(LEFT_COROUTINES[argument]()))
        else:
            take_step(ctx, name, argument)
    note(f"end {label} {ctx.attempt} {os.getpid()}")
    return f"{label} done"


def nothing() -> None:
    """The shortest job."""


def clock() -> int:
    """When its code ran, in nanoseconds of the wall clock."""
    return time.time_ns()


def bad_result() -> object:
    return object()


def take_step(ctx: Context, name: str, argument: str) -> None:
    match name:
        case "fail":
            raise ValueError("told to fail")
        case "fail_burdened":
            burden = b"x" * (int(argument) * 1024 * 1024)
            error = ValueError(len(burden))  # this frame holds it, and it holds this frame
            raise error
        case "fail_before":
            if ctx.attempt < int(argument):
                raise ValueError("told to fail at first")
        case "reject":
            raise Reject("told to")
        case "snooze":
            raise Snooze(float(argument))
        case "snooze_once":
            if not Path(argument).exists():
                Path(argument).touch()
                raise Snooze(0.05)
        case "interrupt":
            raise Interrupt
        case "unprintable":
            raise Unprintable
        case "leave_behind":
            LEFT[argument]()
        case "leave":
            sys.exit(4)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(int(argument))
        case "progress":
            ctx.progress(float(argument), "on the way")
        case "spin":
            spin(float(argument))
        case "hold_gil":
            ctypes.PyDLL(None).sleep(int(argument))  # a C call that does not let others in
        case "block":
            time.sleep(float(argument))  # also in a coroutine, where it must not be
        case "call":
            ctypes.CDLL(None).usleep(int(float(argument) * 1_000_000))
        case "hold":
            hold_interpreter(float(argument))
        case "swallow":
            swallow_everything()
        case "nap":
            while True:
                time.sleep(0.01)
        case "until_cancelled":
            until_cancelled(ctx)
        case "stuck_before":
            if ctx.attempt < int(argument):
                time.sleep(60)
        case "haunt_before":
            if ctx.attempt < int(argument):
                haunt(ctx)
        case "hoard":
            hoard.append(b"x" * (int(argument) * 1024 * 1024))
        case "end_fetcher":
            if not Path(argument).exists():
                Path(argument).touch()
                end_thread("windlass-fetcher")
        case "await":
            await_file(Path(argument))
        case "enqueue":
            script.plain.enqueue(argument, [])
        case "remember":
            note(f"found {left_behind.get()}")
            left_behind.set(argument)
        case _:
            raise AssertionError(f"the script has no step {name!r}")


async def swallow_cancellation() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


async def block_loop() -> None:
    await asyncio.sleep(0.05)
    time.sleep(60)  # noqa: ASYNC251  # it must not be, and is what this is for


async def exit_later() -> None:
    await asyncio.sleep(0.05)
    sys.exit(5)


#: Things that a job may leave running after its end.
LEFT: dict[str, Callable[[], object]] = {
    "thread": lambda: threading.Thread(target=time.sleep, args=(60,)).start(),
    "executor": lambda: executor.submit(time.sleep, 60),
    "exit_function": lambda: atexit.register(time.sleep, 60),
}
LEFT_COROUTINES = {
    "stubborn": swallow_cancellation,
    "blocking": block_loop,
    "exiting": exit_later,
}


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def hold_interpreter(seconds: float) -> None:
    """A call of C that does not let go of the interpreter: no other thread does anything."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def swallow_everything() -> None:
    while True:
        with suppress(BaseException):
            time.sleep(0.01)


def haunt(ctx: Context) -> None:
    """Side effects that no exception ends."""
    while True:
        with suppress(BaseException):
            note(f"haunt {ctx.job_id} {ctx.attempt} {os.getpid()}")
            time.sleep(0.01)


def until_cancelled(ctx: Context) -> None:
    """A task that looks for itself whether to stop, and takes no notice of anything else."""
    while not ctx.cancelled:
        with suppress(Interrupted):
            time.sleep(0.01)
    note(f"heard {ctx.job_id}")


def end_thread(name: str) -> None:
    """As an exception does that is no `Exception`."""
    [thread] = [thread for thread in threading.enumerate() if thread.name == name]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
    )


def await_file(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def note(line: str) -> None:
    descriptor = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


if Path(os.environ.get(TRAP, "no trap")).exists():
    os._exit(7)

app = Windlass()
script = Script(app)

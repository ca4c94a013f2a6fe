"""An app with poison jobs that harm their process, each in a thread, on the loop and alone.

Every start appends one line to a ledger, in a single write before the harm.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from windlass import Retry, Windlass
from windlass.task import Task

LEDGER: Final = "ZOO_LEDGER"
RUNNERS: Final = ("thread", "loop", "process")
QUICK: Final = Retry(3, base=0.05, cap=0.05, jitter=0)
hoard: list[bytes] = []


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def read_through_null() -> None:
    ctypes.string_at(0)


def exit_at_once() -> None:
    os._exit(3)


def take_all_memory() -> None:
    """Allocate until the system refuses, then release the memory."""
    try:
        while True:
            hoard.append(b"x" * (32 * 1024 * 1024))
    finally:
        hoard.clear()


def overflow_the_stack() -> None:
    """Recurse through C calls, which use the stack of the system and not that of Python."""
    sys.setrecursionlimit(10_000_000)

    def deeper(_: int = 0) -> int:
        return len(sorted([1], key=deeper))

    deeper()


def wait_for_itself() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def ignore_requests() -> None:
    """Ignore signals without `signal.signal`, which works only in the main thread."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), ctypes.c_void_p(1))
    while True:
        time.sleep(0.01)


def swallow_everything() -> None:
    while True:
        try:
            time.sleep(0.01)
        except BaseException:  # noqa: BLE001  # what it is about
            continue


POISONS: Final[dict[str, Callable[[], None]]] = {
    "kill -9 of itself": kill_itself,
    "segmentation fault": read_through_null,
    "_exit": exit_at_once,
    "memory hog": take_all_memory,
    "stack overflow": overflow_the_stack,
    "deadlock": wait_for_itself,
    "ignores SIGTERM": ignore_requests,
    "except BaseException": swallow_everything,
}

Poison = Task[[str], None]
Innocent = Task[[int], int]


def start(kind: str, runner: str) -> None:
    path = os.environ[LEDGER]
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"{runner}:{kind}\n".encode())
    os.close(descriptor)


def declare(app: Windlass) -> dict[str, tuple[Poison, Innocent]]:
    """For each runner, a harmful task and a harmless one."""

    def declare_pair(
        runner: str, poison: Callable[..., Any], innocent: Callable[..., Any], **options: Any
    ) -> tuple[Poison, Innocent]:
        return (
            app.task(name=f"poison.{runner}", retry=QUICK, **options)(poison),
            app.task(name=f"innocent.{runner}", **options)(innocent),
        )

    return {
        "thread": declare_pair("thread", poison_thread, innocent),
        "loop": declare_pair("loop", poison_loop, innocent_async),
        "process": declare_pair("process", poison_process, innocent, run_in="process"),
    }


def poison_thread(kind: str) -> None:
    start(kind, "thread")
    POISONS[kind]()


async def poison_loop(kind: str) -> None:
    start(kind, "loop")
    POISONS[kind]()


def poison_process(kind: str) -> None:
    start(kind, "process")
    POISONS[kind]()


def innocent(number: int) -> int:
    return number


async def innocent_async(number: int) -> int:
    return number


app = Windlass()
declare(app)

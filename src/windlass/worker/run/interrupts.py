"""Interrupt the job that runs, and never the job after it.

1. `ThreadGuard` belongs to a thread that runs jobs. `interrupt` and the end of a job take the same
   lock: an exception is sent only during its run, and one that has not arrived when the run ends
   is withdrawn.
2. `LoopGuard` belongs to a slot of the event loop, and cancels the task of that slot.
3. `shield` delays an exception until the end of a call that must not be cut off, and
   `shield_engine` does so for all calls of an engine. A call that is cut off could leave a lock
   held, or its reply for the next caller to read.

Each run has its own context, which identifies it. A run is interrupted at most once: so no second
exception hits the code that handles the first.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, cast

from windlass.context import Context
from windlass.core.signals import Interrupted, Interruption
from windlass.engine.contract import Engine


class Guard(Protocol):
    """Where a run can be interrupted."""

    def interrupt(self, run: Context, cause: Interruption) -> None:
        """Interrupt a run, unless it has ended or was interrupted before. From any thread."""


class ThreadGuard:
    """Created in the thread that it guards. A run starts shielded, so that no exception arrives
    before code that catches it. Other threads call `interrupt` only."""

    def __init__(self) -> None:
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()
        self._run: Context | None = None
        self._is_sent = False
        self._is_shielded = False
        self._is_put_off = False
        _of_thread.guard = self

    def begin(self, run: Context) -> None:
        """Needs no lock: no other thread knows this run yet, and earlier runs have ended."""
        self._is_put_off = False
        self._is_shielded = True
        self._run = run

    def end(self) -> None:
        """No exception arrives after this call. One may hit this call itself: then call it again,
        and no second one comes."""
        with self._lock:
            self._run = None
            self._is_shielded = self._is_put_off = False
            if self._is_sent:
                self._withdraw()
                self._is_sent = False

    def _withdraw(self) -> None:
        """Replace an exception that has not arrived by one that arrives here. CPython 3.11 keeps
        its flag of a pending exception set when there is none to raise: the thread would stay slow,
        and hang under a profiler."""
        try:
            _send(self._thread, _INTERRUPTED)
            while True:
                pass  # it comes with the next bytecode
        except Interrupted:
            pass

    def interrupt(self, run: Context, cause: Interruption) -> None:
        with self._lock:
            if self._run is not run or not _note(run, cause):
                return
            if self._is_shielded:
                self._is_put_off = True
            else:
                self._is_sent = True
                _send(self._thread, _INTERRUPTED)

    def raise_shield(self) -> None:
        """Delay exceptions. One that was sent before hits this call."""
        with self._lock:
            self._is_shielded = True

    def lower_shield(self) -> None:
        with self._lock:
            self._is_shielded = False
            is_put_off, self._is_put_off = self._is_put_off, False
        if is_put_off:
            raise Interrupted


class LoopGuard:
    """One slot of the event loop. `begin`, `end` and the cancellation run on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._run: Context | None = None
        self._task: asyncio.Task[object] | None = None

    def begin(self, run: Context) -> None:
        self._run = run
        self._task = asyncio.current_task(self._loop)

    def end(self) -> None:
        self._run = self._task = None

    def interrupt(self, run: Context, cause: Interruption) -> None:
        # Noted at once: a coroutine that blocks the loop may check its context.
        if _note(run, cause):
            with suppress(RuntimeError):  # the loop is closed, and the process ends
                self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Context) -> None:
        if self._run is run and self._task is not None:
            self._task.cancel()


@contextmanager
def shield() -> Iterator[None]:
    """Delay interrupts of this thread until the end of the block."""
    guard = getattr(_of_thread, "guard", None)
    if guard is None:
        yield
        return
    guard.raise_shield()
    try:
        yield
    finally:
        guard.lower_shield()


class _ShieldedEngine:
    """An engine with shielded verbs. Each wrapper is cached at its first use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            with shield():
                return value(*args, **kwargs)

        self.__dict__[name] = call
        return call


def shield_engine(engine: Engine) -> Engine:
    return cast(Engine, _ShieldedEngine(engine))


_of_thread = threading.local()


def _note(run: Context, cause: Interruption) -> bool:
    """Whether this is the first cause to interrupt the run. A loss interrupts nothing."""
    if run.interruption not in (None, Interruption.LOST):
        return False
    run.interruption = cause
    return True


#: Raises an exception in a thread at its next bytecode, in place of one not yet raised.
_send: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_INTERRUPTED: Final = ctypes.py_object(Interrupted)

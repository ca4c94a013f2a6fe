"""Interrupting the job that runs, and never the one after it.

1. `ThreadGuard` belongs to a thread of jobs. Whoever interrupts, and the end of a job, take the
   same lock: an exception is sent only while that very run is under way, and one that has not
   arrived when the run ends is taken back.
2. `LoopGuard` belongs to a slot of the event loop, which cancels a task of its own.
3. `shield` keeps an exception away from a call that must not be left half done, and
   `shield_engine` from all calls of an engine: one that is cut off could leave a lock taken, or a
   reply for the next caller to read.

A run is known by its context, of which no other run has the same. It is interrupted once at most:
so no second exception meets code that deals with the first.
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
        """Called from any thread; does nothing when the run has ended or was interrupted before."""


class ThreadGuard:
    """Made in the thread that it guards. A run begins behind the shield, so that nothing arrives
    before somebody catches it; `interrupt` alone is called from other threads."""

    def __init__(self) -> None:
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()
        self._run: Context | None = None
        self._is_sent = False
        self._is_shielded = False
        self._is_put_off = False
        _of_thread.guard = self

    def begin(self, run: Context) -> None:
        """Without the lock: nobody knows this run yet, and of others nothing is heard any more."""
        self._is_put_off = False
        self._is_shielded = True
        self._run = run

    def end(self) -> None:
        """From here on nothing arrives any more. An exception may meet this very call; then it is
        to be called again, and is not met by another."""
        with self._lock:
            self._run = None
            self._is_shielded = self._is_put_off = False
            if self._is_sent:
                _send(self._thread, None)  # one call of C, which nothing can meet half way
                self._is_sent = False

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
        """An exception that was sent before meets this call; from then on it is put off."""
        with self._lock:
            self._is_shielded = True

    def lower_shield(self) -> None:
        with self._lock:
            self._is_shielded = False
            is_put_off, self._is_put_off = self._is_put_off, False
        if is_put_off:
            raise Interrupted


class LoopGuard:
    """One slot of the event loop. `begin`, `end` and the cancellation happen on the loop."""

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
        # Noted at once: a coroutine that blocks the loop may look at its context.
        if _note(run, cause):
            with suppress(RuntimeError):  # the loop is closed, and the process ends
                self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Context) -> None:
        if self._run is run and self._task is not None:
            self._task.cancel()


@contextmanager
def shield() -> Iterator[None]:
    """Put off what would interrupt this thread until the block is left."""
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
    """An engine whose verbs are shielded. A wrapped one is kept from the first use on."""

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


#: Has an exception raised in a thread at its next step; None takes back what has not arrived.
_send: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_INTERRUPTED: Final = ctypes.py_object(Interrupted)

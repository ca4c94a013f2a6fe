"""Interrupt the job that runs, and never the job after it.

1. `ThreadGuard` belongs to a thread that runs jobs. `interrupt` and the end of a job take the same
   lock: an exception is sent only during a run, and is withdrawn if it has not arrived when the
   run ends.
2. `LoopGuard` belongs to a slot of the event loop, and cancels the task of that slot.
3. `shield_engine` shields all calls of an engine: an exception is delayed until the end of the
   call (`interrupt_shield`).

Each run has its own context, which identifies it. A run is interrupted at most once: so no second
exception hits the code that handles the first.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from windlass.context import Context
from windlass.core.signals import Interrupted, Interruption
from windlass.engine.contract import Engine
from windlass.interrupt_shield import set_shield, shield


class Guard(Protocol):
    """A way to interrupt the run of one slot."""

    def interrupt(self, run: Context, cause: Interruption) -> None:
        """Interrupt a run, unless it has ended or was interrupted before. Thread-safe."""


class ThreadGuard:
    """Interrupts runs of one thread, which creates the guard. A run starts shielded, so that no
    exception arrives before code that catches it. Other threads call `interrupt` only."""

    def __init__(self) -> None:
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()
        self._run: Context | None = None
        self._is_sent = False
        self._is_shielded = False
        self._is_put_off = False
        set_shield(self)

    def begin(self, run: Context) -> None:
        """Begin a run, without the lock: no other thread knows this run yet, and earlier runs have
        ended."""
        self._is_put_off = False
        self._is_shielded = True
        self._run = run

    def end(self) -> None:
        """End a run: no exception arrives later. If an exception hits this call, repeat the call:
        no second exception comes."""
        with self._lock:
            self._run = None
            self._is_shielded = self._is_put_off = False
            if self._is_sent:
                self._withdraw()
                self._is_sent = False

    def _withdraw(self) -> None:
        """Replace a pending exception by one that arrives here. CPython 3.11 keeps its flag of a
        pending exception set when there is none to raise: the thread would stay slow, and hang
        under a profiler."""
        try:
            is_sent = _send(self._thread, _INTERRUPTED)  # 0 if no thread of Python has this id
            while is_sent:
                pass  # the exception comes with the next bytecode
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
        """Delay exceptions. An exception that was sent before hits this call."""
        with self._lock:
            self._is_shielded = True

    def lower_shield(self) -> None:
        with self._lock:
            self._is_shielded = False
            is_put_off, self._is_put_off = self._is_put_off, False
        if is_put_off:
            raise Interrupted


class LoopGuard:
    """Interrupts runs of one slot of the event loop. `begin`, `end` and `_cancel` run on the
    loop."""

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
        # Note the cause at once: a coroutine that blocks the loop may check its context.
        if _note(run, cause):
            with suppress(RuntimeError):  # the loop is closed, and the process ends
                self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Context) -> None:
        if self._run is run and self._task is not None:
            self._task.cancel()


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


def _note(run: Context, cause: Interruption) -> bool:
    """Note the cause. Return whether the run may be interrupted: once only, and a loss does not
    count."""
    if run.interruption not in (None, Interruption.LOST):
        return False
    run.interruption = cause
    return True


#: Raises an exception in a thread at its next bytecode. Replaces an exception not yet raised.
_send: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_INTERRUPTED: Final = ctypes.py_object(Interrupted)

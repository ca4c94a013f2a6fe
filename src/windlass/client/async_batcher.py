"""One thread that calls the engine for all coroutines of a process.

Engines are synchronous and take batches. A coroutine gives a single value to the `Batcher` of its
app and awaits the answer. A thread calls the engine with all pending values as one batch, and wakes
each event loop once per batch.

In order: the calls of coroutines, closing, back-pressure, the thread, and the fork. A forked
process starts with nothing pending: its parent sends the pending values.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import copy
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from windlass.engine.contract import BATCH, BATCH_BYTES, Engine
from windlass.errors import EngineUnavailable
from windlass.twins import Verb

Value = TypeVar("Value")
Answer = TypeVar("Answer")

#: Callers wait for room while this many values or bytes are pending.
MAX_PENDING: Final = 10_000
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024
#: The largest number of values, and of their bytes, in one call of the engine.
MAX_BATCH: Final = BATCH
MAX_BATCH_BYTES: Final = BATCH_BYTES
#: How long the exit of a process, or closing an app, waits for pending values, in seconds.
FLUSH_SECONDS: Final = 2.0


class _Ticket(msgspec.Struct, eq=False):
    """A future that a coroutine awaits, and its event loop: only that loop may touch the future.
    The thread sets the answer or the error, and the loop then passes it to the future."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None


class _PendingCall(_Ticket, eq=False, kw_only=True):
    """One value that waits to be sent to the engine."""

    verb: Verb[Any, Any]
    value: Any
    size: int


class Batcher:
    """Batches the calls of many coroutines into few calls of one engine."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._reset()
        _BATCHERS.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a signal handler may close the app inside of a call
        self._changed = threading.Condition(self._lock)
        self._is_idle = False  # the thread waits for a call
        self._pending: dict[Verb[Any, Any], deque[_PendingCall]] = {}
        self._waiting: deque[_Ticket] = deque()
        self._count = 0
        self._bytes = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    async def call(self, verb: Verb[Value, Answer], value: Value, size: int = 0) -> Answer:
        """Send `value` to the engine and return its answer.

        With a `size` in bytes, the call first waits for room. From then on the engine gets the
        value even if the caller cancels the await."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        call = _PendingCall(loop, future, verb=verb, value=value, size=size)
        while not self._accept(call):
            await self._room()
        answer: Answer = await future
        return answer

    def _accept(self, call: _PendingCall) -> bool:
        """Add a call to the pending calls. Returns False if the call has to wait for room."""
        with self._lock:
            if call.size and self._is_full():
                return False
            line = self._pending.get(call.verb)
            if line is None:
                line = self._pending[call.verb] = deque()
            line.append(call)
            self._count += 1
            self._bytes += call.size
            has_thread = self._thread is not None or self._start_thread()
            if self._is_idle:
                self._is_idle = False
                self._changed.notify_all()
        if not has_thread:
            self._run()  # returns when nothing is pending, because the batcher is closing
        return True

    def close(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Send the pending values and end the thread. Returns False if this takes longer than
        `seconds`. The batcher can be used again afterwards."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._thread is not None and (left := deadline - time.monotonic()) > 0:
                self._closing = True
                self._changed.notify_all()
                self._changed.wait(left)
            return self._thread is None

    # ----------------------------------------------------------------------- waiting for room

    async def _room(self) -> None:
        while (ticket := self._wait_ticket()) is not None:
            try:
                await ticket.future
            except asyncio.CancelledError:
                self._leave(ticket)
                raise

    def _wait_ticket(self) -> _Ticket | None:
        """Return None if there is room. Otherwise add a ticket to the waiting callers."""
        with self._lock:
            if not self._is_full():
                return None
            loop = asyncio.get_running_loop()
            ticket = _Ticket(loop, loop.create_future())
            self._waiting.append(ticket)
            return ticket

    def _leave(self, ticket: _Ticket) -> None:
        """Stop waiting for room. If the ticket was already admitted, wake the next caller."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
        self._admit()

    def _is_full(self) -> bool:
        return self._count >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES

    def _admit(self) -> None:
        """Wake as many waiting callers as there is room for. Each caller checks again."""
        with self._lock:
            free = 0 if self._is_full() else MAX_PENDING - self._count
            woken = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        _deliver(woken)

    # ------------------------------------------------------------------------------ the thread

    def _start_thread(self) -> bool:
        """Start the thread. Returns False at interpreter shutdown, where newer versions of Python
        refuse to start threads: then the caller runs the batches itself."""
        thread = threading.Thread(target=self._run_thread, name="windlass-io", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._closing = True
            return False
        self._closing, self._thread = False, thread
        return True

    def _run_thread(self) -> None:
        try:
            self._run()
        finally:  # also after an error that is not an Exception: the next call starts a new thread
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _run(self) -> None:
        while calls := self._take():
            answered: list[_Ticket] = [*calls]
            try:
                self._send(calls)
            except EngineUnavailable as error:
                # All pending calls fail: the engine is unavailable for them as well. Each raises
                # its own copy of the error: one copy would collect the tracebacks of all callers.
                with self._lock:
                    calls += [call for line in self._pending.values() for call in line]
                    answered = [*calls, *self._waiting]
                    self._pending.clear()
                    self._waiting.clear()
                for ticket in answered:
                    ticket.error = copy.copy(error)
            with self._lock:
                self._count -= len(calls)
                self._bytes -= sum([call.size for call in calls])
            _deliver(answered)
            if self._waiting:
                self._admit()

    def _take(self) -> list[_PendingCall]:
        """Take the next calls of one verb from the pending calls. Empty when closing: then the
        thread ends."""
        with self._lock:
            while not self._pending and not self._closing:
                self._is_idle = True
                self._changed.wait()
            self._is_idle = False
            if not self._pending:
                self._thread = None
                self._changed.notify_all()
                return []
            verb = next(iter(self._pending))
            line = self._pending.pop(verb)
            calls = [line.popleft()]
            size = calls[0].size
            while line and len(calls) < MAX_BATCH and size + line[0].size <= MAX_BATCH_BYTES:
                size += line[0].size
                calls.append(line.popleft())
            if line:
                self._pending[verb] = line  # behind the other verbs
            return calls

    def _send(self, calls: Sequence[_PendingCall]) -> None:
        """Send calls of one verb to the engine, and set their answers."""
        try:
            answers = calls[0].verb(self._engine(), [call.value for call in calls])
            for call, answer in zip(calls, answers, strict=True):
                call.answer = answer
            return
        except EngineUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # handed to the coroutine whose value caused it
            if len(calls) == 1:
                calls[0].error = error
                return
        # Repeating is safe. Sent one by one, only the value that caused the error fails again.
        for number, call in enumerate(calls):
            try:
                self._send([call])
            except EngineUnavailable as error:
                error.unsent = False  # the batch may have been stored in part
                for one in calls[number:]:
                    one.error = copy.copy(error)
                return


_BATCHERS: Final[weakref.WeakSet[Batcher]] = weakref.WeakSet()


def _deliver(tickets: Sequence[_Ticket]) -> None:
    """Pass answers to their coroutines, waking each loop once."""
    loops = {ticket.loop for ticket in tickets}
    for loop in loops:
        own = tickets if len(loops) == 1 else [one for one in tickets if one.loop is loop]
        # A closed loop has no coroutine left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, own)


def _settle(tickets: Sequence[_Ticket]) -> None:
    for ticket in tickets:
        future = ticket.future
        if future.done():  # its coroutine was cancelled
            continue
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.answer)


def _forget_parent() -> None:
    for batcher in list(_BATCHERS):
        batcher._reset()


def _flush_all() -> None:
    deadline = time.monotonic() + FLUSH_SECONDS
    for batcher in list(_BATCHERS):
        batcher.close(max(0.0, deadline - time.monotonic()))


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)

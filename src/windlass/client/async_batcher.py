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
    """A future that a coroutine awaits, and its event loop: only that loop may touch the future."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _PendingCall(_Ticket, eq=False):
    """One value that waits to be sent to the engine."""

    verb: Verb[Any, Any]
    value: Any
    size: int


class _Reply(msgspec.Struct):
    ticket: _Ticket
    answer: Any = None
    error: BaseException | None = None


class Batcher:
    """Batches the calls of many coroutines into few calls of one engine."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._reset()
        _BATCHERS.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
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
        if size:
            await self._room()
        loop = asyncio.get_running_loop()
        call = _PendingCall(loop, loop.create_future(), verb, value, size)
        with self._changed:
            self._pending.setdefault(verb, deque()).append(call)
            self._count += 1
            self._bytes += size
            has_thread = self._start_thread()
            self._changed.notify_all()
        if not has_thread:
            self._run()  # returns when nothing is pending, because the batcher is closing
        answer: Answer = await call.future
        return answer

    def close(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Send the pending values and end the thread. Returns False if this takes longer than
        `seconds`. The batcher can be used again afterwards."""
        deadline = time.monotonic() + seconds
        with self._changed:
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
        with self._changed:
            if not self._is_full():
                return None
            loop = asyncio.get_running_loop()
            ticket = _Ticket(loop, loop.create_future())
            self._waiting.append(ticket)
            return ticket

    def _leave(self, ticket: _Ticket) -> None:
        """Stop waiting for room. If the ticket was already admitted, wake the next caller."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
        self._admit()

    def _is_full(self) -> bool:
        return self._count >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES

    def _admit(self) -> None:
        """Wake as many waiting callers as there is room for. Each caller checks again."""
        with self._changed:
            free = 0 if self._is_full() else MAX_PENDING - self._count
            woken = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        _deliver([_Reply(ticket) for ticket in woken])

    # ------------------------------------------------------------------------------ the thread

    def _start_thread(self) -> bool:
        """Start the thread. Returns False at interpreter shutdown, where newer versions of Python
        refuse to start threads: then the caller runs the batches itself."""
        if self._thread is not None and self._thread.is_alive():
            return True
        thread = threading.Thread(target=self._run, name="windlass-io", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._closing = True
            return False
        self._closing, self._thread = False, thread
        return True

    def _run(self) -> None:
        while calls := self._take():
            try:
                replies = self._send(calls)
            except EngineUnavailable as error:
                # All pending calls fail: the engine is unavailable for them as well. Each raises
                # its own copy of the error: one copy would collect the tracebacks of all callers.
                with self._changed:
                    calls += [call for line in self._pending.values() for call in line]
                    tickets = [*calls, *self._waiting]
                    self._pending.clear()
                    self._waiting.clear()
                replies = [_Reply(ticket, error=copy.copy(error)) for ticket in tickets]
            with self._changed:
                self._count -= len(calls)
                self._bytes -= sum(call.size for call in calls)
            _deliver(replies)
            self._admit()

    def _take(self) -> list[_PendingCall]:
        """Take the next calls of one verb from the pending calls. Empty when closing: then the
        thread ends."""
        with self._changed:
            while not self._pending and not self._closing:
                self._changed.wait()
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

    def _send(self, calls: Sequence[_PendingCall]) -> list[_Reply]:
        """Send calls of one verb to the engine, and return the replies."""
        try:
            answers = calls[0].verb(self._engine(), [call.value for call in calls])
            return [_Reply(call, answer) for call, answer in zip(calls, answers, strict=True)]
        except EngineUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # handed to the coroutine whose value caused it
            if len(calls) == 1:
                return [_Reply(calls[0], error=error)]
        # Repeating is safe. Sent one by one, only the value that caused the error fails again.
        replies: list[_Reply] = []
        for number, call in enumerate(calls):
            try:
                replies += self._send([call])
            except EngineUnavailable as error:
                error.unsent = False  # the batch may have been stored in part
                left = calls[number:]
                return replies + [_Reply(one, error=copy.copy(error)) for one in left]
        return replies


_BATCHERS: Final[weakref.WeakSet[Batcher]] = weakref.WeakSet()


def _deliver(replies: Sequence[_Reply]) -> None:
    """Pass replies to their coroutines, waking each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Reply]] = {}
    for reply in replies:
        by_loop.setdefault(reply.ticket.loop, []).append(reply)
    for loop, some in by_loop.items():
        # A closed loop has no coroutine left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, some)


def _settle(replies: Sequence[_Reply]) -> None:
    for reply in replies:
        future = reply.ticket.future
        if future.done():  # its coroutine was cancelled
            continue
        if reply.error is not None:
            future.set_exception(reply.error)
        else:
            future.set_result(reply.answer)


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

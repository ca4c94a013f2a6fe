"""One thread that talks to the engine for all coroutines of a process.

Engines are synchronous and take many at once. So a coroutine hands a single value to the `Batcher`
of its app and awaits the answer to it, while a thread calls the engine with all values that piled
up meanwhile, and wakes each event loop once per batch.

In order: what a coroutine does, closing, waiting for room, the thread, and the fork. The child of a
fork starts with nothing pending: what the parent had accepted is the parent's to send.
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

Value = TypeVar("Value")
Answer = TypeVar("Answer")
#: A verb of the engine that gives one answer for each value, in their order.
Verb = Callable[[Engine, Sequence[Value]], Sequence[Answer]]

#: Beyond so many values or bytes accepted and not yet answered, callers wait for room.
MAX_PENDING: Final = 10_000
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024
#: At most this many values, and bytes of them, go into one call of the engine.
MAX_BATCH: Final = BATCH
MAX_BATCH_BYTES: Final = BATCH_BYTES
#: How long the end of a process, or of an app, waits for what was accepted, in seconds.
FLUSH_SECONDS: Final = 2.0


class _Ticket(msgspec.Struct, eq=False):
    """A future that a coroutine awaits, and the loop that alone may touch it."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Call(_Ticket, eq=False):
    """One value on its way to the engine."""

    verb: Verb[Any, Any]
    value: Any
    size: int


class _Reply(msgspec.Struct):
    ticket: _Ticket
    answer: Any = None
    error: BaseException | None = None


class Batcher:
    """Turns the calls of many coroutines into few calls of one engine."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._reset()
        _BATCHERS.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._pending: dict[Verb[Any, Any], deque[_Call]] = {}
        self._waiting: deque[_Ticket] = deque()
        self._count = 0
        self._bytes = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    async def call(self, verb: Verb[Value, Answer], value: Value, size: int = 0) -> Answer:
        """The engine's answer to `value`.

        With a `size` in bytes, the call first waits until there is room. From then on a cancelled
        await leaves the value on its way to the engine."""
        if size:
            await self._room()
        loop = asyncio.get_running_loop()
        call = _Call(loop, loop.create_future(), verb, value, size)
        with self._changed:
            self._pending.setdefault(verb, deque()).append(call)
            self._count += 1
            self._bytes += size
            has_thread = self._start_thread()
            self._changed.notify_all()
        if not has_thread:
            self._run()  # until nothing is pending, because it is closing
        answer: Answer = await call.future
        return answer

    def close(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Send what was accepted and end the thread; False if that took longer than `seconds`.

        It can be used again afterwards."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._thread is not None and (left := deadline - time.monotonic()) > 0:
                self._closing = True
                self._changed.notify_all()
                self._changed.wait(left)
            return self._thread is None

    # ----------------------------------------------------------------------- waiting for room

    async def _room(self) -> None:
        while (ticket := self._queue_up()) is not None:
            try:
                await ticket.future
            except asyncio.CancelledError:
                self._leave(ticket)
                raise

    def _queue_up(self) -> _Ticket | None:
        """None when there is room, else a place among those who wait for it."""
        with self._changed:
            if not self._is_full():
                return None
            loop = asyncio.get_running_loop()
            ticket = _Ticket(loop, loop.create_future())
            self._waiting.append(ticket)
            return ticket

    def _leave(self, ticket: _Ticket) -> None:
        """Wait no longer. One who was let in meanwhile gives the place to the next."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
        self._let_in()

    def _is_full(self) -> bool:
        return self._count >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES

    def _let_in(self) -> None:
        """Wake as many of those who wait as there is room for; each looks again by itself."""
        with self._changed:
            free = 0 if self._is_full() else MAX_PENDING - self._count
            woken = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        _deliver([_Reply(ticket) for ticket in woken])

    # ------------------------------------------------------------------------------ the thread

    def _start_thread(self) -> bool:
        """False where none can be started any more, as newer versions of Python have it at the end
        of the interpreter: then whoever calls does the work."""
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
                # The others have waited along with these: the engine is away for them as well.
                # Each raises its own copy, or their tracebacks would grow into one another.
                calls += self._take_all()
                tickets = [*calls, *self._turn_away()]
                replies = [_Reply(ticket, error=copy.copy(error)) for ticket in tickets]
            self._count_off(calls)
            _deliver(replies)
            self._let_in()

    def _take(self) -> list[_Call]:
        """The next calls of one verb; none when closing, and then there is no thread any more."""
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

    def _take_all(self) -> list[_Call]:
        with self._changed:
            calls = [call for line in self._pending.values() for call in line]
            self._pending.clear()
            return calls

    def _turn_away(self) -> list[_Ticket]:
        with self._changed:
            tickets = list(self._waiting)
            self._waiting.clear()
            return tickets

    def _count_off(self, calls: Sequence[_Call]) -> None:
        with self._changed:
            self._count -= len(calls)
            self._bytes -= sum(call.size for call in calls)

    def _send(self, calls: Sequence[_Call]) -> list[_Reply]:
        """The answers to calls of one verb."""
        try:
            answers = calls[0].verb(self._engine(), [call.value for call in calls])
            return [_Reply(call, answer) for call, answer in zip(calls, answers, strict=True)]
        except EngineUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # handed to the coroutine whose value caused it
            if len(calls) == 1:
                return [_Reply(calls[0], error=error)]
        # Repeating is harmless: sent one by one, only the culprit's value fails again.
        replies: list[_Reply] = []
        for number, call in enumerate(calls):
            try:
                replies += self._send([call])
            except EngineUnavailable as error:
                error.unsent = False  # when all were sent together, some of it may have been done
                left = calls[number:]
                return replies + [_Reply(one, error=copy.copy(error)) for one in left]
        return replies


_BATCHERS: Final[weakref.WeakSet[Batcher]] = weakref.WeakSet()


def _deliver(replies: Sequence[_Reply]) -> None:
    """Hand replies to their coroutines, waking each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Reply]] = {}
    for reply in replies:
        by_loop.setdefault(reply.ticket.loop, []).append(reply)
    for loop, some in by_loop.items():
        # A loop that is closed has nobody left who awaits anything.
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

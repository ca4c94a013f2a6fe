"""The reactor of a supervisor: wait for signals, channels, timers, and posts of other threads.

The thread that calls `wait` handles all events in turn, so that the state of the supervisor needs
no locks.
"""

from __future__ import annotations

import heapq
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType, TracebackType
from typing import NamedTuple, Protocol, Self

Action = Callable[[], object]


class Readable(Protocol):
    def fileno(self) -> int: ...


class Actions(NamedTuple):
    """The callbacks of a watched source."""

    read: Action
    write: Action | None = None  # once, when there is room to write


class Reactor:
    """Event loop of the supervisor. Its context catches the given signals, and restores their
    handlers."""

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self._signals = signals
        self._on_signal: Callable[[signal.Signals], None] = _ignore
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._posted: SimpleQueue[Action] = SimpleQueue()
        self._timers: list[tuple[float, int, Action]] = []
        self._timer_numbers = count()

    def __enter__(self) -> Self:
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, Actions(self._read_wake))
        self._old_handlers = {number: signal.signal(number, _pass) for number in self._signals}
        self._old_fd = signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def on_signal(self, action: Callable[[signal.Signals], None]) -> None:
        self._on_signal = action

    def watch(self, source: Readable, action: Action) -> None:
        """Call `action` each time `source` is readable."""
        self._selector.register(source, selectors.EVENT_READ, Actions(action))

    def await_room(self, source: Readable, action: Action) -> None:
        """Call `action` once when a watched source is writable."""
        with suppress(KeyError):
            actions = Actions(self._selector.get_key(source).data.read, action)
            self._selector.modify(source, selectors.EVENT_READ | selectors.EVENT_WRITE, actions)

    def unwatch(self, source: Readable) -> None:
        with suppress(KeyError):
            self._selector.unregister(source)

    def after(self, seconds: float, action: Action) -> None:
        heapq.heappush(self._timers, (monotonic() + seconds, next(self._timer_numbers), action))

    def post(self, action: Action) -> None:
        """Call `action` in the thread of `wait`. Other threads may call only this method."""
        self._posted.put(action)
        with suppress(OSError):  # full, so `wait` wakes anyway; or closed after the last wait
            self._wake_writer.send(b"\0")

    def wait(self) -> None:
        """Wait for the next events, and handle them."""
        for key, events in self._selector.select(self._until_timer()):
            # An earlier action may have closed this source, and its descriptor may be reused.
            if key in self._selector.get_map().values():
                self._act(key, events)
        while self._timers and self._timers[0][0] <= monotonic():
            heapq.heappop(self._timers)[2]()

    def _act(self, key: selectors.SelectorKey, events: int) -> None:
        actions: Actions = key.data
        if events & selectors.EVENT_WRITE and actions.write is not None:
            self._selector.modify(key.fileobj, selectors.EVENT_READ, Actions(actions.read))
            actions.write()
        if events & selectors.EVENT_READ:
            actions.read()

    def _until_timer(self) -> float | None:
        return max(0.0, self._timers[0][0] - monotonic()) if self._timers else None

    def _read_wake(self) -> None:
        """Handle signals, which arrive as their numbers, and posts, which arrive as zeros."""
        with suppress(BlockingIOError):
            for number in filter(None, self._wake_reader.recv(4096)):
                self._on_signal(signal.Signals(number))
        with suppress(Empty):
            while True:
                self._posted.get_nowait()()


def _pass(number: int, frame: FrameType | None) -> None:
    """Do nothing: Python writes the number of the signal to the wake-up socket."""


def _ignore(number: signal.Signals) -> None:
    """Ignore signals until `on_signal` is called."""

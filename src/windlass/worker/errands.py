"""An errand: what a thread without a job does in the place of another one, which waits for its end.

The pump has its waiting done in this way. To wake a thread takes as long as much of what comes
before a job; the one that hears of the job has not to wake anybody, but runs it.

Whoever waits goes on when the errand has ended, or when nobody has begun it in time: then nobody
will. So what both of them touch is touched by one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

_T = TypeVar("_T")

#: An errand is begun within so many seconds, or not at all.
BEGUN_WITHIN_S = 0.1


class Failed(Exception):
    """It came to no end. Whatever ended it, even an exit, was meant for whoever was sent."""


class Errand(Generic[_T]):
    """Sent by one thread, done by another."""

    _result: _T

    def __init__(self, action: Callable[[], _T]) -> None:
        self._action = action
        self._is_taken = Lock()
        self._ends: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None

    def run(self) -> None:
        """By whoever was sent. An error is raised where the end is waited for, also one that an
        earlier job has sent into this thread."""
        try:
            if self._is_taken.acquire(blocking=False):
                self._result = self._action()
        except BaseException as error:  # noqa: BLE001  # somebody else waits for it
            self._error = error
        finally:
            self._ends.put(None)

    def has_ended(self) -> bool:
        """Wait for that. False if nobody has begun it in time: then nobody will."""
        try:
            self._ends.get(timeout=BEGUN_WITHIN_S)
        except Empty:
            if self._is_taken.acquire(blocking=False):
                return False
            self._ends.get()
        return True

    def result(self) -> _T:
        """Once it has ended."""
        if self._error is not None:
            raise Failed("an errand of the pump failed") from self._error
        return self._result

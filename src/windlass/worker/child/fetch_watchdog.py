"""The watchdog of the fetcher: whether the fetcher of a child makes progress.

A stuck fetcher reports nothing, while heartbeats of the supervisor keep its jobs leased forever.
The fetcher is wedged when its thread has ended, or when it has made no round for `WEDGED_S`
although it could have. It could have if the watchdog ran on time at each look, so that the
interpreter was free, and if the fetcher was in no call of the engine. During an outage a call may
take long, and the jobs survive that.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Protocol

import windlass.engine

#: How long a fetcher that could make progress may be stuck, in seconds.
WEDGED_S = 60.0

_ENGINES = str(Path(windlass.engine.__file__).parent)


class RoundCounter(Protocol):
    """The fetcher, as its watchdog sees it."""

    rounds: int


class FetchWatchdog:
    """Used by one thread."""

    def __init__(self, thread: Thread, fetcher: RoundCounter) -> None:
        self._thread = thread
        self._fetcher = fetcher
        self._seen = -1
        self._stood_s = 0.0
        self._is_reported = False

    def look(self, waited_s: float, *, is_punctual: bool) -> str | None:
        """Return once where the fetcher is stuck; None otherwise."""
        if self._is_reported:
            return None
        is_dead = not self._thread.is_alive()
        frame = self._frame()
        rounds = self._fetcher.rounds
        if rounds != self._seen or not is_punctual or _is_in_engine(frame):
            self._seen = rounds
            self._stood_s = 0.0
        else:
            self._stood_s += waited_s
        self._is_reported = is_dead or self._stood_s > WEDGED_S
        return _describe(frame) if self._is_reported else None

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._thread.ident or 0)


def _is_in_engine(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_ENGINES):
            return True
        frame = frame.f_back
    return False


def _describe(frame: FrameType | None) -> str:
    if frame is None:
        return "its fetcher thread has ended"
    return "its fetcher is stuck in\n" + "".join(traceback.format_stack(frame)).rstrip()

"""Whether the fetcher of a child goes round.

A fetcher that stands still reports nothing more: its jobs would be kept by the beats of the supervisor
for ever. It is wedged when its thread has ended, or when it has made no round for `WEDGED_S`
although it could have: the watch had the interpreter in time at each look, so nothing kept it from
the fetcher, and at none of them was the fetcher inside the engine. A call of an engine that is away may
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

#: How long a fetcher that could go round may stand still, in seconds.
WEDGED_S = 60.0

_ENGINES = str(Path(windlass.engine.__file__).parent)


class Fetcher(Protocol):
    """What is looked at."""

    rounds: int


class FetchWatchdog:
    """Used by one thread."""

    def __init__(self, thread: Thread, fetcher: Fetcher) -> None:
        self._thread = thread
        self._fetcher = fetcher
        self._seen = -1
        self._stood_s = 0.0
        self._is_reported = False

    def look(self, waited_s: float, *, is_punctual: bool) -> str | None:
        """Where it stands still; None if it does not, and once it was told."""
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
        return "its thread has ended"
    return "it stands still in\n" + "".join(traceback.format_stack(frame)).rstrip()

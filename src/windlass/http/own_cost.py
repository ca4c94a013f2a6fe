"""What an instance of the API costs: how many requests it answers, and how long they take.

1. `OwnCost` remembers the reads of the last minute, a bounded number of them. Requests that wait
   for something, and streams, are left out: their time is not work.
2. `summary` has their number, and the p50 and p95 of their times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

#: Requests of this time are summarized, in seconds, and at most this many.
WINDOW_S: Final = 60.0
MAX_REQUESTS: Final = 2_000


class RequestTimes(NamedTuple):
    """The reads of the last minute."""

    number: int
    p50_s: float | None  # None without any
    p95_s: float | None


class OwnCost:
    """The latest reads of an instance. Used by its event loop alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._latest: deque[tuple[float, float]] = deque(maxlen=MAX_REQUESTS)  # at, took

    @property
    def uptime_s(self) -> float:
        return self._clock() - self._began_s

    def add(self, took_s: float) -> None:
        self._latest.append((self._clock(), took_s))

    def summary(self) -> RequestTimes:
        since_s = self._clock() - WINDOW_S
        took = sorted(took_s for at_s, took_s in self._latest if at_s >= since_s)
        if not took:
            return RequestTimes(0, None, None)
        return RequestTimes(len(took), took[len(took) // 2], took[int(len(took) * 0.95)])

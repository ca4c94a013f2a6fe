"""Limits of requests: how many a caller may send, and how fast a body must arrive.

`RateLimits` has a token bucket per caller, for a bounded number of callers. It counts in this
instance only: with n instances a caller may send n times as much.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from windlass.http.problems import Problem, ProblemType

#: The number of callers to remember. The one that was silent for longest is forgotten first.
MAX_CALLERS: Final = 10_000


class RateLimits:
    """At most `rate` requests a second per caller, and `burst` at once."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # left, at

    def take(self, caller: str, cost: float = 1.0) -> None:
        """Count a request; refuse it if the caller has sent too many."""
        now = self._clock()
        left, at = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        is_allowed = left >= cost
        self._buckets[caller] = (left - cost if is_allowed else left, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        if not is_allowed:
            raise self._refusal(caller, (cost - left) / self._rate)

    def _refusal(self, caller: str, wait_s: float) -> Problem:
        seconds = str(max(1, math.ceil(wait_s)))
        return Problem(
            ProblemType.TOO_MANY,
            f"{caller} may send {self._rate:g} requests a second, and {self._burst:g} at once. "
            f"Send the request again after {seconds} s.",
            headers={
                "Retry-After": seconds,
                "RateLimit-Limit": f"{self._burst:g}",
                "RateLimit-Remaining": "0",
                "RateLimit-Reset": seconds,
            },
        )

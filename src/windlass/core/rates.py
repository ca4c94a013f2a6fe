"""Parse a rate, and pace steps by it.

1. `per_second` reads a rate: "500/s", "30/m", "10/h", or a number per second.
2. `Pace` gives the size of a step and the pause before the next one. The caller passes the time.
"""

from __future__ import annotations

import math
import re
from typing import Final

#: The largest step.
MAX_STEP: Final = 200
#: The steps per second, if the rate is high enough.
STEPS_PER_S: Final = 20
#: The longest delay that is caught up, in seconds: a rate protects a server from bursts.
MAX_DEBT_S: Final = 1.0

_RATE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*(s|m|h)\s*")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def per_second(rate: str | float, *, name: str) -> float:
    """The rate per second; `name` is the option for error messages."""
    number = 0.0
    if isinstance(rate, str):
        if match := _RATE.fullmatch(rate):
            number = float(match[1]) / _SECONDS[match[2]]
    elif not isinstance(rate, bool):
        number = float(rate)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f'{name} must be text such as "500/s", "30/m" or "10/h", found {rate!r}')
    return number


class Pace:
    """Steps of `size` at a steady rate; without a rate there are no pauses."""

    def __init__(self, per_s: float | None, now_s: float) -> None:
        self._per_s = per_s
        self._due_s = now_s
        self.size = MAX_STEP if per_s is None else max(1, min(MAX_STEP, int(per_s / STEPS_PER_S)))

    def pause_s(self, done: int, now_s: float) -> float:
        """The pause after a step that did this many."""
        if self._per_s is None:
            return 0.0
        self._due_s = max(self._due_s + done / self._per_s, now_s - MAX_DEBT_S)
        return max(0.0, self._due_s - now_s)

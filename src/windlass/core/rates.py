"""A rate as users write it, and steps that keep to it.

1. `per_second` reads a rate: "500/s", "30/m", "10/h", or a number a second.
2. `Pace` says how many things make one step, and how long to wait before the next. It is told the
   time and reads no clock.
"""

from __future__ import annotations

import math
import re
from typing import Final

#: The most that is done in one step.
MAX_STEP: Final = 200
#: So many steps are made in a second, if the rate is high enough.
STEPS_PER_S: Final = 20
#: What was held up is made up for only so far, in seconds: a rate is there to spare somebody.
MAX_DEBT_S: Final = 1.0

_RATE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*(s|m|h)\s*")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def per_second(rate: str | float, *, name: str) -> float:
    """The rate as a number a second; `name` is the option that an error message speaks of."""
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
    """Steps of `size` at a steady rate, or without pauses when there is none."""

    def __init__(self, per_s: float | None, now_s: float) -> None:
        self._per_s = per_s
        self._due_s = now_s
        self.size = MAX_STEP if per_s is None else max(1, min(MAX_STEP, int(per_s / STEPS_PER_S)))

    def pause_s(self, done: int, now_s: float) -> float:
        """How long to wait after a step in which so many were done."""
        if self._per_s is None:
            return 0.0
        self._due_s = max(self._due_s + done / self._per_s, now_s - MAX_DEBT_S)
        return max(0.0, self._due_s - now_s)

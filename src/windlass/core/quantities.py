"""Numbers with a unit or a noun: parse and format them.

1. `count` and `Count` write a number with its noun: "1 task", "2 tasks", "1,000 tasks".
2. `to_bytes` and `describe_bytes` read and write sizes of memory.
3. `per_second` reads a rate: "500/s", "30/m", "10/h", or a number per second. `Pace` gives the size
   of a step and the pause before the next one. The caller passes the time.
"""

from __future__ import annotations

import math
import re
from typing import Final, Self

#: The largest size of a step.
MAX_STEP: Final = 200
#: The steps per second, if the rate is high enough.
STEPS_PER_S: Final = 20
#: The longest delay to catch up on, in seconds: a rate protects a server from bursts.
MAX_DEBT_S: Final = 1.0

_SIZE: Final = r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)b?"
_SIZE_UNITS: Final = ("kB", "MB", "GB", "TB")
_SIZE_FACTORS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_RATE: Final = r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*(s|m|h)\s*"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


class Count(int):
    """A number that is formatted with its noun, for log lines. The logged field stays a number."""

    _words: str

    def __new__(cls, number: int, noun: str, plural: str = "") -> Self:
        made = super().__new__(cls, number)
        made._words = count(number, noun, plural)
        return made

    def __str__(self) -> str:
        return self._words


def count(number: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun. `plural` is the plural of an irregular noun."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def to_bytes(text: str, *, name: str) -> int:
    """Parse a size such as "512MB" to bytes. `name` is the option, for error messages."""
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f'{name} must be a size such as "512MB" or "2GB", found {text!r}')
    return int(float(match[1]) * _SIZE_FACTORS[match[2].lower()])


def describe_bytes(number: float) -> str:
    """Format a size in steps of a thousand: `512 B`, `1.5 kB`, `20 MB`."""
    if number < 1000:
        return f"{number:.0f} B"
    for unit in _SIZE_UNITS:
        number /= 1000
        if number < 1000 or unit == _SIZE_UNITS[-1]:
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    raise AssertionError("the last unit takes all that is left")


def per_second(rate: str | float, *, name: str) -> float:
    """Parse a rate to a number per second. `name` is the option, for error messages."""
    number = 0.0
    if isinstance(rate, str):
        if match := re.fullmatch(_RATE, rate):
            number = float(match[1]) / _SECONDS[match[2]]
    elif not isinstance(rate, bool):
        number = float(rate)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f'{name} must be text such as "500/s", "30/m" or "10/h", found {rate!r}')
    return number


class Pace:
    """Limits the speed of work that is done in steps of `size`. Without a rate nothing pauses."""

    def __init__(self, per_s: float | None, now_s: float) -> None:
        self._per_s = per_s
        self._due_s = now_s
        self.size = MAX_STEP if per_s is None else max(1, min(MAX_STEP, int(per_s / STEPS_PER_S)))

    def pause_s(self, done: int, now_s: float) -> float:
        """The pause after a step that processed `done` items."""
        if self._per_s is None:
            return 0.0
        self._due_s = max(self._due_s + done / self._per_s, now_s - MAX_DEBT_S)
        return max(0.0, self._due_s - now_s)

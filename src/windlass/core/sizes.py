"""Parse and format sizes of memory."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = ("kB", "MB", "GB", "TB")
_FACTORS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)b?", re.IGNORECASE)


def to_bytes(text: str, *, name: str) -> int:
    """The number of bytes in a text such as "512MB"; `name` is the option for error messages."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'{name} must be a size such as "512MB" or "2GB", found {text!r}')
    return int(float(match[1]) * _FACTORS[match[2].lower()])


def describe_bytes(number: float) -> str:
    """`512 B`, `1.5 kB`, `20 MB`: two significant digits, in steps of a thousand."""
    if number < 1000:
        return f"{number:.0f} B"
    for unit in _UNITS:
        number /= 1000
        if number < 1000 or unit == _UNITS[-1]:
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    raise AssertionError("the last unit takes all that is left")

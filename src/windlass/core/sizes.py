"""Numbers of bytes in words for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("kB", "MB", "GB", "TB")


def describe_bytes(number: float) -> str:
    """`512 B`, `1.5 kB`, `20 MB`: two digits that count, in steps of a thousand."""
    if number < 1000:
        return f"{number:.0f} B"
    for unit in _UNITS:
        number /= 1000
        if number < 1000 or unit == _UNITS[-1]:
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    raise AssertionError("the last unit takes all that is left")

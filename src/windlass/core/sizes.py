"""Amounts of memory as users write them, in bytes as windlass keeps them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def to_bytes(text: str, *, name: str) -> int:
    """The number of bytes, of a text such as "512MB"; a unit is 1024 of the one before. `name` is
    the option that an error message speaks of."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'{name} must be a size such as "512MB" or "2GB", found {text!r}')
    return int(float(match[1]) * _UNITS[match[2].lower()])


def describe_bytes(count: int) -> str:
    """In whole megabytes from one on."""
    return f"{count // 1024**2}MB" if count >= 1024**2 else f"{count}B"

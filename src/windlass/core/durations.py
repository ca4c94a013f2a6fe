"""Parse durations and instants into whole milliseconds.

1. `to_ms` reads a duration: a number of seconds, text such as "1h30m", or a timedelta.
2. `instant_ms` reads a point in time, which must have a time zone; `instant` is its inverse.
3. `describe_ms` formats a duration as text that `to_ms` can read.

A fraction of a millisecond is rounded up: nothing is due before the requested instant.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, overload

Duration = float | int | str | timedelta

#: The longest duration, in milliseconds: a thousand years, so that now plus a duration always fits.
MAX_DURATION_MS: Final = 365_000 * 86_400_000

#: No job is due or expires in or after this year: engines store fewer bits of an instant than does
#: Python. Now plus the longest duration and its jitter is well before this year.
LATEST_YEAR: Final = 5000
LATEST_MS: Final = 95_617_583_999_999

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)\s*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EXPECTED: Final = 'seconds as a number, text such as "90s", "10m" or "1h30m", or a timedelta'


def to_ms(value: Duration, *, name: str) -> int:
    """Convert a duration to milliseconds. `name` is the option, for error messages."""
    microseconds = _microseconds(value, name)
    if microseconds < 0:
        raise ValueError(f"{name} must not be negative, found {value!r}: give 0 or more")
    milliseconds = _whole_ms(microseconds)
    if milliseconds > MAX_DURATION_MS:
        raise _out_of_range(value, name)
    return milliseconds


def instant_ms(value: datetime, *, name: str) -> int:
    """Convert a point in time to milliseconds since 1970 in UTC. Refuses a naive datetime."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime with a time zone, found {_kind(value)}")
    if value.utcoffset() is None:
        raise ValueError(
            f"{name} must be a datetime with a time zone, found the naive {value.isoformat()}: "
            "write for example datetime.now(UTC) or .replace(tzinfo=ZoneInfo(...))"
        )
    return _whole_ms((value - _EPOCH) // _MICROSECOND)


@overload
def instant(at_ms: int) -> datetime: ...
@overload
def instant(at_ms: int | None) -> datetime | None: ...
def instant(at_ms: int | None) -> datetime | None:
    """Convert milliseconds since 1970 to a datetime in UTC."""
    return None if at_ms is None else _EPOCH + timedelta(milliseconds=at_ms)


def describe_ms(milliseconds: int) -> str:
    """Format a duration as text that `to_ms` can read: 5_400_000 is "1h30m"."""
    if milliseconds < 0:
        return "-" + describe_ms(-milliseconds)
    parts = []
    for unit, size_ms in _UNITS_MS.items():
        count, milliseconds = divmod(milliseconds, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _microseconds(value: Duration, name: str) -> int:
    match value:
        case bool():
            raise TypeError(f"{name} must be {_EXPECTED}, found a bool")
        case int() | float():
            return _seconds(value, name)
        case str():
            return _text(value, name)
        case timedelta():
            return value // _MICROSECOND
    raise TypeError(f"{name} must be {_EXPECTED}, found {_kind(value)}")


def _seconds(value: float, name: str) -> int:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be {_EXPECTED}, found {value!r}")
    try:
        # A timedelta rounds to microseconds, which removes float noise such as that of 0.1 + 0.2.
        return timedelta(seconds=value) // _MICROSECOND
    except OverflowError:
        raise _out_of_range(value, name) from None


def _text(value: str, name: str) -> int:
    text = value.strip()
    parts = _PART.findall(text)
    if len(parts) == 1 and parts[0] == (text, ""):
        return int(Decimal(text) * 1_000_000)
    units = iter(_UNITS_MS)  # each unit at most once, the longest first
    if not parts or _PART.sub("", text) or not all(unit in units for _, unit in parts):
        raise ValueError(f"{name} must be {_EXPECTED}, found {value!r}")
    return int(sum(Decimal(number) * _UNITS_MS[unit] for number, unit in parts) * 1_000)


def _whole_ms(microseconds: int) -> int:
    return -(-microseconds // 1_000)


def _out_of_range(value: Duration, name: str) -> ValueError:
    return ValueError(f"{name} must be at most {describe_ms(MAX_DURATION_MS)}, found {value!r}")


def _kind(value: object) -> str:
    return type(value).__name__

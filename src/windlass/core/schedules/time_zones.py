"""Time zones: their names, and the instants of a local day.

1. `zone_named` returns a zone by name. For an unknown name the error suggests the nearest name.
2. `local_day` splits a day into parts with a constant offset. A day on which the clock is put
   forward or back has several parts. They define how skipped and repeated times are treated.

Local times are seconds since 1970 on the local clock, and instants are seconds since 1970 in UTC.
The time zone database is the operating system's.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAY_S: Final = 86_400

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_SECOND: Final = timedelta(seconds=1)
#: The largest offset of a local clock from UTC.
_FARTHEST_S: Final = 16 * 3600
#: Names with a meaning that differs between machines, and zones that count leap seconds.
_NOT_ZONES: Final = ("localtime", "posixrules", "posix/", "right/")


class DayPart(msgspec.Struct, frozen=True):
    """A part of a local day with one UTC offset, from `first_s` up to but not including `end_s`."""

    first_s: int
    end_s: int
    offset_s: int  # local time minus UTC
    gap_s: int | None = None  # for skipped times: the instant at which all of them run

    def instant_of(self, local_s: int) -> int:
        return local_s - self.offset_s if self.gap_s is None else self.gap_s

    def local_after(self, instant_s: int) -> int:
        """The first local second after the instant, or `end_s` or more if there is none."""
        if self.gap_s is None:
            return max(self.first_s, instant_s + 1 + self.offset_s)
        return self.first_s if self.gap_s > instant_s else self.end_s

    def local_until(self, instant_s: int) -> int:
        """The last local second at or before the instant, or less than `first_s` if none."""
        if self.gap_s is None:
            return min(self.end_s - 1, instant_s + self.offset_s)
        return self.end_s - 1 if self.gap_s <= instant_s else self.first_s - 1


@lru_cache(maxsize=256)
def zone_named(name: str) -> ZoneInfo:
    """The time zone of a name. For an unknown name, raises `ValueError` with the nearest name."""
    from zoneinfo import ZoneInfo  # costs a quarter of the import of windlass

    if not name.startswith(_NOT_ZONES):
        try:
            return ZoneInfo(name)
        except (LookupError, ValueError, OSError):
            pass  # an unknown or malformed name, or a folder such as "Europe"
    raise ValueError(
        f'tz must be the name of a time zone such as "Europe/Paris" or "UTC", found {name!r}.'
        f"{_nearest(name)}"
    )


def _nearest(name: str) -> str:
    import difflib
    from zoneinfo import available_timezones

    zones = (zone for zone in available_timezones() if not zone.startswith(_NOT_ZONES))
    known = {zone.lower(): zone for zone in zones}
    if not known:
        return " This machine has no time zone database: install the package tzdata."
    # The last part first: users write "Paris" as often as "Europe/Pris".
    wanted = name.lower().replace(" ", "_")
    by_city = {zone.rpartition("/")[2]: zone for zone in sorted(known)}
    match = by_city.get(wanted) or next(iter(difflib.get_close_matches(wanted, known, n=1)), None)
    return f" Did you mean {known[match]!r}?" if match else ""


def day_of(local_s: int) -> date:
    return date.fromordinal(local_s // DAY_S + _EPOCH_DAY)


def start_of(day: date) -> int:
    """The first local second of the day."""
    return (day.toordinal() - _EPOCH_DAY) * DAY_S


def offset_s(zone: ZoneInfo, instant_s: int) -> int:
    """The offset of the local clock from UTC at an instant, in seconds."""
    local = (_EPOCH + timedelta(seconds=instant_s)).astimezone(zone)
    return (local.replace(tzinfo=UTC) - _EPOCH) // _SECOND - instant_s


# Cached: callers ask for the same days repeatedly, and a day with a clock change costs a search.
@lru_cache(maxsize=1024)
def local_day(zone: ZoneInfo, day: date, *, repeat: bool) -> tuple[DayPart, ...]:
    """The parts of a day, in the order of their instants.

    With `repeat` the day follows the clock: repeated times occur twice and skipped times never.
    Without `repeat` every local time occurs once: a repeated time at its first instant, and a
    skipped time at the first instant after the gap.
    """
    first_s = start_of(day)
    end_s = first_s + DAY_S
    instant_s, before_s, after_s = _change_between(zone, first_s - _FARTHEST_S, end_s + _FARTHEST_S)
    stops_s, resumes_s = instant_s + before_s, instant_s + after_s
    parts = [DayPart(first_s, min(end_s, stops_s), before_s)]
    if not repeat:
        parts.append(DayPart(max(first_s, stops_s), min(end_s, resumes_s), after_s, instant_s))
        resumes_s = max(stops_s, resumes_s)
    parts.append(DayPart(max(first_s, resumes_s), end_s, after_s))
    return tuple(part for part in parts if part.first_s < part.end_s)


def _change_between(zone: ZoneInfo, low_s: int, high_s: int) -> tuple[int, int, int]:
    """Find the clock change between two instants a few days apart. Returns the instant of the
    change, and the offsets before and after. Without a change, returns the later instant and the
    same offset twice.

    Finds only one of two changes within three days. No zone has had two since 1990.
    """
    before_s, after_s = offset_s(zone, low_s), offset_s(zone, high_s)
    while before_s != after_s and high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        if offset_s(zone, middle_s) == before_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s, before_s, after_s

"""Parse cron expressions, and find the instants at which a local clock matches them.

1. `read_expression` reads five fields, six with seconds first, or a nickname such as `@daily`. It
   refuses invalid expressions, and those that never match (31 February).
2. `Days` and `Times` hold the days, and the times of day, that an expression matches. They find the
   next and the previous match.
3. `first_after` and `last_until` find matching instants by the clock of a time zone.

As in the cron of Unix: names (`MON`, `JAN`) in any case, lists, ranges, steps; Sunday is 0 and 7.
When both the day of the month and the day of the week are given, a day that fits either field
matches. When one field begins with `*`, a day has to fit both. In addition: `L` is the last day
of the month and `LW` its last day from Monday to Friday; `5L` or `FRIL` is the last Friday of the
month and `FRI#2` its second; a range may end on Sunday (`SAT-SUN`).

When a clock is put forward some local times are skipped, and when it is put back some are repeated.
The hour field decides how these times run:

- An expression that names hours (`30 2 * * *`, `0 */2 * * *`, `*/10 1-5 * * *`) runs once for each
  local time. Skipped times of one gap run once together, at the first instant after the gap. A
  repeated time runs only the first time.
- An expression with `*` as hour (`*/30 * * * *`, `15 * * * *`) follows elapsed time. It runs each
  time when the clock shows a matching time: twice for a repeated time, never for a skipped one. So
  `*/30 * * * *` runs every real half hour, without gaps or duplicates.

No instant ever occurs twice.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from datetime import date, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

import msgspec

from windlass.core.schedules.time_zones import day_of, local_day, offset_s, start_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

#: The first and the last year of occurrences: ids hold no time before 1970, and the calendar of
#: Python ends with the year 9999.
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9998

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAY: Final = timedelta(days=1)
_NUMBER: Final = re.compile(r"[0-9]{1,4}")


class _Field(msgspec.Struct, frozen=True):
    """One field of an expression: its name and its range."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # names of the numbers, starting at `low`

    def expected(self) -> str:
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{names}"


_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_MONTHDAY: Final = _Field("day of the month", 1, 31)
_MONTH: Final = _Field(
    "month",
    1,
    12,
    ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAY: Final = _Field("day of the week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))


@final
class Times(msgspec.Struct, frozen=True):
    """The matching times of day, as sorted minutes of the day and seconds of the minute."""

    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def first_from(self, second_of_day: int) -> int | None:
        """The first matching second of the day at or after `second_of_day`."""
        minute, second = divmod(second_of_day, 60)
        at = bisect_left(self.minutes, minute)
        if at < len(self.minutes) and self.minutes[at] == minute:
            if second <= self.seconds[-1]:
                return minute * 60 + self.seconds[bisect_left(self.seconds, second)]
            at += 1
        return self.minutes[at] * 60 + self.seconds[0] if at < len(self.minutes) else None

    def last_until(self, second_of_day: int) -> int | None:
        """The last matching second of the day at or before `second_of_day`."""
        minute, second = divmod(second_of_day, 60)
        at = bisect_right(self.minutes, minute) - 1
        if at >= 0 and self.minutes[at] == minute:
            if second >= self.seconds[0]:
                return minute * 60 + self.seconds[bisect_right(self.seconds, second) - 1]
            at -= 1
        return self.minutes[at] * 60 + self.seconds[-1] if at >= 0 else None


@final
class Days(msgspec.Struct, frozen=True):
    """The matching days."""

    months: frozenset[int]
    monthdays: frozenset[int]
    ends_of_month: frozenset[str]  # "L", "LW"
    weekdays: frozenset[int]  # Sunday is 0
    nth_weekdays: frozenset[tuple[int, int]]  # the second Friday is (5, 2), the last is (5, -1)
    fits_both: bool  # a day must fit both day fields; otherwise one of them

    def match(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        if self.fits_both:
            return self._fits_month(day) and self._fits_week(day)
        return self._fits_month(day) or self._fits_week(day)

    def first_from(self, day: date, last_year: int = LAST_YEAR) -> date | None:
        """The first matching day at or after `day`."""
        while day.year <= last_year:
            if day.month not in self.months:
                day = _month_end(day) + _DAY
            elif self.match(day):
                return day
            else:
                day += _DAY
        return None

    def last_until(self, day: date) -> date | None:
        """The last matching day at or before `day`."""
        while day.year >= FIRST_YEAR:
            if day.month not in self.months:
                day = day.replace(day=1) - _DAY
            elif self.match(day):
                return day
            else:
                day -= _DAY
        return None

    def _fits_month(self, day: date) -> bool:
        if day.day in self.monthdays:
            return True
        if not self.ends_of_month or day.day < 26:  # a last working day is never earlier
            return False
        end = _month_end(day)
        beyond_friday = max(0, end.weekday() - 4) * _DAY
        return ("L" in self.ends_of_month and day == end) or (
            "LW" in self.ends_of_month and day == end - beyond_friday
        )

    def _fits_week(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if weekday in self.weekdays:
            return True
        if not self.nth_weekdays:
            return False
        is_last = (day + 7 * _DAY).month != day.month
        return (weekday, (day.day + 6) // 7) in self.nth_weekdays or (
            is_last and (weekday, -1) in self.nth_weekdays
        )


def _month_end(day: date) -> date:
    return (day.replace(day=28) + 4 * _DAY).replace(day=1) - _DAY


@final
class Expression(msgspec.Struct, frozen=True):
    """A parsed cron expression."""

    days: Days
    times: Times
    every_hour: bool  # the hour is `*`: the runs follow elapsed time


def normal_text(text: str) -> str:
    """Normalize the spaces of an expression, and convert it to upper case."""
    words = text.split()
    return words[0].lower() if text.lstrip().startswith("@") else " ".join(words).upper()


@lru_cache(maxsize=256)
def read_expression(text: str) -> Expression:
    """Parse a cron expression. Raises `ValueError` if it is invalid."""
    second, minute, hour, monthday, month, weekday = _fields(text)
    seconds = _numbers(_SECOND, second, text)
    minutes = _numbers(_MINUTE, minute, text)
    hours = _numbers(_HOUR, hour, text)
    days = _days(monthday, month, weekday, text)
    _refuse_impossible(days, text)
    return Expression(
        days=days,
        times=Times(
            tuple(60 * hour + minute for hour in sorted(hours) for minute in sorted(minutes)),
            tuple(sorted(seconds)),
        ),
        every_hour=len(hours) == 24,
    )


def _fields(text: str) -> list[str]:
    """Split an expression into six fields. Without seconds the first field is 0."""
    words = text.split()
    if words and words[0].startswith("@"):
        words = _nickname(text).split()
    if len(words) == 5:
        words.insert(0, "0")
    if len(words) != 6:
        raise ValueError(
            "a cron expression has 5 fields (minute, hour, day of the month, month, day of the "
            f'week), or 6 with seconds first, such as "0 3 * * *"; found {len(words)} in {text!r}'
        )
    return [word.upper() for word in words]


def _nickname(text: str) -> str:
    expression = NICKNAMES.get(text.strip().lower())
    if expression is None:
        advice = 'For intervals use Every("10m").' if "every" in text.lower() else ""
        raise ValueError(
            f"a nickname is one of {', '.join(NICKNAMES)}; found {text!r}. {advice}".rstrip()
        )
    return expression


# -------------------------------------------------------------------------------- reading one field


def _days(monthday: str, month: str, weekday: str, text: str) -> Days:
    ends = frozenset(part for part in monthday.split(",") if part in ("L", "LW"))
    plain = [part for part in monthday.split(",") if part not in ends]
    nth = {part: _nth_weekday(part, text) for part in weekday.split(",") if _is_nth(part)}
    plain_weekdays = [part for part in weekday.split(",") if part not in nth]
    return Days(
        months=_numbers(_MONTH, month, text),
        monthdays=_parts(_MONTHDAY, plain, text),
        ends_of_month=ends,
        weekdays=frozenset(number % 7 for number in _parts(_WEEKDAY, plain_weekdays, text)),
        nth_weekdays=frozenset(nth.values()),
        fits_both=monthday.startswith("*") or weekday.startswith("*"),
    )


def _is_nth(part: str) -> bool:
    return "#" in part or (part.endswith("L") and len(part) > 1)


def _nth_weekday(part: str, text: str) -> tuple[int, int]:
    if part.endswith("L"):
        return _number(_WEEKDAY, part[:-1], part, text) % 7, -1
    weekday, _, nth = part.partition("#")
    if nth not in ("1", "2", "3", "4", "5"):
        raise _wrong(_WEEKDAY, part, text, "the number after # is 1 to 5, as in FRI#2")
    return _number(_WEEKDAY, weekday, part, text) % 7, int(nth)


def _numbers(field: _Field, word: str, text: str) -> frozenset[int]:
    return _parts(field, word.split(","), text)


def _parts(field: _Field, parts: list[str], text: str) -> frozenset[int]:
    return frozenset(number for part in parts for number in _part(field, part, text))


def _part(field: _Field, part: str, text: str) -> range:
    """Parse one member of a list: `*`, a number or a range, with an optional step."""
    span, slash, step_text = part.partition("/")
    step = _step(field, step_text, part, text) if slash else 1
    if span == "*":
        return range(field.low, field.high + 1, step)
    first_text, dash, last_text = span.partition("-")
    first = _number(field, first_text, part, text)
    open_end = field.high if slash else first  # 5/15 runs to the end of the field
    last = _number(field, last_text, part, text) if dash else open_end
    if field is _WEEKDAY and last == 0 < first:
        last = 7
    if last < first:
        advice = f"a range goes upwards; write {first}-{field.high},{field.low}-{last}"
        raise _wrong(field, part, text, advice)
    return range(first, last + 1, step)


def _step(field: _Field, step: str, part: str, text: str) -> int:
    longest = field.high - field.low
    if _NUMBER.fullmatch(step) and 1 <= int(step) <= longest:
        return int(step)
    advice = f"a step is 1 to {longest}, counted from the start of its range each time"
    raise _wrong(field, part, text, advice)


def _number(field: _Field, value: str, part: str, text: str) -> int:
    if value in field.names:
        return field.names.index(value) + field.low
    if _NUMBER.fullmatch(value) and field.low <= int(value) <= field.high:
        return int(value)
    raise _wrong(field, part, text, _ADVICE.get(value, ""))


#: Hints for the syntax of other crons.
_ADVICE: Final = {
    "?": "write * instead of ?",
    "L": "name the day, as in FRIL for the last Friday of the month",
}


def _wrong(field: _Field, part: str, text: str, advice: str) -> ValueError:
    return ValueError(
        f"the {field.name} of a cron expression must be {field.expected()}, a range, a list, * or "
        f"a step such as */2; found {part!r} in {text!r}{advice and ': ' + advice}"
    )


def _refuse_impossible(days: Days, text: str) -> None:
    # The calendars of these 28 years include all possible ones.
    if days.first_from(date(2000, 1, 1), last_year=2027) is None:
        raise ValueError(
            f"a cron expression must match some day, and {text!r} matches no day of any year. "
            "Check the day of the month against the month and the day of the week."
        )


# --------------------------------------------------------------------------------- finding instants


def first_after(expression: Expression, zone: ZoneInfo, after_s: int) -> int | None:
    """The first matching instant after `after_s`, both in seconds since 1970."""
    # Check the day before as well: a clock put back at midnight repeats the end of that day.
    day = expression.days.first_from(day_of(after_s + offset_s(zone, after_s)) - _DAY)
    while day is not None:
        found = _first_of_day(expression, zone, day, after_s)
        if found is not None:
            following = _first_of_day(expression, zone, day + _DAY, after_s)
            return found if following is None else min(found, following)
        day = expression.days.first_from(day + _DAY)
    return None


def last_until(expression: Expression, zone: ZoneInfo, until_s: int) -> int | None:
    """The last matching instant at or before `until_s`."""
    day = expression.days.last_until(day_of(until_s + offset_s(zone, until_s)) + _DAY)
    while day is not None:
        found = _last_of_day(expression, zone, day, until_s)
        if found is not None:
            preceding = _last_of_day(expression, zone, day - _DAY, until_s)
            return found if preceding is None else max(found, preceding)
        day = expression.days.last_until(day - _DAY)
    return None


def _first_of_day(expression: Expression, zone: ZoneInfo, day: date, after_s: int) -> int | None:
    if not expression.days.match(day):
        return None
    start_s = start_of(day)
    for day_part in local_day(zone, day, repeat=expression.every_hour):
        time_s = expression.times.first_from(day_part.local_after(after_s) - start_s)
        if time_s is not None and start_s + time_s < day_part.end_s:
            return day_part.instant_of(start_s + time_s)
    return None


def _last_of_day(expression: Expression, zone: ZoneInfo, day: date, until_s: int) -> int | None:
    if not expression.days.match(day):
        return None
    start_s = start_of(day)
    for day_part in reversed(local_day(zone, day, repeat=expression.every_hour)):
        time_s = expression.times.last_until(day_part.local_until(until_s) - start_s)
        if time_s is not None and start_s + time_s >= day_part.first_s:
            return day_part.instant_of(start_s + time_s)
    return None

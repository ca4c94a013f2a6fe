"""Cron expressions: what they mean, what is refused, and what clocks that change do to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.schedules.cron import NICKNAMES
from windlass.core.schedules.triggers import Cron

YEAR_2026 = datetime(2026, 1, 1, tzinfo=UTC)


def utc(text: str) -> datetime:
    """ "03-29 01:00" is in 2026; with a year it is in that one."""
    full = text if text.count("-") == 2 else f"2026-{text}"
    return datetime.fromisoformat(full).replace(tzinfo=UTC)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def between(cron: Cron, after: datetime, until: datetime) -> list[datetime]:
    """The occurrences after one instant and until another."""
    found = []
    for occurrence_ms in cron.upcoming(ms(after)):
        if occurrence_ms > ms(until):
            break
        found.append(datetime.fromtimestamp(occurrence_ms / 1_000, UTC))
    return found


def first_days(expression: str, count: int) -> list[str]:
    found_ms = islice(Cron(expression).upcoming(ms(YEAR_2026) - 1), count)
    return [f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d}" for at_ms in found_ms]


# ------------------------------------------------------------------------------- what fields mean


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        ("0 0 15,L * *", ["2026-01-15", "2026-01-31", "2026-02-15"]),
        ("0 0 * * 5L", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("0 0 * * FRIL", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("0 0 * * sunl", ["2026-01-25", "2026-02-22", "2026-03-29"]),
        ("0 0 * * FRI#2", ["2026-01-09", "2026-02-13", "2026-03-13"]),
        ("0 0 * * 7#1", ["2026-01-04", "2026-02-01", "2026-03-01"]),
        ("0 0 * * MON#1,MON#3", ["2026-01-05", "2026-01-19", "2026-02-02"]),
        ("0 0 * * SAT-SUN", ["2026-01-03", "2026-01-04", "2026-01-10"]),
        ("0 0 * * 0", ["2026-01-04", "2026-01-11", "2026-01-18"]),
        ("0 0 * * 7", ["2026-01-04", "2026-01-11", "2026-01-18"]),
        ("0 0 * * mon-wed", ["2026-01-05", "2026-01-06", "2026-01-07"]),
        ("0 0 1 JAN,jul *", ["2026-01-01", "2026-07-01", "2027-01-01"]),
        ("0 0 10-20/5 2 *", ["2026-02-10", "2026-02-15", "2026-02-20"]),
        ("0 0 20/5 2 *", ["2026-02-20", "2026-02-25", "2027-02-20"]),
        ("0 0 13 * FRI", ["2026-01-02", "2026-01-09", "2026-01-13"]),  # either
        ("0 0 */13 * FRI", ["2026-02-27", "2026-03-27", "2026-05-01"]),  # 1, 14, 27: both
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 * 2 MON#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),
        ("@monthly", ["2026-01-01", "2026-02-01", "2026-03-01"]),
        ("@weekly", ["2026-01-04", "2026-01-11", "2026-01-18"]),
        ("@YEARLY", ["2026-01-01", "2027-01-01", "2028-01-01"]),
    ],
)
def test_days(expression: str, days: list[str]) -> None:
    assert first_days(expression, 3) == days


@pytest.mark.parametrize("weekday", ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])
def test_rare_days_are_not_taken_for_impossible_ones(weekday: str) -> None:
    """A fifth one in February is a 29th that comes every 28 years, or every 40."""
    [day] = first_days(f"0 0 * FEB {weekday}#5", 1)
    assert day.endswith("-02-29")


def test_six_fields_begin_with_seconds() -> None:
    found = between(Cron("10,50 59 23 * * *"), utc("01-01 00:00"), utc("01-02 23:59:10"))
    assert found == [utc("01-01 23:59:10"), utc("01-01 23:59:50"), utc("01-02 23:59:10")]


def test_every_nickname_is_what_it_stands_for() -> None:
    for nickname, expression in NICKNAMES.items():
        assert next(Cron(nickname).upcoming(0)) == next(Cron(expression).upcoming(0))


def test_every_second_is_the_next_second() -> None:
    assert Cron("* * * * * *").next_after(1_999) == 2_000
    assert Cron("* * * * * *").next_after(2_000) == 3_000
    assert Cron("* * * * * *").last_until(2_999) == 2_000
    assert Cron("* * * * * *").last_until(3_000) == 3_000


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("* * * *", r"has 5 fields .* or 6 with seconds first.*; found 4 in '\* \* \* \*'"),
        ("", "found 0 in ''"),
        ("0 0 0 0 0 0 0", "found 7"),
        ("60 * * * *", r"the minute of .* must be 0-59, .*; found '60' in '60 \* \* \* \*'"),
        ("60 0 0 * * *", r"the second of .* must be 0-59, .*; found '60'"),
        ("0 24 * * *", "the hour of .* must be 0-23, .*; found '24'"),
        ("0 0 0 * *", "the day of the month of .* must be 1-31, .*; found '0'"),
        ("0 0 * 13 *", "the month of .* must be 1-12 or JAN-DEC, .*; found '13'"),
        ("0 0 * JANUARY *", "the month of .*; found 'JANUARY'"),
        ("0 0 * * 8", "the day of the week of .* must be 0-7 or SUN-SAT, .*; found '8'"),
        ("0 0 * * MON#6", "found 'MON#6' .*: the number after # is 1 to 5"),
        ("0 0 * * L", "found 'L' .*: name the day, as in FRIL"),
        ("0 0 ? * *", r"found '\?' .*: write \* instead of \?"),
        ("0 0 15W * *", "the day of the month of .*; found '15W'"),
        ("0 22-2 * * *", "found '22-2' .*: a range goes upwards; write 22-23,0-2"),
        ("*/60 * * * *", r"found '\*/60' .*: a step is 1 to 59"),
        ("*/0 * * * *", r"found '\*/0' .*: a step is 1 to 59"),
        ("1,,2 * * * *", "the minute of .*; found ''"),
        ("-1 * * * *", "the minute of .*; found '-1'"),
        ("٣ * * * *", "the minute of .*; found '٣'"),
        ("0 0 31 2 *", r"must match some day, and '0 0 31 2 \*' matches no day"),
        ("0 0 30-31 FEB *", "matches no day"),
        ("0 0 31 4,6,9,11 *", "matches no day"),
        ("0 0 */20 * MONL", "matches no day"),  # neither the 1st nor the 21st is a last Monday
        ("@reboot", "a nickname is one of @yearly, .*; found '@reboot'"),
        ("@every 5m", r'found \'@every 5m\'. For intervals use Every\("10m"\)'),
    ],
)
def test_what_is_refused(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cron(expression)


def test_an_expression_is_text() -> None:
    number: Any = 3
    with pytest.raises(TypeError, match=r'must be text such as "0 3 \* \* \*", found 3'):
        Cron(number)


# ------------------------------------------------------------------------------ clocks that change

PARIS = "Europe/Paris"  # 2026: forward on 29 March at 01:00 UTC, back on 25 October at 01:00 UTC
NEW_YORK = "America/New_York"  # forward on 8 March at 07:00 UTC, back on 1 November at 06:00 UTC
LORD_HOWE = (
    "Australia/Lord_Howe"  # by half an hour: back on 4 April 15:00 UTC, forward 3 October 15:30
)


@pytest.mark.parametrize(
    ("zone", "expression", "span", "expected"),
    [
        # Forward: 2:00 to 3:00 is skipped.
        (PARIS, "30 2 * * *", "03-28 12:00 03-30 12:00", "03-29 01:00 03-30 00:30"),
        (PARIS, "0 30 2 * * *", "03-28 12:00 03-30 12:00", "03-29 01:00 03-30 00:30"),
        (PARIS, "0 2 * * *", "03-28 12:00 03-30 12:00", "03-29 01:00 03-30 00:00"),
        (PARIS, "0 3 * * *", "03-28 12:00 03-30 12:00", "03-29 01:00 03-30 01:00"),
        (PARIS, "59 1 * * *", "03-28 12:00 03-30 12:00", "03-29 00:59 23:59"),
        (PARIS, "*/30 2 * * *", "03-28 12:00 03-30 00:00", "03-29 01:00 03-30 00:00"),
        (PARIS, "0 2,3 * * *", "03-28 12:00 03-30 00:00", "03-29 01:00 03-30 00:00"),
        (PARIS, "* * 2 * * *", "03-28 12:00 03-30 00:00", "03-29 01:00 03-30 00:00"),
        (PARIS, "0 */2 * * *", "03-28 22:59 03-29 04:00", "03-28 23:00 03-29 01:00 02:00 04:00"),
        (PARIS, "*/30 * * * *", "03-29 00:00 02:00", "03-29 00:30 01:00 01:30 02:00"),
        (PARIS, "15 * * * *", "03-28 23:30 03-29 02:30", "03-29 00:15 01:15 02:15"),
        (NEW_YORK, "30 2 * * *", "03-07 12:00 03-09 12:00", "03-08 07:00 03-09 06:30"),
        (NEW_YORK, "30 1 * * *", "03-07 12:00 03-09 12:00", "03-08 06:30 03-09 05:30"),
        (NEW_YORK, "*/30 * * * *", "03-08 06:00 08:00", "03-08 06:30 07:00 07:30 08:00"),
        (LORD_HOWE, "15 2 * * *", "10-03 12:00 10-04 23:00", "10-03 15:30 10-04 15:15"),
        (LORD_HOWE, "0,15,30 2 * * *", "10-03 12:00 10-04 15:00", "10-03 15:30 10-04 15:00"),
        (LORD_HOWE, "30 2 * * *", "10-03 12:00 10-04 23:00", "10-03 15:30 10-04 15:30"),
        (LORD_HOWE, "*/30 * * * *", "10-03 14:30 16:30", "10-03 15:00 15:30 16:00 16:30"),
        (LORD_HOWE, "0 * * * *", "10-03 14:00 17:00", "10-03 14:30 16:00 17:00"),
        # Back: in Paris 2:00 to 3:00 is repeated, in New York 1:00 to 2:00.
        (PARIS, "30 2 * * *", "10-24 12:00 10-26 12:00", "10-25 00:30 10-26 01:30"),
        (PARIS, "0 30 2 * * *", "10-24 12:00 10-26 12:00", "10-25 00:30 10-26 01:30"),
        (PARIS, "30 2 * * *", "10-25 01:10 10-26 12:00", "10-26 01:30"),  # the second 2:10
        (PARIS, "0 3 * * *", "10-24 12:00 10-26 12:00", "10-25 02:00 10-26 02:00"),
        (PARIS, "*/30 2 * * *", "10-24 12:00 10-26 01:00", "10-25 00:00 00:30 10-26 01:00"),
        (PARIS, "0 */2 * * *", "10-24 22:00 10-25 05:00", "10-25 00:00 03:00 05:00"),
        (PARIS, "*/30 * * * *", "10-24 23:30 10-25 02:00", "10-25 00:00 00:30 01:00 01:30 02:00"),
        (PARIS, "15 * * * *", "10-24 23:30 10-25 02:30", "10-25 00:15 01:15 02:15"),
        (NEW_YORK, "30 1 * * *", "10-31 12:00 11-02 12:00", "11-01 05:30 11-02 06:30"),
        (NEW_YORK, "30 2 * * *", "10-31 12:00 11-02 12:00", "11-01 07:30 11-02 07:30"),
        (NEW_YORK, "*/30 * * * *", "11-01 05:00 07:00", "11-01 05:30 06:00 06:30 07:00"),
        (LORD_HOWE, "45 1 * * *", "04-04 12:00 04-05 23:00", "04-04 14:45 04-05 15:15"),
        (LORD_HOWE, "30 2 * * *", "04-04 12:00 04-05 23:00", "04-04 16:00 04-05 16:00"),
        (LORD_HOWE, "*/30 * * * *", "04-04 14:00 16:00", "04-04 14:30 15:00 15:30 16:00"),
        (LORD_HOWE, "45 * * * *", "04-04 14:00 17:00", "04-04 14:45 15:15 16:15"),
        # At midnight, over midnight, and a whole day.
        (
            "America/Sao_Paulo",
            "0 0 * * *",
            "2018-11-03 12:00 2018-11-05 12:00",
            "2018-11-04 03:00 2018-11-05 02:00",
        ),
        (
            "America/St_Johns",
            "*/30 * * * *",
            "2010-11-07 02:00 04:00",
            "2010-11-07 02:30 03:00 03:30 04:00",
        ),
        (
            "Pacific/Apia",
            "0 9 * * *",
            "2011-12-29 00:00 2012-01-01 00:00",
            "2011-12-29 19:00 2011-12-30 10:00 19:00 2011-12-31 19:00",
        ),
    ],
)
def test_clocks_that_change(zone: str, expression: str, span: str, expected: str) -> None:
    after, until = moments(span)
    assert between(Cron(expression, tz=zone), after, until) == list(moments(expected))


def test_looking_back_over_a_midnight_that_is_repeated() -> None:
    """The clock went back from 0:01, at 02:31 UTC, and shows 23:20 of the day before again."""
    hourly = Cron("0 * * * *", tz="America/St_Johns")
    assert hourly.last_until(ms(utc("2010-11-07 02:50"))) == ms(utc("2010-11-07 02:30"))


def moments(text: str) -> Iterator[datetime]:
    """Times in UTC, each on the day that was last named before it."""
    day = ""
    for word in text.split():
        if "-" in word:
            day = word
        else:
            yield utc(f"{day} {word}")


# ------------------------------------------------------------------ compared with a walk by minutes


class Field(NamedTuple):
    """A field as it is written, and the numbers it stands for."""

    text: str
    numbers: frozenset[int]


class Fields(NamedTuple):
    minute: Field
    hour: Field
    monthday: Field
    weekday: Field

    def match(self, local: datetime) -> bool:
        return (
            local.minute in self.minute.numbers
            and local.hour in self.hour.numbers
            and self._match_day(local)
        )

    def _match_day(self, local: datetime) -> bool:
        of_month = local.day in self.monthday.numbers
        of_week = local.isoweekday() % 7 in self.weekday.numbers
        if self.monthday.text.startswith("*") or self.weekday.text.startswith("*"):
            return of_month and of_week
        return of_month or of_week


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> Field:
    kind = draw(st.sampled_from(["all", "all", "list", "range", "step"]))
    if kind == "list":
        numbers = draw(st.frozensets(st.integers(low, high), min_size=1, max_size=4))
        return Field(",".join(map(str, numbers)), numbers)
    step = draw(st.integers(1, high - low)) if kind == "step" else 1
    if kind == "range" or draw(st.booleans()):
        first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
        written = f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"
        return Field(written, frozenset(range(first, last + 1, step)))
    written = "*" if step == 1 else f"*/{step}"
    return Field(written, frozenset(range(low, high + 1, step)))


all_fields = st.builds(Fields, fields(0, 59), fields(0, 23), fields(1, 31), fields(0, 6))

#: A zone and a day around which its clock changes, or does not.
PLACES = [
    ("UTC", "2026-02-27"),
    (PARIS, "2026-03-29"),
    (PARIS, "2026-10-25"),
    (NEW_YORK, "2026-03-08"),
    (NEW_YORK, "2026-11-01"),
    (LORD_HOWE, "2026-10-04"),
    (LORD_HOWE, "2026-04-05"),
    ("America/Havana", "2026-03-08"),  # forward from midnight
    ("America/Havana", "2026-11-01"),  # back to midnight
    ("America/Nuuk", "2026-10-25"),  # back from midnight
    ("America/St_Johns", "2010-11-07"),  # back from one minute past midnight
    ("America/St_Johns", "2010-03-14"),
    ("Antarctica/Troll", "2026-03-29"),  # by two hours
    ("Antarctica/Troll", "2026-10-25"),
    ("Pacific/Apia", "2011-12-30"),  # a day that never was
    ("Asia/Kathmandu", "2026-05-01"),
]
MINUTE = timedelta(minutes=1)


class Walk(NamedTuple):
    """A day and the evening before it, minute by minute."""

    shown: list[tuple[datetime, datetime]]  # (instant, what the clock shows)
    single: list[tuple[datetime, datetime]]  # (instant, a local time), every local time once


@lru_cache
def walk(zone: str, day: str) -> Walk:
    place, midnight = ZoneInfo(zone), datetime.fromisoformat(day)
    start = midnight.replace(tzinfo=place).astimezone(UTC) - timedelta(hours=6)
    instants = [start + n * MINUTE for n in range(24 * 60)]
    local = [midnight + n * MINUTE for n in range(-12 * 60, 60 * 60)]
    return Walk(
        [(instant, instant.astimezone(place)) for instant in instants],
        [(first_shown(time, place), time) for time in local],
    )


def first_shown(local: datetime, place: ZoneInfo) -> datetime:
    """The instant of a local time; for one that is skipped, of the first one that is not."""
    while True:
        instant = local.replace(tzinfo=place).astimezone(UTC)
        if instant.astimezone(place).replace(tzinfo=None) == local:
            return instant
        local += MINUTE


@given(all_fields, st.sampled_from(PLACES))
def test_a_walk_by_minutes_finds_the_same(fields: Fields, place: tuple[str, str]) -> None:
    zone, day = place
    shown, single = walk(zone, day)
    pairs = shown if len(fields.hour.numbers) == 24 else single
    first, last = shown[0][0], shown[-1][0]
    expected = {at for at, local in pairs if fields.match(local) and first < at <= last}
    minute, hour, monthday, weekday = (field.text for field in fields)
    cron = Cron(f"{minute} {hour} {monthday} * {weekday}", tz=zone)
    assert between(cron, first, last) == sorted(expected)
    assert list(backwards(cron, first, last)) == sorted(expected, reverse=True)


def backwards(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    at_ms = cron.last_until(ms(until))
    while at_ms is not None and at_ms > ms(after):
        yield datetime.fromtimestamp(at_ms / 1_000, UTC)
        at_ms = cron.last_until(at_ms - 1)


instants_ms = st.integers(ms(utc("2020-01-01")), ms(utc("2040-01-01")))
zones = st.sampled_from(sorted({zone for zone, _ in PLACES}))


@given(all_fields, st.one_of(st.none(), fields(0, 59)), zones, instants_ms)
def test_occurrences_only_go_forward(
    fields: Fields, seconds: Field | None, zone: str, instant_ms: int
) -> None:
    second = "" if seconds is None else seconds.text
    minute, hour, monthday, weekday = (field.text for field in fields)
    cron = Cron(f"{second} {minute} {hour} {monthday} * {weekday}", tz=zone)
    at_ms = instant_ms
    for _ in range(5):
        found_ms = cron.next_after(at_ms)
        assert found_ms is not None
        assert found_ms > at_ms
        assert cron.next_after(found_ms - 1) == found_ms
        assert cron.last_until(found_ms) == found_ms
        before_ms = cron.last_until(found_ms - 1)
        assert before_ms is not None
        assert before_ms <= at_ms
        assert cron.next_after(before_ms) == found_ms
        at_ms = found_ms


# ----------------------------------------------------------------------- compared with another cron

WORDS = {
    "second": ["0", "*", "*/7", "5-50/5", "1,59"],
    "minute": ["0", "*", "*/30", "10-20", "7,23,59", "5/20"],
    "hour": ["0", "*", "*/6", "9-17", "3,23", "20/2"],
    "monthday": ["*", "1", "L", "LW", "13,L", "*/10", "10-20/3", "29", "31"],
    "month": ["*", "2", "JAN,DEC", "4-9", "*/5", "FEB"],
    "weekday": ["*", "MON-FRI", "5L", "TUE#5", "0", "7", "1#1,3#3", "*/2", "1/3", "5-7"],
}


def test_another_cron_finds_the_same() -> None:
    chance = random.Random(5)
    for _ in range(400):
        expression = " ".join(chance.choice(words) for words in WORDS.values())
        start = YEAR_2026 + timedelta(seconds=chance.randrange(10**8))
        assert ours(expression, start) == theirs(expression, start), expression


def ours(expression: str, start: datetime) -> list[int]:
    try:
        return list(islice(Cron(expression).upcoming(ms(start)), 4))
    except ValueError:
        return []


def theirs(expression: str, start: datetime) -> list[int]:
    try:
        return [ms(moment) for moment in islice(CronSim(expression, start), 4)]
    except CronSimError:
        return []

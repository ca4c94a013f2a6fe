"""Time zones: their names, and the stretches of a day."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from zoneinfo import ZoneInfo

import pytest

from windlass.core.schedules.time_zones import (
    DayPart,
    day_of,
    local_day,
    offset_s,
    start_of,
    zone_named,
)

HOUR_S = 3600
PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("Europe/Pris", "Did you mean 'Europe/Paris'"),
        ("europe/paris", "Did you mean 'Europe/Paris'"),
        ("Paris", "Did you mean 'Europe/Paris'"),
        ("new york", "Did you mean 'America/New_York'"),
        ("Austrlia/Lord_Howe", "Did you mean 'Australia/Lord_Howe'"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(name: str, question: str) -> None:
    with pytest.raises(ValueError, match=question):
        zone_named(name)


@pytest.mark.parametrize(
    "name",
    ["", "+02:00", "Mars/Olympus", "../etc/passwd", "localtime", "right/UTC", "posix/UTC", "a\0b"],
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="tz must be the name of a time zone such as"):
        zone_named(name)


def test_the_folder_of_zones_is_refused() -> None:
    with pytest.raises(ValueError, match="found 'Europe'"):
        zone_named("Europe")


def test_days_and_seconds() -> None:
    assert start_of(date(1970, 1, 2)) == 24 * HOUR_S
    assert day_of(24 * HOUR_S) == date(1970, 1, 2)
    assert day_of(24 * HOUR_S - 1) == date(1970, 1, 1)


def test_an_offset_is_counted_to_the_east() -> None:
    assert offset_s(PARIS, start_of(date(2026, 1, 1))) == HOUR_S
    assert offset_s(ZoneInfo("America/New_York"), start_of(date(2026, 1, 1))) == -5 * HOUR_S


def test_an_ordinary_day_is_one_stretch() -> None:
    start_s = start_of(date(2026, 7, 1))
    expected = (DayPart(start_s, start_s + 24 * HOUR_S, 2 * HOUR_S),)
    assert local_day(PARIS, date(2026, 7, 1), repeat=True) == expected
    assert local_day(PARIS, date(2026, 7, 1), repeat=False) == expected


def test_the_day_before_a_change_is_an_ordinary_one() -> None:
    start_s = start_of(date(2026, 3, 28))
    expected = (DayPart(start_s, start_s + 24 * HOUR_S, HOUR_S),)
    assert local_day(PARIS, date(2026, 3, 28), repeat=False) == expected


def test_a_day_of_23_hours() -> None:
    start_s = start_of(date(2026, 3, 29))
    two, three, end = (start_s + hour * HOUR_S for hour in (2, 3, 24))
    morning, rest = DayPart(start_s, two, HOUR_S), DayPart(three, end, 2 * HOUR_S)
    gap = DayPart(two, three, 2 * HOUR_S, start_s + HOUR_S)
    assert local_day(PARIS, date(2026, 3, 29), repeat=True) == (morning, rest)
    assert local_day(PARIS, date(2026, 3, 29), repeat=False) == (morning, gap, rest)


def test_a_day_of_25_hours() -> None:
    start_s = start_of(date(2026, 10, 25))
    two, three, end = (start_s + hour * HOUR_S for hour in (2, 3, 24))
    morning = DayPart(start_s, three, 2 * HOUR_S)
    assert local_day(PARIS, date(2026, 10, 25), repeat=True) == (morning, DayPart(two, end, HOUR_S))
    assert local_day(PARIS, date(2026, 10, 25), repeat=False) == (
        morning,
        DayPart(three, end, HOUR_S),
    )


def test_zones_are_not_loaded_before_they_are_needed() -> None:
    # Loading them takes a quarter of the time that `import windlass` may take.
    program = "import sys, windlass.core.schedules.occurrences; print('zoneinfo' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"

"""Schedules as values: intervals, bounds, what is refused, and how they are written down."""

from __future__ import annotations

import copy
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.schedules.triggers import LAST_MS, MAX_CATCH_UP, All, Cron, Every, Schedule
from windlass.errors import DecodeError, NewerFormat

HOUR_MS = 3_600_000
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)
EARLY = datetime(1960, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NOON_MS = round(NOON.timestamp() * 1_000)

intervals_ms = st.integers(1_000, 400 * 24 * HOUR_MS)
instants_ms = st.integers(0, 10**13)


def span(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


# ---------------------------------------------------------------------------------------- intervals


def test_intervals_are_counted_from_1970() -> None:
    assert list(islice(Every("10m").upcoming(NOON_MS), 2)) == [
        NOON_MS + 600_000,
        NOON_MS + 1_200_000,
    ]
    assert Every("1d").next_after(0) == 24 * HOUR_MS
    assert Every("1h").next_after(-5) == 0


def test_intervals_are_counted_from_their_start() -> None:
    every = Every("7h", start=NOON)
    assert list(islice(every.upcoming(0), 3)) == [
        NOON_MS,
        NOON_MS + 7 * HOUR_MS,
        NOON_MS + 14 * HOUR_MS,
    ]
    assert every.last_until(NOON_MS - 1) is None
    assert every.last_until(NOON_MS + 7 * HOUR_MS - 1) == NOON_MS


def test_daylight_saving_time_is_nothing_to_intervals() -> None:
    change_ms = round(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp() * 1_000)
    around = list(islice(Every("30m").upcoming(change_ms - HOUR_MS), 4))
    assert [at_ms - change_ms for at_ms in around] == [-1_800_000, 0, 1_800_000, 3_600_000]


@given(intervals_ms, instants_ms, st.one_of(st.none(), instants_ms))
def test_intervals_only_go_forward(interval_ms: int, instant_ms: int, start_ms: int | None) -> None:
    start = None if start_ms is None else datetime(1970, 1, 1, tzinfo=UTC) + span(start_ms)
    every = Every(span(interval_ms), start=start)
    first, second = islice(every.upcoming(instant_ms), 2)
    assert instant_ms < first
    assert second - first == interval_ms
    assert (first - (start_ms or 0)) % interval_ms == 0
    assert first - instant_ms <= max(interval_ms, (start_ms or 0) - instant_ms)
    assert every.last_until(first) == every.last_until(second - 1) == first


# ------------------------------------------------------------------------------------------- bounds


def test_nothing_before_the_start_and_nothing_after_the_end() -> None:
    hourly = Cron("0 * * * *", start=NOON, end=NOON + timedelta(hours=2))
    inside = [NOON_MS, NOON_MS + HOUR_MS, NOON_MS + 2 * HOUR_MS]
    assert list(hourly.upcoming(0)) == inside
    assert hourly.next_after(NOON_MS + 2 * HOUR_MS) is None
    assert hourly.last_until(NOON_MS - 1) is None
    assert hourly.last_until(NOON_MS + 100 * HOUR_MS) == inside[-1]


def test_a_start_between_two_occurrences() -> None:
    hourly = Cron("0 * * * *", start=NOON + timedelta(minutes=30))
    assert hourly.last_until(NOON_MS + HOUR_MS - 1) is None
    assert hourly.next_after(0) == hourly.last_until(NOON_MS + HOUR_MS) == NOON_MS + HOUR_MS


def test_an_interval_ends() -> None:
    assert list(Every("1h", start=NOON, end=NOON + timedelta(minutes=90)).upcoming(0)) == [
        NOON_MS,
        NOON_MS + HOUR_MS,
    ]


@pytest.mark.parametrize("schedule", [Cron("* * * * *"), Every("1m"), Cron("0 0 29 2 *")])
def test_time_is_finite(schedule: Schedule) -> None:
    for instant_ms in (LAST_MS, 10**17):
        assert schedule.next_after(instant_ms) is None
        assert schedule.last_until(instant_ms) == schedule.last_until(LAST_MS)
    for instant_ms in (-1, -(10**17)):
        assert schedule.last_until(instant_ms) is None
        assert schedule.next_after(instant_ms) == schedule.next_after(-1)


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start": NAIVE}, "start must be a datetime with a time zone, found the naive"),
        ({"end": NAIVE}, "end must be a datetime with a time zone, found the naive"),
        ({"end": EARLY}, "end must be between 1970 and 9998, found 1960"),
        ({"start": NOON, "end": NOON - SECOND}, "an occurrence between its start and its end"),
        ({"start": NOON + SECOND, "end": NOON + 2 * SECOND}, "found none in Cron"),
        ({"jitter": "-1s"}, "jitter must be seconds as a number"),
        ({"missed": "all"}, r'missed must be "skip", "once" or All\(limit\), found \'all\''),
        ({"missed": 3}, "missed must be .*, found 3"),
        ({"missed": []}, r"missed must be .*, found \[\]"),
        ({"overlap": "queue"}, 'overlap must be one of "allow", "skip", .*; found \'queue\''),
        ({"overlap": None}, "overlap must be one of .*; found None"),
        ({"tz": "Europe/Pariss"}, "found 'Europe/Pariss'. Did you mean 'Europe/Paris'?"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cron("0 3 * * *", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start": "2026-01-01"}, "start must be a datetime with a time zone, found str"),
        ({"tz": timezone(timedelta(hours=2))}, "tz must be the name of a time zone such as"),
        ({"tz": 2}, "tz must be the name of a time zone such as"),
        ({"jitter": True}, "jitter must be .*, found a bool"),
    ],
)
def test_options_of_the_wrong_kind(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Cron("0 3 * * *", **options)


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ("999ms", "the interval must be at least 1s, found '999ms'"),
        (0, "the interval must be at least 1s, found 0"),
        ("soon", "the interval must be seconds as a number, .* found 'soon'"),
    ],
)
def test_intervals_that_make_no_sense(interval: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Every(interval)


def test_jitter_is_no_longer_than_the_interval() -> None:
    Every("10m", jitter="10m")
    with pytest.raises(ValueError, match="jitter must be at most the interval, 10m, found 11m"):
        Every("10m", jitter="11m")


@pytest.mark.parametrize("limit", [0, MAX_CATCH_UP + 1, 2.5, True, "3"])
def test_a_limit_is_a_whole_number(limit: Any) -> None:
    with pytest.raises(ValueError, match=f"must be a whole number from 1 to 1000, found {limit!r}"):
        All(limit)


# ------------------------------------------------------------------------------------------- zones


def test_a_zone_may_be_given_as_one() -> None:
    assert Cron("@daily", tz=ZoneInfo("Europe/Paris")) == Cron("@daily", tz="Europe/Paris")


def test_without_a_zone_it_is_that_of_the_app() -> None:
    options: Any = {"start": NOON, "jitter": "1m", "missed": All(3), "overlap": "skip"}
    placed = Cron("0 3 * * *", **options).in_zone("Europe/Paris")
    assert placed == Cron("0 3 * * *", tz="Europe/Paris", **options)
    assert placed.in_zone("Asia/Tokyo") == placed
    assert Cron("0 3 * * *").next_after(0) == 3 * HOUR_MS
    with pytest.raises(ValueError, match="Did you mean 'Europe/Paris'"):
        Cron("0 3 * * *").in_zone("Europe/Pari")


# -------------------------------------------------------------------------------- equal and written

SCHEDULES = [
    Cron("0 3 * * *"),
    Cron("0 3 * * *", tz="UTC"),
    Cron("0 3 * * *", tz="Europe/Paris"),
    Cron("1 0 3 * * FRI#2"),
    Cron("@daily", missed="skip"),
    Cron("@daily", missed=All(10), overlap="cancel_previous"),
    Cron("@daily", start=NOON, end=NOON + timedelta(days=30), jitter="90s"),
    Every("10m"),
    Every("10m", jitter="1500ms", overlap="queue_one"),
    Every("36h", start=NOON, missed=All(1), overlap="skip"),
    Every("1500ms", end=NOON),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_stored_schedule_comes_back(schedule: Schedule) -> None:
    stored = json.loads(json.dumps(schedule.to_data()))
    assert stored["version"] == 1
    assert Schedule.from_data(stored) == schedule


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_schedule_is_written_as_it_is_made(schedule: Schedule) -> None:
    names = {"datetime": __import__("datetime"), "Cron": Cron, "Every": Every, "All": All}
    assert eval(repr(schedule), names) == schedule  # noqa: S307  # of a text that we wrote


def test_no_two_of_them_are_equal() -> None:
    assert len(set(SCHEDULES)) == len(SCHEDULES)
    assert len({json.dumps(schedule.to_data()) for schedule in SCHEDULES}) == len(SCHEDULES)


def test_the_same_words_make_equal_schedules() -> None:
    assert Cron(" 0  0 * jan mon ") == Cron("0 0 * JAN MON")
    assert hash(Cron("@Daily")) == hash(Cron("@daily"))
    assert Every("60m") == Every(3600) == Every(timedelta(hours=1))
    assert copy.deepcopy(Every("1h")) == Every("1h")


def test_a_schedule_never_changes() -> None:
    for name in ("missed", "expression"):
        with pytest.raises(AttributeError):
            setattr(Cron("@daily"), name, "skip")


def test_stored_data_is_what_it_was() -> None:
    """Bytes that lie in engines: a change here needs a new version."""
    paris = Cron("0 3 * * *", tz="Europe/Paris", start=NOON, jitter="30s", missed=All(10))
    assert paris.to_data() == {
        "version": 1,
        "cron": "0 3 * * *",
        "tz": "Europe/Paris",
        "start_ms": NOON_MS,
        "jitter_ms": 30_000,
        "missed": 10,
        "overlap": "allow",
    }
    assert Every("10m", end=NOON, overlap="skip").to_data() == {
        "version": 1,
        "every_ms": 600_000,
        "end_ms": NOON_MS,
        "missed": "once",
        "overlap": "skip",
    }


def test_a_newer_format_is_refused_as_such() -> None:
    with pytest.raises(NewerFormat, match="in format 2; this one reads up to 1") as caught:
        Schedule.from_data({"version": 2, "lunar": "full"})
    assert (caught.value.found, caught.value.supported) == (2, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": None},
        {"every_ms": 1_000},
        {"cron": None},
        {"cron": "0 0 31 2 *"},
        {"tz": "Mars/Olympus"},
        {"missed": 0},
        {"missed": "never"},
        {"overlap": "maybe"},
        {"start_ms": -1},
        {"end_ms": LAST_MS + 1},
        {"jitter_ms": -1},
        {"unknown": 1},
    ],
    ids=repr,
)
def test_what_is_no_stored_schedule_is_refused(change: dict[str, object]) -> None:
    data = Cron("0 3 * * *", tz="Europe/Paris").to_data() | change
    with pytest.raises(DecodeError, match="this is not a stored schedule: "):
        Schedule.from_data(data)


def test_an_interval_has_no_zone() -> None:
    with pytest.raises(DecodeError, match="or every_ms alone"):
        Schedule.from_data(Every("1h").to_data() | {"tz": "UTC"})


def test_a_schedule_in_words() -> None:
    assert Cron("0 3 * * *", tz="Europe/Paris").describe() == "cron 0 3 * * * in Europe/Paris"
    assert Cron("@daily").describe() == "cron @daily in UTC"
    full = Every(
        "90m", start=NOON, end=NOON + timedelta(days=1), jitter="1m", missed="skip", overlap="skip"
    )
    assert full.describe() == (
        "every 1h30m, from 2026-11-01T12:00:00Z, until 2026-11-02T12:00:00Z, up to 1m later, "
        "missed runs skipped, skipped while an earlier run is not finished"
    )
    assert re.search("missed runs made up, 5 at most", Every("1h", missed=All(5)).describe())

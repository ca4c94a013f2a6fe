"""Due occurrences after an outage, the ids of occurrences, and jitter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.ids import created_ms_of, partition_of
from windlass.core.schedules.occurrences import (
    ON_TIME_MS,
    Due,
    due,
    next_after_change,
    occurrence_id,
    run_ms,
)
from windlass.core.schedules.triggers import MAX_CATCH_UP, All, Cron, Every, Missed, Schedule

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1_000)


def schedules(text: str, missed: Missed) -> Schedule:
    return Cron(text, missed=missed) if " " in text else Every(text, missed=missed)


# ------------------------------------------------------------------------------- nothing was missed


def test_nothing_is_due_before_its_time() -> None:
    assert due(Every("1h"), NOON_MS, NOON_MS - 1) == Due(next_ms=NOON_MS)


def test_what_is_due_is_due_at_its_time() -> None:
    assert due(Every("1h"), NOON_MS, NOON_MS) == Due(
        occurrences=(NOON_MS,), next_ms=NOON_MS + HOUR_MS
    )


def test_a_clock_that_was_put_back_makes_nothing_due_again() -> None:
    later = due(Every("1h"), NOON_MS, NOON_MS)
    assert later.next_ms is not None
    assert due(Every("1h"), later.next_ms, NOON_MS - DAY_MS) == Due(next_ms=later.next_ms)


@pytest.mark.parametrize("missed", ["skip", "once", All(1)])
@pytest.mark.parametrize("text", ["1s", "* * * * * *"])
def test_a_short_pause_costs_nothing(text: str, missed: Missed) -> None:
    found = due(schedules(text, missed), NOON_MS, NOON_MS + ON_TIME_MS)
    expected = tuple(range(NOON_MS, NOON_MS + ON_TIME_MS + 1, SECOND_MS))
    assert found == Due(occurrences=expected, next_ms=NOON_MS + ON_TIME_MS + SECOND_MS)


@pytest.mark.parametrize("missed", ["skip", "once", All(1)])
def test_after_a_longer_one_the_policy_decides(missed: Missed) -> None:
    found = due(Every("1s", missed=missed), NOON_MS, NOON_MS + ON_TIME_MS + 1)
    assert found.occurrences == (NOON_MS + ON_TIME_MS,)
    assert found.skipped_ms == (NOON_MS, NOON_MS + ON_TIME_MS - SECOND_MS)


def test_the_end_of_a_schedule() -> None:
    last = Every("1h", start=NOON, end=NOON)
    assert due(last, NOON_MS, NOON_MS) == Due(occurrences=(NOON_MS,), next_ms=None)
    assert due(last, NOON_MS + 1, NOON_MS + HOUR_MS) == Due(next_ms=None)
    assert due(last, NOON_MS, NOON_MS + DAY_MS) == Due(occurrences=(NOON_MS,), next_ms=None)


def test_an_instant_of_an_earlier_schedule_is_passed_over() -> None:
    assert due(Every("1h"), NOON_MS - 5, NOON_MS - 2) == Due(next_ms=NOON_MS)
    assert due(Every("1h"), NOON_MS - 5, NOON_MS).occurrences == (NOON_MS,)


# ------------------------------------------------------------------------------- down for six hours


@pytest.mark.parametrize(
    ("text", "late_ms", "missed", "count"),
    [
        # Down from noon until half past six: 12:00 to 18:00 is seven runs.
        ("1h", 30 * MINUTE_MS, "skip", 0),
        ("1h", 30 * MINUTE_MS, "once", 1),
        ("1h", 30 * MINUTE_MS, All(10), 7),
        ("1h", 30 * MINUTE_MS, All(3), 3),
        ("0 * * * *", 30 * MINUTE_MS, "skip", 0),
        ("0 * * * *", 30 * MINUTE_MS, "once", 1),
        ("0 * * * *", 30 * MINUTE_MS, All(10), 7),
        ("0 * * * *", 30 * MINUTE_MS, All(3), 3),
        # Back at six o'clock sharp: that run is on time.
        ("1h", 0, "skip", 1),
        ("1h", ON_TIME_MS, "skip", 1),
        ("1h", ON_TIME_MS + 1, "skip", 0),
        ("1h", 0, "once", 1),
        ("1h", 0, All(10), 7),
        ("*/10 * * * *", MINUTE_MS, "skip", 0),
        ("*/10 * * * *", MINUTE_MS, "once", 1),
        ("*/10 * * * *", MINUTE_MS, All(10), 10),
        ("*/10 * * * *", MINUTE_MS, All(1_000), 37),
        ("1s", 0, "skip", 1),
        ("1s", 0, "once", 1),
        ("1s", 0, All(10), 10),
    ],
)
def test_down_for_six_hours(text: str, late_ms: int, missed: Missed, count: int) -> None:
    schedule, now_ms = schedules(text, missed), NOON_MS + 6 * HOUR_MS + late_ms
    found = due(schedule, NOON_MS, now_ms)
    assert len(found.occurrences) == count
    assert list(found.occurrences) == sorted(set(found.occurrences))
    newest = schedule.last_until(now_ms)
    assert not count or found.occurrences[-1] == newest
    assert found.next_ms == schedule.next_after(now_ms)
    first_kept_ms = found.occurrences[0] if found.occurrences else now_ms
    left_out = [at_ms for at_ms in between(schedule, NOON_MS, now_ms) if at_ms < first_kept_ms]
    assert found.skipped_ms == ((left_out[0], left_out[-1]) if left_out else None)


def between(schedule: Schedule, first_ms: int, last_ms: int) -> list[int]:
    found = []
    for at_ms in schedule.upcoming(first_ms - 1):
        if at_ms > last_ms:
            break
        found.append(at_ms)
    return found


def test_down_over_a_change_of_the_clock() -> None:
    nightly = Cron("30 2 * * *", tz="Europe/Paris", missed=All(10))
    saturday_ms = round(datetime(2026, 3, 28, 1, 30, tzinfo=UTC).timestamp() * 1_000)
    found = due(nightly, saturday_ms, saturday_ms + 3 * DAY_MS)
    offsets = [at_ms - saturday_ms for at_ms in found.occurrences]
    assert offsets == [0, DAY_MS - HOUR_MS // 2, 2 * DAY_MS - HOUR_MS, 3 * DAY_MS - HOUR_MS]


@pytest.mark.parametrize("missed", ["skip", "once", All(MAX_CATCH_UP)])
@pytest.mark.parametrize("text", ["1s", "* * * * * *"])
def test_years_of_seconds_are_not_counted_one_by_one(text: str, missed: Missed) -> None:
    schedule, began = schedules(text, missed), perf_counter()
    found = due(schedule, 0, NOON_MS)  # 56 years, or 1.8 billion occurrences
    assert perf_counter() - began < 1
    assert len(found.occurrences) == (missed.limit if isinstance(missed, All) else 1)
    assert found.occurrences[-1] == NOON_MS
    assert found.skipped_ms == (0, found.occurrences[0] - SECOND_MS)


policies = st.one_of(st.sampled_from(["skip", "once"]), st.builds(All, st.integers(1, 20)))
texts = st.sampled_from(["1s", "7s", "10m", "1h", "0 3 * * *", "*/30 * * * *", "*/20 * * * * *"])


@given(texts, policies, st.lists(st.integers(0, 3 * HOUR_MS), min_size=1, max_size=12))
def test_no_occurrence_is_due_twice(text: str, missed: Missed, pauses_ms: list[int]) -> None:
    schedule, now_ms = schedules(text, missed), NOON_MS
    next_ms = schedule.next_after(now_ms)
    seen: list[int] = []
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        assert next_ms is not None
        found = due(schedule, next_ms, now_ms)
        for at_ms in found.occurrences:
            assert next_ms <= at_ms <= now_ms
            assert schedule.last_until(at_ms) == at_ms
        assert found.next_ms is not None
        assert found.next_ms > now_ms
        seen += found.occurrences
        next_ms = found.next_ms
    assert seen == sorted(set(seen))


@given(texts, policies, st.lists(st.integers(0, ON_TIME_MS - SECOND_MS), max_size=30))
def test_none_is_left_out_by_those_who_look_in_time(
    text: str, missed: Missed, pauses_ms: list[int]
) -> None:
    schedule, now_ms = schedules(text, missed), NOON_MS
    next_ms = schedule.next_after(now_ms)
    seen: list[int] = []
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        assert next_ms is not None
        found = due(schedule, next_ms, now_ms)
        assert found.skipped_ms is None
        seen += found.occurrences
        next_ms = found.next_ms
    assert seen == between(schedule, NOON_MS + 1, now_ms)


# ----------------------------------------------------------------------------------------- a change


def test_a_changed_schedule_begins_now() -> None:
    assert next_after_change(Every("10m"), NOON_MS + DAY_MS, NOON_MS) == NOON_MS + 10 * MINUTE_MS
    assert next_after_change(Every("10m"), None, NOON_MS) == NOON_MS + 10 * MINUTE_MS


def test_a_change_at_the_last_moment_loses_nothing() -> None:
    """Noon was due and not yet enqueued when the schedule was changed a moment later."""
    assert next_after_change(Every("10m"), NOON_MS, NOON_MS + 200) == NOON_MS
    assert next_after_change(Every("10m"), NOON_MS, NOON_MS - 200) == NOON_MS


# ----------------------------------------------------------------------------------- ids and jitter


def test_the_id_of_an_occurrence_is_derived() -> None:
    one = occurrence_id("clean_up", NOON_MS, 7)
    assert one == occurrence_id("clean_up", NOON_MS, 7)
    assert created_ms_of(one) == NOON_MS
    assert partition_of(one) == 7
    others = {
        occurrence_id("clean_up", NOON_MS + 1, 7)[12:],
        occurrence_id("clean_up2", NOON_MS, 7)[12:],
        occurrence_id("clean_u", NOON_MS, 7)[12:],
    }
    assert len(others | {one[12:]}) == 4


def test_the_id_of_an_occurrence_never_changes() -> None:
    """Two versions of windlass that run side by side must derive the same ids."""
    assert occurrence_id("clean_up", NOON_MS) == "01m6bfp5g000t57r8mw99d8ajc"


def test_without_jitter_a_run_starts_at_its_time() -> None:
    assert run_ms(Every("1h"), "clean_up", NOON_MS) == NOON_MS


@given(st.integers(1, HOUR_MS), st.text(max_size=20), st.integers(0, 10**13))
def test_jitter_only_delays(jitter_ms: int, name: str, at_ms: int) -> None:
    schedule = Every("1h", jitter=timedelta(milliseconds=jitter_ms))
    start_ms = run_ms(schedule, name, at_ms)
    assert at_ms <= start_ms <= at_ms + jitter_ms
    assert start_ms == run_ms(schedule, name, at_ms)


def test_jitter_spreads_names_and_occurrences() -> None:
    schedule = Every("1h", jitter="100ms")
    by_name = {run_ms(schedule, f"task{n}", NOON_MS) - NOON_MS for n in range(3_000)}
    by_time = {run_ms(schedule, "task", at_ms) - at_ms for at_ms in range(3_000)}
    assert by_name == by_time == set(range(101))


def test_jitter_never_changes() -> None:
    assert run_ms(Every("1h", jitter="1h"), "clean_up", NOON_MS) - NOON_MS == 1_537_593

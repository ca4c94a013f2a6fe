"""The stored state of a schedule and its decisions: exact counts for every policy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from windlass.core.schedules.declarations import ABANDONED_MS, Declared
from windlass.core.schedules.state import (
    WAITING_MS,
    LeftOut,
    Note,
    ScheduleEntry,
    ScheduleStep,
    decide,
    declared_again,
    made,
    paused,
    replaced,
    resumed,
)
from windlass.core.schedules.triggers import All, Cron, Every, Overlap
from windlass.errors import DecodeError, NewerFormat

HOUR_MS = 60 * 60 * 1000
START_MS = 500_000 * HOUR_MS  # on the hour
HOURLY = Every("1h")


def step(
    schedule: Cron | Every, note: Note, now_ms: int, *, unfinished: bool = False
) -> ScheduleStep:
    return decide(schedule, note, now_ms, is_unfinished=unfinished)


def hours(*numbers: int) -> tuple[int, ...]:
    return tuple(START_MS + number * HOUR_MS for number in numbers)


# ------------------------------------------------------------------------------------------ storing


def entry(**fields: Any) -> ScheduleEntry:
    given = {"schedule": Cron("0 3 * * *", tz="Europe/Paris"), "task": "t", "queue": "q"}
    return ScheduleEntry(**{**given, "envelope": b'{"version":1}', **fields})


@pytest.mark.parametrize(
    "stored",
    [entry(), entry(schedule=HOURLY, priority=-5, expires_in_ms=7, envelope=b'{"a": [1,  2]}')],
)
def test_an_entry_comes_back_as_it_was(stored: ScheduleEntry) -> None:
    assert ScheduleEntry.unpack(stored.pack()) == stored
    assert ScheduleEntry.unpack(stored.pack()).pack() == stored.pack()


def test_the_stored_bytes_stay_as_they_are() -> None:
    assert entry().pack() == (
        b'{"version":1,"schedule":{"cron":"0 3 * * *","missed":"once","overlap":"allow",'
        b'"tz":"Europe/Paris","version":1},"task":"t","queue":"q","envelope":{"version":1}}'
    )
    note = Note(next_ms=5, paused="paused", skipped=2)
    assert note.pack() == b'{"version":1,"next_ms":5,"paused":"paused","skipped":2}'


def test_a_note_comes_back_as_it_was() -> None:
    declared = Declared(fingerprint="f", version=3, declared_ms=4, outdated=("a",))
    note = Note(next_ms=1, waiting_ms=2, last_ms=3, fired_ms=9, skipped=4, declared=declared)
    assert Note.unpack(note.pack()) == note


@pytest.mark.parametrize("data", [b"", b"null", b"{}", b'{"version":1}', b"\xff", b"[" * 10_000])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        ScheduleEntry.unpack(data)


@pytest.mark.parametrize(("kind", "newer"), [(ScheduleEntry, b"3"), (Note, b"2")])
def test_a_newer_format_is_refused_with_a_sentence(
    kind: type[ScheduleEntry] | type[Note], newer: bytes
) -> None:
    with pytest.raises(NewerFormat, match="upgrade the worker"):
        kind.unpack(b'{"version":' + newer + b',"all":"different"}')


# ------------------------------------------------------------------------------------- missed runs


@pytest.mark.parametrize(
    ("missed", "run", "left_out"),
    [
        ("skip", (), 6),
        ("once", (6,), 5),
        (All(3), (4, 5, 6), 3),
        (All(6), (1, 2, 3, 4, 5, 6), 0),
        (All(100), (1, 2, 3, 4, 5, 6), 0),
    ],
)
@pytest.mark.parametrize("kind", ["every", "cron"])
def test_after_six_hours_each_policy_has_its_exact_count(
    missed: Any, run: tuple[int, ...], left_out: int, kind: str
) -> None:
    """Down from half past until half past six hours later."""
    schedule = Every("1h", missed=missed) if kind == "every" else Cron("0 * * * *", missed=missed)
    now_ms = START_MS + 6 * HOUR_MS + HOUR_MS // 2
    found = step(schedule, made(schedule, START_MS), now_ms)
    assert found.run == hours(*run)
    assert found.note.next_ms == START_MS + 7 * HOUR_MS
    assert found.note.skipped == left_out
    assert sum(part.number for part in found.left_out) == left_out
    assert found.note.last_ms == (hours(6)[0] if run else None)


def test_a_schedule_of_seconds_is_counted_without_looking_at_each() -> None:
    schedule = Every("1s")
    now_ms = START_MS + 6 * HOUR_MS
    found = step(schedule, made(schedule, START_MS), now_ms)
    assert found.run == (now_ms,)
    first_ms, last_ms = START_MS + 1_000, now_ms - 1_000
    number = 6 * 60 * 60 - 1
    part = LeftOut(why="missed", first_ms=first_ms, last_ms=last_ms, number=number)
    assert found.left_out == (part,)


def test_counting_occurrences_of_a_cron_ends() -> None:
    assert Cron("* * * * * *").count_between(START_MS, START_MS + HOUR_MS, 100) == 100
    assert Cron("* * * * * *").count_between(START_MS, START_MS + 1_000, 100) == 2
    assert Every("1h").count_between(START_MS + 1, START_MS + HOUR_MS - 1, 100) == 0


@pytest.mark.parametrize("late_ms", [0, 7, 6 * HOUR_MS])
def test_the_lateness_of_the_last_run_is_kept(late_ms: int) -> None:
    schedule = Every("1h", missed="once")
    now_ms = START_MS + HOUR_MS + late_ms
    fired = step(schedule, made(schedule, START_MS), now_ms).note
    assert fired.late_ms() == late_ms % HOUR_MS
    assert step(schedule, fired, now_ms + 1).note.late_ms() == fired.late_ms()
    paused_and_resumed = resumed(paused(fired), schedule, now_ms + 5 * HOUR_MS)
    assert paused_and_resumed.late_ms() == fired.late_ms()


def test_a_run_that_waits_for_an_earlier_one_is_late_by_its_wait() -> None:
    schedule = Every("1h", overlap="queue_one")
    note = step(schedule, made(schedule, START_MS), hours(1)[0], unfinished=True).note
    assert note.late_ms() is None
    assert step(schedule, note, hours(1)[0] + 1_500).note.late_ms() == 1_500


def test_the_lateness_of_a_run_that_an_earlier_version_fired_is_not_known() -> None:
    note = Note.unpack(b'{"version":1,"next_ms":5,"last_ms":3}')
    assert note.late_ms() is None


def test_a_clock_that_was_put_back_makes_no_run_early() -> None:
    assert Note(last_ms=10, fired_ms=9).late_ms() == 0


def test_what_is_not_due_changes_nothing() -> None:
    note = made(HOURLY, START_MS)
    assert step(HOURLY, note, START_MS + HOUR_MS - 1) == ScheduleStep(note=note)


def test_a_schedule_that_is_over_is_not_looked_at_again() -> None:
    end = datetime.fromtimestamp(hours(1)[0] / 1000, UTC)
    schedule = Every("1h", end=end)
    found = step(schedule, made(schedule, START_MS), START_MS + HOUR_MS)
    assert found.run == hours(1)
    assert found.note.next_ms is None
    assert found.note.due_ms(START_MS) is None
    assert step(schedule, found.note, START_MS + 9 * HOUR_MS).run == ()


# ------------------------------------------------------------------------------------ overlapping


@pytest.mark.parametrize(
    ("overlap", "unfinished", "run", "waiting", "left_out", "cancels"),
    [
        ("allow", False, (1, 2, 3), None, 0, False),
        ("allow", True, (1, 2, 3), None, 0, False),
        ("skip", False, (1,), None, 2, False),
        ("skip", True, (), None, 3, False),
        ("cancel_previous", False, (3,), None, 2, False),
        ("cancel_previous", True, (3,), None, 2, True),
        ("queue_one", False, (1,), 2, 1, False),
        ("queue_one", True, (), 1, 2, False),
    ],
)
def test_what_overlaps(
    overlap: Overlap,
    unfinished: bool,
    run: tuple[int, ...],
    waiting: int | None,
    left_out: int,
    cancels: bool,
) -> None:
    """Three occurrences at once, after an absence."""
    schedule = Every("1h", missed=All(10), overlap=overlap)
    now_ms = START_MS + 3 * HOUR_MS
    found = step(schedule, made(schedule, START_MS), now_ms, unfinished=unfinished)
    assert found.run == hours(*run)
    assert found.note.waiting_ms == (None if waiting is None else hours(waiting)[0])
    assert found.note.skipped == left_out
    assert all(part.why == "overlap" for part in found.left_out)
    assert found.cancels is cancels


def test_nothing_is_cancelled_for_nothing() -> None:
    schedule = Every("1h", overlap="cancel_previous")
    found = step(schedule, made(schedule, START_MS), START_MS, unfinished=True)
    assert not found.cancels


def test_what_waits_is_looked_after_until_the_earlier_run_has_ended() -> None:
    schedule = Every("1h", overlap="queue_one")
    at_ms = START_MS + HOUR_MS
    found = step(schedule, made(schedule, START_MS), at_ms, unfinished=True)
    assert (found.run, found.note.waiting_ms) == ((), at_ms)
    assert found.note.due_ms(at_ms) == at_ms + WAITING_MS
    late_ms = at_ms + HOUR_MS // 2
    assert step(schedule, found.note, late_ms, unfinished=True) == ScheduleStep(note=found.note)
    found = step(schedule, found.note, late_ms)
    assert (found.run, found.note.waiting_ms) == ((at_ms,), None)
    assert found.note.due_ms(late_ms) == START_MS + 2 * HOUR_MS


def test_while_one_waits_others_are_left_out() -> None:
    schedule = Every("1h", overlap="queue_one")
    note = step(schedule, made(schedule, START_MS), hours(1)[0], unfinished=True).note
    found = step(schedule, note, hours(2)[0], unfinished=True)
    assert (found.run, found.note.waiting_ms, found.note.skipped) == ((), hours(1)[0], 1)
    found = step(schedule, found.note, hours(3)[0])
    assert (found.run, found.note.waiting_ms) == (hours(1), hours(3)[0])


# ---------------------------------------------------------------------------------------- changing


def test_a_paused_schedule_is_not_due_and_what_came_meanwhile_is_not_missed() -> None:
    note = paused(Note(next_ms=hours(1)[0], waiting_ms=START_MS))
    assert note.due_ms(START_MS) is None
    assert note.waiting_ms is None
    note = resumed(note, HOURLY, START_MS + 5 * HOUR_MS)
    assert note.due_ms(START_MS) == note.next_ms == hours(6)[0]


def test_another_schedule_goes_on_from_where_the_first_was() -> None:
    """At the moment at which both were due and not yet enqueued."""
    note = made(HOURLY, START_MS)
    assert replaced(note, Every("30m"), hours(1)[0] + 5).next_ms == hours(1)[0]
    assert replaced(note, Every("30m"), START_MS + 5).next_ms == START_MS + HOUR_MS // 2
    assert replaced(paused(note), Every("30m"), START_MS).paused == "paused"


def test_what_nobody_declares_for_a_day_is_paused_and_comes_back() -> None:
    declared = Declared(fingerprint="f", version=0, declared_ms=START_MS)
    note = declared_again(made(HOURLY, START_MS), declared)
    last_ms = START_MS + ABANDONED_MS
    assert step(HOURLY, note, last_ms - 1).note.paused == ""
    found = step(HOURLY, note, last_ms)
    assert (found.run, found.note.paused) == ((), "abandoned")
    assert found.note.due_ms(last_ms) is None
    again = msgspec.structs.replace(declared, declared_ms=last_ms + 5)
    back = declared_again(found.note, again)
    assert (back.paused, back.next_ms) == ("", hours(1)[0])
    assert step(HOURLY, back, last_ms + 5).run == (last_ms,)


def test_a_declaration_does_not_end_the_pause_of_an_operator() -> None:
    declared = Declared(fingerprint="f", version=0, declared_ms=START_MS)
    assert declared_again(paused(made(HOURLY, START_MS)), declared).paused == "paused"

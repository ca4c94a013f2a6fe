"""Test schedules: changes need the current revision, and due schedules are found."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.schedules.occurrences import occurrence_id
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Buried,
    Capability,
    Engine,
    QueueChange,
    ScheduleChange,
    ScheduleRecord,
    Succeeded,
)
from windlass.testing.contract.test_races import race
from windlass.testing.contract.world import World


def change(world: World, name: str = "nightly", **fields: Any) -> ScheduleChange:
    """Make a change of the stored schedule; the first change creates the schedule."""
    (known,) = world.engine.get_schedules([name])
    given: dict[str, Any] = {
        "name": name,
        "expected": known.revision if known else "",
        "revision": world.nonce(),
        "due_ms": world.now_ms,
        "note": b"note",
        "body": None if known else b"body",
    }
    return ScheduleChange(**{**given, **fields})


def make(world: World, name: str = "nightly", **fields: Any) -> ScheduleRecord:
    assert world.engine.change_schedules([change(world, name, **fields)]) == [True]
    return get(world, name)


def get(world: World, name: str = "nightly") -> ScheduleRecord:
    (record,) = world.engine.get_schedules([name])
    assert record is not None
    return record


def job_of(world: World, name: str = "nightly", at_ms: int | None = None, **fields: Any) -> Any:
    partition = world.engine.schedule_partition(name)
    id = occurrence_id(name, world.now_ms if at_ms is None else at_ms, partition)
    return world.new(id=id, **fields)


def everything(world: World) -> object:
    return world.everything(), world.engine.list_schedules(), world.engine.due_schedules()


# ------------------------------------------------------------------------------------------ storing


def test_a_schedule_is_stored_as_it_was_given(world: World) -> None:
    job = job_of(world)
    made = make(world, due_ms=world.now_ms + 5, note=b"\x00n", watched=(job.id,), jobs=(job,))
    assert made == ScheduleRecord(
        name="nightly",
        revision=made.revision,
        due_ms=world.now_ms + 5,
        body=b"body",
        note=b"\x00n",
        watched=(job.id,),
        unfinished=(job.id,),
    )
    assert world.get(job.id).state is State.READY
    assert world.engine.check() == []


def test_what_is_not_there_is_not_found(world: World) -> None:
    make(world, "b")
    found = world.engine.get_schedules(["a", "b", "a", "c"])
    assert [record and record.name for record in found] == [None, "b", None, None]
    assert world.engine.get_schedules([]) == []


def test_a_change_without_a_body_leaves_it(world: World) -> None:
    make(world)
    assert make(world, note=b"later").body == b"body"
    assert make(world, body=b"other").body == b"other"


def test_a_change_of_what_has_changed_does_nothing(world: World) -> None:
    mine, other = change(world), change(world, body=b"other", jobs=(job_of(world),))
    assert world.engine.change_schedules([mine, other]) == [True, False]
    assert get(world).body == b"body"
    assert world.ids() == []


def test_a_removed_schedule_cannot_be_changed_nor_mistaken_for_another(world: World) -> None:
    make(world)
    late = change(world, jobs=(job_of(world),))
    assert world.engine.remove_schedule("nightly")
    assert world.engine.change_schedules([late]) == [False]
    make(world)
    assert world.engine.change_schedules([late]) == [False]
    assert world.ids() == []


def test_schedules_are_listed_by_name_in_pages(world: World) -> None:
    names = [f"s{number:02}" for number in range(12)]
    for name in reversed(names):
        make(world, name)
    listed: list[str] = []
    while page := world.engine.list_schedules(listed[-1] if listed else "", limit=5):
        listed += [record.name for record in page]
    assert listed == names


def test_a_removed_schedule_leaves_nothing(world: World) -> None:
    """Check that only the enqueued jobs of a removed schedule stay."""
    job = job_of(world)
    make(world, jobs=(job,))
    assert world.engine.remove_schedule("nightly")
    assert not world.engine.remove_schedule("nightly")
    assert world.engine.list_schedules() == []
    assert world.engine.due_schedules().records == ()
    assert world.ids() == [job.id]
    assert world.engine.check() == []


@pytest.mark.needs(Capability.DURABLE)
def test_schedules_survive_the_end_of_the_process(world: World) -> None:
    make(world)
    before = everything(world)
    world.reopen()
    assert everything(world) == before


# -------------------------------------------------------------------------------------- being due


def test_what_is_due_is_found_in_its_order_and_stays_until_it_is_changed(world: World) -> None:
    for name, in_ms in (("a", 3), ("b", 1), ("c", 2), ("d", 4)):
        make(world, name, due_ms=world.now_ms + in_ms)
    make(world, "paused", due_ms=None)
    assert world.engine.due_schedules().next_in_ms == 1
    world.advance(3)
    for _ in range(2):
        due = world.engine.due_schedules()
        assert [record.name for record in due.records] == ["b", "c", "a"]
        assert (due.now_ms, due.more, due.next_in_ms) == (world.now_ms, False, 1)
    make(world, "c", due_ms=None)
    assert [record.name for record in world.engine.due_schedules().records] == ["b", "a"]


def test_those_that_are_skipped_stand_in_nobodys_way(world: World) -> None:
    skip = [f"broken{number}" for number in range(20)]
    for name in skip:
        make(world, name, due_ms=world.now_ms - 10)
    make(world, "sound")
    due = world.engine.due_schedules(limit=2)
    assert due.more
    assert 2 <= len(due.records) <= 8
    due = world.engine.due_schedules(skip, limit=2)
    assert [record.name for record in due.records] == ["sound"]
    assert not due.more


def test_a_watched_job_is_unfinished_until_it_has_ended(world: World) -> None:
    first, second, third = (job_of(world, at_ms=number) for number in range(3))
    ids = (first.id, second.id, third.id, job_of(world, at_ms=9).id)
    make(world, watched=ids, jobs=(first, second, third))
    assert get(world).unfinished == ids[:3]
    claims = {claim.id: claim.token for claim in world.claim(limit=2).claims}
    assert get(world).unfinished == ids[:3]
    world.finish(Succeeded(id=first.id, token=claims[first.id]))
    assert get(world).unfinished == ids[1:3]
    buried = Buried(id=second.id, token=claims[second.id], reason=Reason.REJECTED, error=b"")
    world.finish(buried)
    world.engine.cancel([third.id])
    assert world.engine.due_schedules().records[0].unfinished == ()


# ----------------------------------------------------------------------------------------- firing


def test_firing_cancels_what_it_is_told_to(world: World) -> None:
    waiting, running = job_of(world, at_ms=1), job_of(world, at_ms=2, priority=9)
    make(world, jobs=(waiting, running))
    world.take()
    job = job_of(world, at_ms=3)
    make(world, cancelled=(waiting.id, running.id, job_of(world, at_ms=4).id), jobs=(job,))
    assert world.get(waiting.id).state is State.CANCELLED
    assert world.get(running.id).cancel_requested
    assert world.get(job.id).state is State.READY
    assert world.engine.check() == []


def test_a_later_change_in_the_same_call_cancels_what_an_earlier_one_put(world: World) -> None:
    earlier, job, other = (job_of(world, at_ms=number) for number in range(3))
    world.engine.put([earlier])
    first = change(world, jobs=(job,), cancelled=(earlier.id,))
    second = change(world, expected=first.revision, jobs=(other,), cancelled=(job.id,))
    assert world.engine.change_schedules([first, second]) == [True, True]
    assert [claim.id for claim in world.claim().claims] == [other.id]
    assert world.engine.check() == []


def test_a_run_goes_into_a_full_queue_too(world: World) -> None:
    first, second = job_of(world, at_ms=1), job_of(world, at_ms=2)
    world.engine.change_queue(first.queue, QueueChange(max_waiting=1))
    make(world, jobs=(first, second))
    assert world.get(second.id).state is State.READY
    assert world.engine.check() == []


def test_a_known_job_is_left_as_it_is(world: World) -> None:
    job = job_of(world)
    make(world, jobs=(job,))
    claim = world.take()
    world.finish(Succeeded(id=claim.id, token=claim.token))
    make(world, jobs=(job,))
    assert world.get(job.id).state is State.SUCCEEDED
    assert world.engine.stats().totals["enqueued"] == 1


def test_firing_again_after_a_lost_reply_changes_nothing(world: World) -> None:
    make(world)
    fired = change(world, due_ms=world.now_ms + 1_000, jobs=(job_of(world),))
    assert world.engine.change_schedules([fired]) == [True]
    claim = world.take()
    world.finish(Succeeded(id=claim.id, token=claim.token))
    world.advance(MIN_RECORD_MS)
    world.engine.tend()  # even when the job was removed
    assert world.ids() == []
    before = everything(world)
    assert world.engine.change_schedules([fired, fired]) == [True, True]
    assert everything(world) == before


def test_a_late_repeat_is_refused(world: World) -> None:
    make(world)
    fired = change(world, jobs=(job_of(world),))
    world.engine.change_schedules([fired])
    make(world)
    before = everything(world)
    assert world.engine.change_schedules([fired]) == [False]
    assert everything(world) == before


def test_of_all_who_fire_an_occurrence_one_does(world: World) -> None:
    names = [f"s{number}" for number in range(10)]
    for name in names:
        make(world, name)
    for occurrence in range(5):
        seen = world.engine.list_schedules()

        def fire(
            engine: Engine,
            index: int,
            at: int = occurrence,
            seen: list[ScheduleRecord] = seen,
        ) -> list[bool]:
            return engine.change_schedules(
                [
                    ScheduleChange(
                        name=record.name,
                        expected=record.revision,
                        revision=f"{at}-{index}",
                        due_ms=world.now_ms,
                        note=str(index).encode(),
                        jobs=(job_of(world, record.name, at),),
                    )
                    for record in seen
                ]
            )

        replies = race(world, 8, fire)
        for number, name in enumerate(names):
            winners = [index for index, reply in enumerate(replies) if reply[number]]
            assert len(winners) == 1
            assert get(world, name).note == str(winners[0]).encode()
    assert world.engine.stats().totals["enqueued"] == 50
    assert len(world.ids()) == 50
    assert world.engine.check() == []

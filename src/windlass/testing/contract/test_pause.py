"""Paused tasks: their jobs do not start, and other jobs of the same queue do."""

import pytest

from windlass.core.states import Hold, Reason, State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    BITE,
    Batch,
    Capability,
    ChangeCode,
    JobChange,
    PutCode,
    QueueChange,
    Released,
    UniqueKey,
    Unroutable,
)
from windlass.testing.contract.world import OUTCOMES, World, ids_of


def resume(world: World, task: str = "paused") -> int:
    """Resume in as many steps as there are; return how many jobs became ready."""
    number = 0
    while step := world.engine.resume_task(task):
        number += step
    return number


def test_jobs_of_a_paused_task_do_not_start_and_others_do(world: World) -> None:
    before, other = world.put(task="paused"), world.put()
    world.engine.pause_task("paused")
    after = world.put(task="paused")
    assert ids_of(world.claim()) == [other]
    assert world.claim() == Batch()
    for id in (before, after):
        record = world.get(id)
        assert (record.state, record.hold, record.due_ms) == (State.READY, Hold.PAUSED, None)
    assert world.engine.stats().queues["queue"] == {State.READY: 2, State.RUNNING: 1}
    assert world.engine.check() == []


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_resumed_task_starts_at_the_old_places(world: World) -> None:
    first, second = world.put(task="paused"), world.put(task="paused")
    world.engine.pause_task("paused")
    assert not world.claim().claims
    last = world.put()
    urgent = world.put(task="paused", priority=9)
    assert resume(world) == 2  # the urgent one was met by no claim
    assert ids_of(world.claim()) == [urgent, first, second, last]
    assert world.engine.check() == []


def test_a_task_is_resumed_in_bounded_steps(world: World) -> None:
    number = BITE + 5
    ids = world.put_many(number, task="paused")
    world.engine.pause_task("paused")
    while world.claim().next_in_ms == 0:
        pass  # a claim holds a bounded number
    assert {record.hold for record in world.engine.get(ids) if record} == {Hold.PAUSED}
    assert resume(world) == number
    assert set(ids_of(world.claim())) == set(ids)
    assert world.engine.check() == []


def test_workers_bring_back_what_a_resume_left(world: World) -> None:
    """The caller of a resume may die between its steps."""
    id = world.put(task="paused")
    world.engine.pause_task("paused")
    world.claim()
    assert world.engine.adopt(["paused"]) == 0
    world.engine.change_jobs([JobChange(id=id, run_in_ms=0)])
    world.claim()
    assert world.get(id).hold is Hold.PAUSED
    world.engine.resume_task("other")
    assert world.engine.resume_task("paused") == 1
    assert world.engine.adopt(["paused"]) == 0
    assert ids_of(world.claim()) == [id]


def test_paused_tasks_are_listed_apart_from_queues(world: World) -> None:
    world.engine.change_queue("b", QueueChange(paused=True))
    for task in ("b", "a", "b"):
        world.engine.pause_task(task)
    assert world.engine.paused_tasks() == ["a", "b"]
    assert [record.queue for record in world.engine.queues()] == ["b"]
    world.engine.resume_task("b")
    assert world.engine.paused_tasks() == ["a"]
    assert [record.queue for record in world.engine.queues()] == ["b"]
    world.engine.resume_task("a")
    world.engine.change_queue("b", QueueChange(paused=False))
    assert (world.engine.paused_tasks(), world.engine.queues()) == ([], [])
    assert world.engine.check() == []


def test_a_running_job_of_a_paused_task_continues(world: World) -> None:
    id = world.put(task="paused")
    claim = world.take()
    world.engine.pause_task("paused")
    world.finish(OUTCOMES["retried"](id, claim.token))
    world.advance(100)
    assert not world.claim().claims
    assert world.get(id).hold is Hold.PAUSED
    resume(world)
    assert world.take().id == id


def test_a_job_of_a_paused_task_can_be_changed_cancelled_and_purged(world: World) -> None:
    cancelled, moved, purged = world.put_many(3, task="paused")
    world.engine.pause_task("paused")
    world.claim()
    world.engine.cancel([cancelled])
    seen = world.get(moved).revision
    change = JobChange(id=moved, seen=seen, queue="other", run_in_ms=1_000)
    assert world.engine.change_jobs([change]) == [ChangeCode.DONE]
    assert world.get(moved).state is State.SCHEDULED
    assert world.engine.check() == []
    cursor, number = None, 0
    while True:
        emptied = world.engine.purge("queue", cursor)
        cursor, number = emptied.cursor, number + emptied.number
        if cursor is None:
            break
    assert number == 1
    assert world.engine.get([purged]) == [None]
    assert world.engine.check() == []


def test_an_unroutable_job_of_a_paused_task_is_held_as_paused(world: World) -> None:
    id = world.put(task="paused")
    world.finish(Unroutable(id=id, token=world.take().token))
    world.engine.pause_task("paused")
    assert world.engine.adopt(["paused"]) == 0
    world.advance(1_000)
    assert not world.claim().claims
    assert world.get(id).hold is Hold.PAUSED
    assert world.engine.check() == []


@pytest.mark.parametrize("kind", ["retried", "snoozed", "released", "unroutable"])
def test_a_job_that_comes_back_to_a_paused_task_is_held(world: World, kind: str) -> None:
    id = world.put(task="paused")
    claim = world.take()
    world.engine.pause_task("paused")
    world.finish(OUTCOMES[kind](id, claim.token))
    world.advance(1_000)
    assert not world.claim().claims
    assert world.get(id).hold is Hold.PAUSED
    assert world.engine.check() == []
    assert resume(world) == 1
    assert ids_of(world.claim()) == [id]
    assert world.engine.check() == []


def test_a_lost_job_of_a_paused_task_is_held(world: World) -> None:
    id = world.put(task="paused")
    world.claim("lost")
    world.engine.pause_task("paused")
    world.let_expire("lost")
    assert not world.claim("other").claims
    assert (world.get(id).hold, world.get(id).counters.losses) == (Hold.PAUSED, 1)
    assert world.engine.check() == []
    assert resume(world) == 1
    assert ids_of(world.claim("other")) == [id]


def test_a_job_that_must_run_alone_is_held_and_comes_back(world: World) -> None:
    id = world.put(task="paused")
    world.finish(Released(id=id, token=world.take().token, started=False, alone=True))
    world.engine.pause_task("paused")
    assert not world.claim(suspects=True).claims
    assert world.get(id).hold is Hold.PAUSED
    assert world.engine.check() == []
    assert resume(world) == 1
    assert ids_of(world.claim(suspects=True)) == [id]
    assert world.engine.check() == []


def test_a_held_job_expires_when_its_task_is_resumed(world: World) -> None:
    id = world.put(task="paused", expires_in_ms=1_000)
    world.engine.pause_task("paused")
    assert not world.claim().claims
    world.advance(1_000)
    assert not world.claim().claims
    assert world.get(id).state is State.READY
    assert resume(world) == 1
    assert not world.claim().claims
    assert (world.get(id).state, world.get(id).reason) == (State.CANCELLED, Reason.EXPIRED)
    assert world.engine.check() == []


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_priority_and_age_count_after_a_resume(world: World) -> None:
    world.engine.change_queue("queue", QueueChange(ageing_ms=1_000))
    low = world.put(task="paused")
    world.engine.pause_task("paused")
    high = world.put(task="paused", priority=3)
    assert not world.claim().claims
    world.advance(10_000)
    late = world.put(priority=5)
    assert resume(world) == 2
    assert ids_of(world.claim()) == [high, low, late]
    assert world.engine.check() == []


def test_a_held_job_keeps_its_keys(world: World) -> None:
    unique = UniqueKey(key="key", on_conflict=OnConflict.REPLACE)
    id = world.put(task="paused", unique=unique, idempotency_key="once")
    world.engine.pause_task("paused")
    assert not world.claim().claims
    again = world.new(task="paused", unique=unique, payload=b"new")
    [placed] = world.engine.put([again])
    assert (placed.id, placed.code) == (id, PutCode.REPLACED)
    assert world.engine.check() == []
    assert not world.claim().claims
    assert world.get(id).hold is Hold.PAUSED
    assert resume(world) == 1
    assert [claim.payload for claim in world.claim().claims] == [b"new"]
    assert world.engine.check() == []


def test_a_held_job_is_edited_and_stays_held(world: World) -> None:
    first, second = world.put_many(2, task="paused", payload=b"old")
    world.engine.pause_task("paused")
    assert not world.claim().claims
    changes = [JobChange(id=first, payload=b"new"), JobChange(id=second, queue="other")]
    assert world.engine.change_jobs(changes) == [ChangeCode.DONE] * 2
    assert {world.get(id).hold for id in (first, second)} == {Hold.PAUSED}
    assert world.engine.check() == []
    assert resume(world) == 2
    assert {claim.payload for claim in world.claim(queues=("queue",)).claims} == {b"new"}
    assert ids_of(world.claim(queues=("other",))) == [second]
    assert world.engine.check() == []


@pytest.mark.needs(Capability.DURABLE)
def test_a_pause_survives_the_end_of_the_process(world: World) -> None:
    held, later = world.put(task="paused"), world.put(task="paused", run_in_ms=1_000)
    world.engine.pause_task("paused")
    assert not world.claim().claims
    world.reopen()
    world.advance(1_000)
    assert world.engine.paused_tasks() == ["paused"]
    assert not world.claim().claims
    assert {world.get(id).hold for id in (held, later)} == {Hold.PAUSED}
    assert resume(world) == 2
    assert set(ids_of(world.claim())) == {held, later}


def test_maintenance_brings_back_what_a_resume_left(world: World) -> None:
    """The caller of a resume may die between its steps, and no worker may claim."""
    ids = world.put_many(BITE + 5, task="paused")
    kept = world.put(task="still")
    for task in ("paused", "still"):
        world.engine.pause_task(task)
    while world.claim().next_in_ms == 0:
        pass
    assert world.engine.resume_task("paused") >= BITE
    while world.engine.tend().more:
        pass
    assert {record.hold for record in world.engine.get(ids) if record} == {Hold.NONE}
    assert world.get(kept).hold is Hold.PAUSED
    assert world.engine.check() == []


def test_maintenance_looks_beyond_jobs_that_are_held_otherwise(world: World) -> None:
    strays = world.put_many(BITE + 5, task="away")
    claims = world.claim(limit=BITE + 5).claims
    world.engine.finish([Unroutable(id=claim.id, token=claim.token) for claim in claims])
    ids = world.put_many(BITE + 5, task="paused")
    world.engine.pause_task("paused")
    while world.claim().next_in_ms == 0:
        pass
    world.engine.resume_task("paused")
    for _ in range(3):
        world.engine.tend()
    assert {record.hold for record in world.engine.get(ids) if record} == {Hold.NONE}
    assert {record.hold for record in world.engine.get(strays) if record} == {Hold.UNROUTABLE}
    assert world.engine.check() == []

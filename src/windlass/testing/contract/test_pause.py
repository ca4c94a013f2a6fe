"""Paused tasks: their jobs do not start, and other jobs of the same queue do."""

import pytest

from windlass.core.states import Hold, State
from windlass.engine.contract import (
    BITE,
    Batch,
    Capability,
    ChangeCode,
    JobChange,
    QueueChange,
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

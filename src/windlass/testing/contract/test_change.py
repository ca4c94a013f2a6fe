"""Changes of jobs that wait: payload, queue and due time."""

import pytest

from windlass.core.states import Counters, Hold, State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    Capability,
    ChangeCode,
    JobChange,
    NewJob,
    PutCode,
    QueueChange,
    Retried,
    UniqueKey,
    Unroutable,
)
from windlass.testing.contract.world import OUTCOMES, World, ids_of

DONE, REFUSED = ChangeCode.DONE, ChangeCode.REFUSED


def change(world: World, id: str, **fields: object) -> ChangeCode:
    (code,) = world.engine.change_jobs([JobChange(id=id, **fields)])  # type: ignore[arg-type]  # fields vary from test to test
    return code


def test_a_job_that_waits_gets_another_payload(world: World) -> None:
    ids = [world.put(payload=b"old"), world.put(payload=b"old", run_in_ms=1_000)]
    assert [change(world, id, payload=b"new") for id in ids] == [DONE, DONE]
    for id in ids:
        record = world.get(id)
        assert record.payload == b"new"
        assert [(entry.event, entry.error) for entry in record.failures] == [("revive", b"old")]
    assert [claim.payload for claim in world.claim().claims] == [b"new"]
    assert world.engine.check() == []


def test_a_scheduled_job_runs_now(world: World) -> None:
    scheduled, first = world.put(run_in_ms=60_000), world.put()
    assert change(world, scheduled, run_in_ms=0) is DONE
    record = world.get(scheduled)
    assert (record.state, record.due_ms) == (State.READY, None)
    assert set(ids_of(world.claim())) == {first, scheduled}
    assert world.engine.check() == []


def test_a_retrying_job_runs_now_and_keeps_its_budgets(world: World) -> None:
    id = world.put()
    world.finish(Retried(id=id, token=world.take().token, delay_ms=60_000, error=b"boom"))
    assert change(world, id, run_in_ms=30_000) is DONE
    record = world.get(id)
    assert (record.state, record.due_ms) == (State.RETRYING, world.now_ms + 30_000)
    assert change(world, id, run_in_ms=0) is DONE
    assert world.take().counters == Counters(attempt=2, starts=2)
    assert world.engine.check() == []


def test_a_held_job_runs_now(world: World) -> None:
    id = world.put()
    world.finish(Unroutable(id=id, token=world.take().token, why=b"unknown"))
    assert change(world, id, payload=b"new", queue="other") is DONE
    record = world.get(id)
    assert (record.hold, record.queue) == (Hold.UNROUTABLE, "other")
    assert world.engine.check() == []
    assert change(world, id, run_in_ms=0) is DONE
    assert ids_of(world.claim(queues=("other",))) == [id]
    assert world.engine.check() == []


def test_a_ready_job_is_put_off(world: World) -> None:
    id = world.put()
    assert change(world, id, run_in_ms=1_000) is DONE
    record = world.get(id)
    assert (record.state, record.due_ms) == (State.SCHEDULED, world.now_ms + 1_000)
    assert not world.claim().claims
    world.advance(1_000)
    assert ids_of(world.claim()) == [id]
    assert world.engine.check() == []


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_job_keeps_its_place_in_another_queue(world: World) -> None:
    moved, first = world.put(queue="a"), world.put(queue="b")
    last = world.put(queue="b")
    assert change(world, first, queue="b+gpu") is DONE
    assert change(world, first, queue="b") is DONE
    assert change(world, moved, queue="b") is DONE
    assert ids_of(world.claim(queues=("b",))) == [moved, first, last]
    assert not world.claim(queues=("a",)).claims
    assert world.engine.stats().queues["b"] == {State.RUNNING: 3}
    assert world.engine.check() == []


def test_a_job_takes_the_age_of_its_new_queue(world: World) -> None:
    world.engine.change_queue("a", QueueChange(ageing_ms=1_000))
    id = world.put(queue="a")
    world.advance(10_000)
    later = world.put(queue="a", priority=1)
    assert change(world, later, queue="b") is DONE
    assert change(world, id, queue="b") is DONE
    assert world.engine.check() == []
    assert change(world, id, queue="a") is DONE
    assert world.engine.check() == []
    assert set(ids_of(world.claim())) == {id, later}


def test_a_limit_of_a_queue_does_not_refuse_a_change(world: World) -> None:
    world.engine.change_queue("full", QueueChange(max_waiting=1))
    world.put(queue="full")
    assert change(world, world.put(), queue="full") is DONE


def test_a_change_of_what_was_not_seen_is_refused(world: World) -> None:
    id = world.put(payload=b"old", run_in_ms=1_000)
    seen = world.get(id).revision
    assert change(world, id, seen="other", run_in_ms=0) is REFUSED
    assert change(world, id, seen_payload=b"other", run_in_ms=0) is REFUSED
    assert world.get(id).state is State.SCHEDULED
    assert change(world, id, seen=seen, seen_payload=b"old", payload=b"new") is DONE
    assert change(world, id, seen=seen, seen_payload=b"old", payload=b"newer") is REFUSED
    assert change(world, id, seen=seen, run_in_ms=0) is DONE
    assert change(world, id, seen=seen, run_in_ms=0) is REFUSED
    assert world.get(id).payload == b"new"


def test_a_job_that_ran_in_between_is_not_as_it_was_seen(world: World) -> None:
    id = world.put()
    seen = world.get(id).revision
    world.finish(OUTCOMES["released"](id, world.take().token))
    assert change(world, id, seen=seen, queue="other") is REFUSED
    world.finish(OUTCOMES["unroutable"](id, world.take().token))
    world.engine.adopt(["task"])
    assert change(world, id, seen=seen, queue="other") is REFUSED


@pytest.mark.parametrize("kind", ["running", "succeeded", "buried", "cancelled"])
def test_a_job_that_does_not_wait_is_not_changed(world: World, kind: str) -> None:
    id = world.put()
    if kind == "cancelled":
        world.engine.cancel([id])
    else:
        claim = world.take()
        if kind != "running":
            world.finish(OUTCOMES[kind](id, claim.token))
    before = world.get(id)
    fields = {"payload": b"new", "queue": "other", "run_in_ms": 0}
    assert change(world, id, **fields) is REFUSED
    assert world.get(id) == before
    assert change(world, "unknown", **fields) is ChangeCode.UNKNOWN


def test_a_changed_job_keeps_its_unique_key(world: World) -> None:
    unique = UniqueKey(key="key", on_conflict=OnConflict.RETURN)
    id = world.put(unique=unique)
    assert change(world, id, queue="other", run_in_ms=60_000, payload=b"new") is DONE
    again: NewJob = world.new(unique=unique)
    (placed,) = world.engine.put([again])
    assert (placed.id, placed.code) == (id, PutCode.EXISTING)
    assert world.engine.check() == []


def test_jobs_that_come_and_stay_in_one_call_are_all_listed(world: World) -> None:
    """One job enters an index that the next one leaves and enters again."""
    ready, scheduled = world.put(), world.put(run_in_ms=1_000)
    changes = [JobChange(id=id, run_in_ms=2_000) for id in (ready, scheduled)]
    assert world.engine.change_jobs(changes) == [DONE, DONE]
    assert world.engine.check() == []
    in_line = world.put()
    changes = [JobChange(id=ready, run_in_ms=0), JobChange(id=in_line, payload=b"new")]
    assert world.engine.change_jobs(changes) == [DONE, DONE]
    assert world.engine.check() == []
    assert set(ids_of(world.claim())) == {ready, in_line}


def test_changes_of_one_job_in_one_call_follow_each_other(world: World) -> None:
    id = world.put()
    changes = [JobChange(id=id, queue=queue) for queue in ("a", "b", "a", "c")]
    changes.append(JobChange(id=id, run_in_ms=1_000))
    changes.append(JobChange(id=id, run_in_ms=0))
    assert world.engine.change_jobs(changes) == [DONE] * 6
    assert world.engine.check() == []
    assert ids_of(world.claim(queues=("c",))) == [id]

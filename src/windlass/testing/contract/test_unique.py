"""Test unique keys: the holder after each event, and the reply to a job with a held key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from windlass.core.states import TABLE, Counters, Event, Reason, State
from windlass.core.unique import QUEUED, OnConflict, Until, is_held
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Buried,
    ChangeCode,
    NewJob,
    Placed,
    PutCode,
    Retried,
    Succeeded,
    UniqueKey,
)
from windlass.testing.contract.test_matrix import CAUSE, MAKE, Subject, subject_in
from windlass.testing.contract.world import World, ids_of, retry_jobs

HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS


def key(
    until: Until = Until.END,
    on_conflict: OnConflict = OnConflict.RETURN,
    *,
    period_ms: int = 0,
    name: str = "key",
) -> UniqueKey:
    return UniqueKey(key=name, until=until, period_ms=period_ms, on_conflict=on_conflict)


def again(world: World, on_conflict: OnConflict = OnConflict.RAISE, **fields: Any) -> Placed:
    """Put another job with the same key."""
    new = world.new(unique=key(Until.END, on_conflict), **fields)
    (placed,) = world.engine.put([new])
    return placed


def holder(world: World) -> str | None:
    (id,) = world.engine.holders([("task", "key")])
    return id


# ------------------------------------------------------------------------------------- who holds it

#: The states in which a choice of `until` differs from the default. Moves that touch none of these
#: states run only with the default.
PECULIAR: Final = {Until.START: State.RUNNING, Until.SUCCESS: State.DEAD}
MOVES: Final = [
    pytest.param(
        until, state, event, asked, id=f"{until}-{state}-{event}" + ("-asked" if asked else "")
    )
    for until in Until
    for (state, event), target in TABLE.items()
    if state in MAKE and PECULIAR.get(until, state) in (state, target)
    for asked in ((False, True) if state is State.RUNNING else (False,))
]


@pytest.mark.parametrize(("until", "state", "event", "asked"), MOVES)
def test_the_state_says_who_holds_the_key(
    world: World, until: Until, state: State, event: Event, asked: bool
) -> None:
    subject = subject_in(world, state, event, asked=asked, unique=key(until))
    assert (holder(world) == subject.id) is is_held(until, state, 0, world.now_ms)
    CAUSE[event](subject)
    record = subject.record()
    holds = record is not None and is_held(until, record.state, 0, world.now_ms)
    assert holder(world) == (subject.id if holds else None)
    placed = again(world)
    if holds:
        assert placed == Placed(subject.id, PutCode.DUPLICATE)
    else:
        assert placed.code is PutCode.CREATED
        assert holder(world) == placed.id
    assert world.engine.check() == []


@pytest.mark.parametrize("state", MAKE)
def test_for_a_period_the_key_is_held_in_every_state(world: World, state: State) -> None:
    subject = Subject(world, world.put(unique=key(Until.START, period_ms=DAY_MS)))
    MAKE[state](subject)
    world.advance(DAY_MS - 1)
    world.engine.tend()
    assert again(world) == Placed(subject.id, PutCode.DUPLICATE)
    world.advance(1)
    assert (again(world).code is PutCode.DUPLICATE) is (state in QUEUED)


@pytest.mark.parametrize("ttl_ms", [0, HOUR_MS])
def test_a_record_is_kept_for_its_period(world: World, ttl_ms: int) -> None:
    id = world.put(unique=key(period_ms=DAY_MS))
    claim = world.take()
    world.finish(Succeeded(id=id, token=claim.token, result=b"r", result_ttl_ms=ttl_ms))
    world.advance(DAY_MS - 1)
    assert world.engine.tend().purged == world.engine.tend().purged == 0
    record = world.get(id)
    assert (record.state, record.has_result) == (State.SUCCEEDED, False)
    assert world.engine.check() == []
    world.advance(1)
    assert world.engine.tend().purged == 1
    assert world.ids() == []
    assert world.engine.check() == []


def test_a_job_outlives_its_period(world: World) -> None:
    id = world.put(unique=key(period_ms=1), run_in_ms=DAY_MS)
    world.advance(HOUR_MS)
    assert again(world) == Placed(id, PutCode.DUPLICATE)


def test_a_unique_key_belongs_to_its_task(world: World) -> None:
    one, two = (world.new(task=task, unique=key()) for task in ("one", "two"))
    other = world.new(task="one", unique=key(name="key2"))
    (placed,) = world.engine.put([one])
    assert [item.code for item in world.engine.put([two, other])] == [PutCode.CREATED] * 2
    keys = [("one", "key"), ("two", "key"), ("one", "key2"), ("on", "ekey"), ("none", "key")]
    assert world.engine.holders(keys) == [placed.id, two.id, other.id, None, None]


def test_unique_keys_of_any_kind(world: World) -> None:
    names = ["a b", "  ", "1:a", "ä🙂", "%d", "0", "x" * 200]
    for name in names:
        id = world.put(task=name, unique=key(name=name))
        assert world.engine.holders([(name, name)]) == [id]
        assert world.get(id).unique_key == name
    assert world.engine.check() == []


def test_jobs_without_a_key_hold_none(world: World) -> None:
    assert world.get(world.put()).unique_key is None
    assert again(world).code is PutCode.CREATED


# ------------------------------------------------------------------------------ coming back to line


def test_one_that_comes_back_to_its_queue_holds_the_key_again(world: World) -> None:
    id = world.put(unique=key(Until.START))
    claim = world.take()
    assert holder(world) is None
    world.finish(Retried(id=id, token=claim.token, delay_ms=9, error=b""))
    assert again(world) == Placed(id, PutCode.DUPLICATE)


def test_one_that_was_overtaken_comes_back_without_the_key(world: World) -> None:
    world.put(unique=key(Until.START))
    claim = world.take()
    other = world.put(unique=key(Until.START))
    world.finish(Retried(id=claim.id, token=claim.token, delay_ms=9, error=b""))
    assert holder(world) == other
    assert again(world) == Placed(other, PutCode.DUPLICATE)
    world.engine.cancel([other])
    world.engine.discard([other])
    assert holder(world) is None
    assert world.engine.check() == []


def dead(world: World, **fields: Any) -> str:
    id = world.put(**fields)
    claim = world.take()
    world.finish(Buried(id=id, token=claim.token, reason=Reason.REJECTED, error=b""))
    return id


@pytest.mark.parametrize("until", [Until.START, Until.END])
def test_a_dead_job_is_not_retried_while_another_holds_its_key(world: World, until: Until) -> None:
    id = dead(world, unique=key(until))
    other = world.put(unique=key(until))
    before = world.everything()
    assert retry_jobs(world.engine, [id]) == [ChangeCode.DUPLICATE]
    assert world.everything() == before
    world.engine.cancel([other])
    assert retry_jobs(world.engine, [id, other]) == [ChangeCode.DONE, ChangeCode.DUPLICATE]
    assert holder(world) == id
    assert world.engine.check() == []


def test_a_dead_job_that_holds_its_key_is_retried(world: World) -> None:
    id = dead(world, unique=key(Until.SUCCESS))
    assert again(world) == Placed(id, PutCode.DUPLICATE)
    assert retry_jobs(world.engine, [id]) == [ChangeCode.DONE]
    assert again(world) == Placed(id, PutCode.DUPLICATE)


def test_discarding_frees_the_key_within_its_period(world: World) -> None:
    id = world.put(unique=key(period_ms=DAY_MS))
    world.engine.cancel([id])
    assert again(world) == Placed(id, PutCode.DUPLICATE)
    world.engine.discard([id])
    assert again(world).code is PutCode.CREATED


def test_an_id_that_is_put_again_after_its_end_does_not_hold_the_old_key(world: World) -> None:
    id = world.put(unique=key(Until.SUCCESS))
    world.engine.cancel([id])
    world.engine.discard([id])
    world.put(id=id)
    assert holder(world) is None


# --------------------------------------------------------------------------------------- a conflict


def test_the_existing_job_is_returned(world: World) -> None:
    id = world.put(unique=key(), payload=b"first")
    before = world.everything()
    assert again(world, OnConflict.RETURN, payload=b"second") == Placed(id, PutCode.EXISTING)
    assert world.everything() == before


def test_several_with_one_key_in_one_call(world: World) -> None:
    jobs = [world.new(unique=key(Until.END, on_conflict)) for on_conflict in OnConflict]
    last = world.new(unique=key(name="other"))
    placed = world.engine.put([*jobs, jobs[1], last])
    codes = [PutCode.CREATED, PutCode.REPLACED, PutCode.DUPLICATE, PutCode.REPLACED]
    assert placed == [
        *(Placed(jobs[0].id, code) for code in codes),
        Placed(last.id, PutCode.CREATED),
    ]
    assert world.engine.stats().queues == {"queue": {State.READY: 2}}
    assert world.engine.check() == []


def test_many_replacements_in_one_call(world: World) -> None:
    """Move a job in and out of the line in one call, so that the order of writes matters."""
    unique = key(Until.START, OnConflict.REPLACE)
    delays = [0, 0, 9, 0, 9, 9, 0]
    jobs = [
        world.new(unique=unique, run_in_ms=delay_ms, payload=b"%d" % number)
        for number, delay_ms in enumerate(delays)
    ]
    placed = world.engine.put(jobs)
    assert {item.id for item in placed} == {jobs[0].id}
    assert world.take().payload == b"6"
    assert world.engine.check() == []


def wait_ready(world: World, unique: UniqueKey) -> NewJob:
    job = world.new(unique=unique)
    world.engine.put([job])
    return job


def wait_scheduled(world: World, unique: UniqueKey) -> NewJob:
    job = world.new(unique=unique, run_in_ms=DAY_MS, expires_in_ms=2 * DAY_MS)
    world.engine.put([job])
    return job


def wait_for(state: State, world: World, unique: UniqueKey) -> NewJob:
    job = wait_ready(world, unique)
    MAKE[state](Subject(world, job.id))
    return job


def wait_unroutable(world: World, unique: UniqueKey) -> NewJob:
    job = wait_ready(world, unique)
    subject = Subject(world, job.id)
    subject.claim()
    CAUSE[Event.UNROUTABLE](subject)
    return job


def wait_suspected(world: World, unique: UniqueKey) -> NewJob:
    job = wait_ready(world, unique)
    subject = Subject(world, job.id)
    subject.claim()
    CAUSE[Event.CRASH](subject)
    return job


WAITING: Final[dict[str, Callable[[World, UniqueKey], NewJob]]] = {
    "ready": wait_ready,
    "scheduled": wait_scheduled,
    "snoozed": lambda world, unique: wait_for(State.SCHEDULED, world, unique),
    "retrying": lambda world, unique: wait_for(State.RETRYING, world, unique),
    "unroutable": wait_unroutable,
    "suspected": wait_suspected,
}


@pytest.mark.parametrize("run_in_ms", [0, HOUR_MS])
@pytest.mark.parametrize("wait", WAITING)
def test_a_job_that_waits_takes_over_the_call(world: World, wait: str, run_in_ms: int) -> None:
    unique = key(Until.START, OnConflict.REPLACE)
    old = WAITING[wait](world, unique)
    was = world.get(old.id)
    new = world.new(
        queue="other",
        payload=b"new",
        priority=7,
        run_in_ms=run_in_ms,
        expires_in_ms=DAY_MS,
        unique=unique,
    )
    assert world.engine.put([new]) == [Placed(old.id, PutCode.REPLACED)]
    assert world.engine.get([new.id]) == [None]
    record = world.get(old.id)
    assert record.state is (State.SCHEDULED if run_in_ms else State.READY)
    assert record.due_ms == (world.now_ms + run_in_ms if run_in_ms else None)
    assert (record.queue, record.priority, record.payload) == ("other", 7, b"new")
    assert (record.counters, record.suspect) == (Counters(), False)
    assert record.expires_ms == world.now_ms + DAY_MS
    assert (record.created_ms, record.failures) == (was.created_ms, was.failures)
    assert world.engine.stats().totals["replaced"] == 1
    assert world.engine.check() == []
    world.advance(run_in_ms)
    (claim,) = world.claim("next").claims
    assert (claim.id, claim.payload, claim.queue) == (old.id, b"new", "other")
    assert claim.counters == Counters(1, 1)


@pytest.mark.parametrize("state", [State.RUNNING, State.DEAD])
def test_one_that_does_not_wait_is_not_replaced(world: World, state: State) -> None:
    job = wait_for(state, world, key(Until.SUCCESS, OnConflict.REPLACE))
    before = world.everything()
    assert again(world, OnConflict.REPLACE) == Placed(job.id, PutCode.DUPLICATE)
    assert world.everything() == before


@pytest.mark.parametrize("later", [1, 30])
@pytest.mark.parametrize("late_ms", [0, MIN_RECORD_MS - 1])
def test_a_repeated_replacement_changes_nothing(world: World, later: int, late_ms: int) -> None:
    """Repeat a put with a lost reply, after later puts replaced its call: their calls must stay."""
    unique = key(Until.START, OnConflict.REPLACE)
    holder = world.put(unique=unique, run_in_ms=DAY_MS)
    first, *others = [
        world.new(unique=unique, payload=b"%d" % number, run_in_ms=DAY_MS)
        for number in range(1 + later)
    ]
    for job in (first, *others):
        assert world.engine.put([job]) == [Placed(holder, PutCode.REPLACED)]
    world.advance(late_ms)
    before = world.everything()
    for job in (first, *others):
        assert world.engine.put([job]) == [Placed(holder, PutCode.REPLACED)]
    assert world.everything() == before
    assert world.get(holder).payload == b"%d" % later


def test_a_replacement_of_long_ago_is_forgotten(world: World) -> None:
    """Check that old replaced puts are forgotten, so that storage does not grow without bound."""
    unique = key(Until.START, OnConflict.REPLACE)
    holder = world.put(unique=unique, run_in_ms=DAY_MS)
    first, second = [
        world.new(unique=unique, payload=payload, run_in_ms=DAY_MS) for payload in (b"1", b"2")
    ]
    world.engine.put([first])
    world.engine.put([second])
    world.advance(MIN_RECORD_MS)
    world.engine.tend()
    assert world.engine.put([second]) == [Placed(holder, PutCode.REPLACED)]
    assert world.engine.stats().totals["replaced"] == 2, "the one whose call it has is known"
    assert world.engine.put([first]) == [Placed(holder, PutCode.REPLACED)]
    assert world.get(holder).payload == b"1"
    assert world.engine.check() == []


def put_beside(world: World) -> str:
    """Put a job without a key into the partition of the key."""
    return world.put(id=world.new(unique=key()).id)


def test_one_that_stays_ready_keeps_its_place(world: World) -> None:
    first = world.put(unique=key())
    second = put_beside(world)
    again(world, OnConflict.REPLACE)
    assert ids_of(world.claim()) == [first, second]


def test_one_that_becomes_ready_stands_at_the_end(world: World) -> None:
    first = world.put(unique=key(), run_in_ms=9)
    second = put_beside(world)
    again(world, OnConflict.REPLACE)
    assert ids_of(world.claim()) == [second, first]


def test_the_new_period_counts(world: World) -> None:
    world.put(unique=key(period_ms=DAY_MS), run_in_ms=HOUR_MS)
    world.put(unique=key(Until.START, OnConflict.REPLACE, period_ms=HOUR_MS))
    world.take()
    world.advance(HOUR_MS)
    assert holder(world) is None


@pytest.mark.parametrize("on_conflict", OnConflict)
@pytest.mark.parametrize("wait", ["ready", "scheduled", "retrying"])
def test_one_that_can_only_expire_swallows_no_call(
    world: World, wait: str, on_conflict: OnConflict
) -> None:
    old = world.put(unique=key(), expires_in_ms=HOUR_MS, run_in_ms=9 if wait == "scheduled" else 0)
    if wait == "retrying":
        MAKE[State.RETRYING](Subject(world, old))
    world.advance(HOUR_MS)
    assert again(world, on_conflict).code is PutCode.CREATED
    record = world.get(old)
    assert (record.state, record.reason) == (State.CANCELLED, Reason.EXPIRED)
    assert world.engine.check() == []


# ---------------------------------------------------------------------------- with idempotency keys


def test_the_idempotency_key_counts_first(world: World) -> None:
    id = world.put(unique=key(), idempotency_key="i", fingerprint="one")
    claim = world.take()
    world.finish(Succeeded(id=id, token=claim.token, result=b"r", result_ttl_ms=HOUR_MS))
    for fingerprint, code in (("one", PutCode.EXISTING), ("two", PutCode.CONFLICT)):
        placed = again(world, idempotency_key="i", fingerprint=fingerprint)
        assert placed == Placed(id, code)


def test_an_idempotency_key_is_bound_to_the_job_that_its_call_stored(world: World) -> None:
    id = world.put(unique=key())
    for on_conflict in OnConflict:
        assert again(world, on_conflict, idempotency_key="i").id == id
    world.engine.cancel([id])
    placed = again(world, idempotency_key="i")
    assert placed.code is PutCode.CREATED
    assert again(world, idempotency_key="i") == Placed(placed.id, PutCode.EXISTING)


def test_an_idempotency_key_is_scoped_to_the_unique_key(world: World) -> None:
    jobs = [world.new(idempotency_key="i", unique=key(name=name)) for name in ("a", "b")]
    plain = world.new(idempotency_key="i")
    placed = world.engine.put([*jobs, plain])
    assert [item.code for item in placed] == [PutCode.CREATED] * 3

"""Test copies: a job that is read from one place and stored in another continues as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from windlass.core.ids import new_id
from windlass.core.states import Hold, Reason, State
from windlass.core.unique import OnConflict, Until
from windlass.engine.contract import (
    MAX_FAILURES,
    MAX_KEYS,
    MIN_RECORD_MS,
    Buried,
    Capability,
    ChangeCode,
    CopyCode,
    Engine,
    Filter,
    JobCopy,
    Placed,
    Plan,
    Progressed,
    PutCode,
    QueueChange,
    Released,
    Retried,
    Revival,
    ScheduleChange,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.errors import EngineError
from windlass.testing.contract.machine import all_holders, all_keys
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import START_MS, World, claim_jobs, ids_of

DAY_MS: Final = 24 * 60 * 60 * 1000
PERIOD_MS: Final = 60_000


def read(world: World, *ids: str) -> list[JobCopy]:
    found = world.engine.read_copies(ids)
    return [copy for copy in found if copy is not None]


def copy(world: World, other: World, *ids: str) -> list[CopyCode]:
    other.move_clock(world.now_ms)
    return other.engine.put_copies(read(world, *ids))


def copy_keys(world: World, other: World) -> list[CopyCode]:
    return other.engine.put_keys(all_keys(world.engine))


# ------------------------------------------------------------------------------------- jobs as is


def plain(world: World) -> str:
    return world.put()


def rich(world: World) -> str:
    return world.put(
        task="other",
        queue="queue+gpu",
        payload=b"\0\xff" * 2_000,
        priority=-7,
        expires_in_ms=DAY_MS,
        unique=UniqueKey(key="ä key", period_ms=DAY_MS),
    )


def scheduled(world: World) -> str:
    return world.put(run_in_ms=DAY_MS)


def retrying(world: World) -> str:
    """Fail twice, once by a crash of the worker."""
    id = world.put()
    world.take()
    world.engine.close("worker", [id], "killed")
    claim = world.take("second", suspects=True)
    world.finish(Progressed(id=id, token=claim.token, progress=b"half"))
    world.finish(Retried(id=id, token=claim.token, delay_ms=DAY_MS, error=b"boom" * 500))
    return id


def handed_back(world: World) -> str:
    id = world.put()
    claim = world.take()
    world.advance(7)
    world.finish(Released(id=id, token=claim.token, started=True))
    return id


def alone(world: World) -> str:
    id = world.put()
    claim = world.take()
    world.finish(Released(id=id, token=claim.token, started=True, alone=True))
    return id


def unroutable(world: World) -> str:
    id = world.put()
    claim = world.take()
    world.finish(Unroutable(id=id, token=claim.token, why=b"no such task"))
    return id


def paused(world: World) -> str:
    id = world.put(task="paused")
    world.engine.pause_task("paused")
    assert not world.claim().claims
    return id


def dead(world: World) -> str:
    id = world.put()
    claim = world.take("worker@v1")
    outcome = Buried(
        id=id, token=claim.token, reason=Reason.EXHAUSTED, error=b"no", fingerprint="ab12"
    )
    world.finish(outcome)
    return id


def often_failed(world: World) -> str:
    id = world.put()
    for number in range(MAX_FAILURES + 3):
        world.advance(1)
        claim = world.take()
        world.finish(Retried(id=id, token=claim.token, delay_ms=0, error=b"%d" % number))
    world.advance(1)
    claim = world.take()
    world.finish(Released(id=id, token=claim.token, started=False))
    return id


def cancelled(world: World) -> str:
    id = world.put(unique=UniqueKey(key="key", period_ms=DAY_MS))
    world.engine.cancel([id])
    return id


def succeeded(world: World) -> str:
    id = world.put(unique=UniqueKey(key="key", period_ms=DAY_MS))
    claim = world.take()
    world.finish(Succeeded(id=id, token=claim.token, result=b"result", result_ttl_ms=PERIOD_MS))
    return id


JOBS: Final[Sequence[Callable[[World], str]]] = (
    *(plain, rich, scheduled, retrying, handed_back, alone, unroutable, paused, dead),
    *(often_failed, cancelled, succeeded),
)


@pytest.mark.parametrize("make", JOBS, ids=lambda make: make.__name__)
def test_a_copy_is_the_job_as_it_is(
    world: World, other_world: World, make: Callable[[World], str]
) -> None:
    id = make(world)
    world.advance(11)
    assert copy(world, other_world, id) == [CopyCode.STORED]
    record = world.get(id)
    assert other_world.get(id) == replace(record, result=None, has_result=False)
    assert read(other_world, id) == read(world, id)
    found = [engine.find(Filter()).records for engine in (world.engine, other_world.engine)]
    assert found[1] == tuple(replace(one, has_result=False) for one in found[0])
    assert other_world.engine.stats().queues == world.engine.stats().queues
    assert other_world.engine.dead_tallies() == world.engine.dead_tallies()
    assert other_world.engine.check() == []


def test_a_known_id_changes_nothing(world: World, other_world: World) -> None:
    id = world.put()
    assert copy(world, other_world, id) == [CopyCode.STORED]
    claim = other_world.take()
    other_world.finish(Succeeded(id=id, token=claim.token, result=b"r", result_ttl_ms=DAY_MS))
    before = other_world.everything()
    assert copy(world, other_world, id, id) == [CopyCode.KNOWN] * 2
    assert other_world.everything() == before
    assert other_world.engine.check() == []


def test_an_id_that_is_repeated_in_a_call_is_stored_once(world: World, other_world: World) -> None:
    id = world.put()
    copies = world.engine.read_copies([id, id])
    codes = other_world.engine.put_copies([one for one in copies if one is not None])
    assert codes == [CopyCode.STORED, CopyCode.KNOWN]
    assert other_world.ids() == [id]
    assert other_world.engine.check() == []


def test_an_unknown_id_has_no_copy(world: World) -> None:
    id = world.put()
    assert world.engine.read_copies([id[::-1], id])[0] is None


def test_a_running_job_is_read_and_not_stored(world: World, other_world: World) -> None:
    running, waiting = world.put(), world.put()
    world.claim(limit=1)
    copies = read(world, waiting, running)
    assert {one.record.state for one in copies} == {State.READY, State.RUNNING}
    with pytest.raises(EngineError, match="in state running"):
        other_world.engine.put_copies(copies)
    assert other_world.ids() == []


def test_copies_are_not_counted_as_enqueued_and_ignore_limits(
    world: World, other_world: World
) -> None:
    ids = world.put_many(3)
    other_world.engine.change_queue("queue", QueueChange(max_waiting=1))
    assert copy(world, other_world, *ids) == [CopyCode.STORED] * 3
    stats = other_world.engine.stats()
    assert (stats.enqueued, stats.totals.get("enqueued", 0)) == ({}, 0)


def test_a_copied_job_can_do_all_that_others_can(world: World, other_world: World) -> None:
    kinds = dead, unroutable, often_failed
    first, held, last = (make(world) for make in kinds)
    world.engine.cancel([doomed := world.put()])
    copy(world, other_world, first, held, last, doomed)
    assert other_world.engine.revive([Revival(id=first), Revival(id=doomed)]) == [
        ChangeCode.DONE,
        ChangeCode.DONE,
    ]
    assert other_world.engine.adopt(["task"]) == 1
    claims = other_world.claim().claims
    assert {claim.id for claim in claims} == {first, held, last, doomed}
    for claim in claims:
        other_world.finish(Retried(id=claim.id, token=claim.token, delay_ms=0, error=b"again"))
    other_world.advance(1)
    for claim in other_world.claim().claims:
        outcome = Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no")
        other_world.finish(outcome)
    history = [failure.error for failure in other_world.get(last).failures]
    assert len(history) == MAX_FAILURES
    assert history[-3:] == [b"%d" % (MAX_FAILURES + 2), b"again", b"no"]
    assert other_world.engine.check() == []
    assert other_world.engine.discard([first, held, last, doomed]) == [ChangeCode.DONE] * 4
    assert other_world.ids() == []
    assert other_world.engine.check() == []


# ------------------------------------------------------------------------------------------- order


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_copies_line_up_in_turn_by_priority(world: World, other_world: World) -> None:
    low, first, second, high = (world.put(priority=number) for number in (-1, 0, 0, 3))
    own = other_world.put()
    copy(world, other_world, low, first, second, high)
    later = other_world.put()
    assert ids_of(other_world.claim()) == [high, own, first, second, later, low]


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_held_copy_returns_to_the_place_of_its_copy(world: World, other_world: World) -> None:
    held = paused(world)
    waiting = world.put()
    other_world.engine.pause_task("paused")
    copy(world, other_world, held, waiting)
    later = other_world.put()
    assert other_world.engine.resume_task("paused") == 1
    assert ids_of(other_world.claim()) == [held, waiting, later]


def test_a_copy_has_waited_since_it_took_its_place(world: World, other_world: World) -> None:
    id = world.put()
    world.advance(5_000)
    copy(world, other_world, id)
    assert other_world.engine.stats().oldest_ready_ms == {"queue": 5_000}
    assert other_world.take().waited_ms == 5_000


def test_a_copy_that_waits_for_an_instant_is_due_then(world: World, other_world: World) -> None:
    late, early = world.put(run_in_ms=2_000), world.put(run_in_ms=1_000)
    assert copy(world, other_world, late, early) == [CopyCode.STORED] * 2
    assert other_world.claim().next_in_ms == 1_000
    other_world.advance(1_000)
    assert ids_of(other_world.claim()) == [early]


def test_a_copy_expires_at_its_instant(world: World, other_world: World) -> None:
    id = world.put(expires_in_ms=1_000)
    copy(world, other_world, id)
    other_world.advance(1_000)
    assert not other_world.claim().claims
    assert other_world.get(id).reason is Reason.EXPIRED


def test_a_dead_copy_is_purged_when_it_would_have_been(world: World, other_world: World) -> None:
    id = dead(world)
    world.advance(OPTIONS.dead_ttl_ms - 1)
    copy(world, other_world, id)
    assert other_world.engine.tend().purged == 0
    other_world.advance(1)
    assert other_world.engine.tend().purged == 1
    assert other_world.engine.check() == []


def age(world: World, least_age: int | None = None) -> None:
    change = QueueChange(ageing_ms=PERIOD_MS, least_age=least_age)
    world.engine.change_queue("queue", change)


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_a_copy_is_as_much_older_than_new_jobs_as_before(world: World, other_world: World) -> None:
    age(world)
    world.advance(3 * PERIOD_MS)
    old = world.put()
    world.advance(4 * PERIOD_MS)
    middle = world.put(priority=4)
    world.advance(PERIOD_MS)
    copies = read(world, old, middle)
    ages = [one.line and (one.line.age, one.line.queue_age) for one in copies]
    assert ages == [(3, 8), (7, 8)]
    age(other_world, least_age=1)
    other_world.move_clock(world.now_ms)
    other_world.engine.put_copies(copies)
    beaten, better = other_world.put(priority=4), other_world.put(priority=6)
    assert ids_of(other_world.claim()) == [better, old, middle, beaten]
    assert other_world.engine.check() == []


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_in_an_older_queue_a_copy_gains_nothing(world: World, other_world: World) -> None:
    id = world.put()
    other_world.engine.change_queue("queue", QueueChange(least_age=50))
    copy(world, other_world, id)
    better = other_world.put(priority=1)
    assert ids_of(other_world.claim()) == [better, id]


def test_without_room_for_its_age_a_copy_is_as_old_as_the_queue(
    world: World, other_world: World
) -> None:
    age(world)
    id = world.put()
    world.advance(5 * PERIOD_MS)
    copy(world, other_world, id)
    (copied,) = read(other_world, id)
    assert copied.line is not None
    assert (copied.line.age, copied.line.queue_age) == (0, 0)
    assert other_world.engine.check() == []


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_the_age_of_a_queue_is_raised_and_never_lowered(world: World) -> None:
    before = world.put(priority=6)
    world.engine.change_queue("queue", QueueChange(least_age=7))
    world.engine.change_queue("queue", QueueChange(least_age=2))
    after = world.put(priority=12)
    assert ids_of(world.claim()) == [before, after]
    assert world.engine.queues() == []
    assert world.engine.check() == []


def test_a_raised_age_counts_from_now(world: World) -> None:
    age(world)
    world.advance(5 * PERIOD_MS)
    world.engine.change_queue("queue", QueueChange(least_age=7))
    world.advance(PERIOD_MS)
    (copied,) = read(world, world.put())
    assert copied.line is not None
    assert (copied.line.age, copied.line.queue_age) == (8, 8)


# --------------------------------------------------------------------------------------------- keys


def key(until: Until = Until.END, *, period_ms: int = 0, name: str = "key") -> UniqueKey:
    return UniqueKey(key=name, until=until, period_ms=period_ms, on_conflict=OnConflict.RETURN)


def again(world: World, **fields: Any) -> Placed:
    (placed,) = world.engine.put([world.new(**fields)])
    return placed


@pytest.mark.parametrize("until", Until)
def test_a_copy_holds_its_unique_key(world: World, other_world: World, until: Until) -> None:
    id = world.put(unique=key(until))
    copy(world, other_world, id)
    assert again(other_world, unique=key()) == Placed(id, PutCode.EXISTING)
    claim = other_world.take()
    holds = until is not Until.START
    assert (again(other_world, unique=key()).id == id) is holds
    assert other_world.engine.check() == []
    other_world.finish(Succeeded(id=id, token=claim.token))
    assert other_world.engine.check() == []


def test_a_copy_with_a_key_of_another_job_is_not_stored(world: World, other_world: World) -> None:
    id, free = world.put(unique=key()), world.put(unique=key(name="free"))
    holder = other_world.put(unique=key())
    before = other_world.get(holder)
    assert copy(world, other_world, id, free) == [CopyCode.HELD, CopyCode.STORED]
    assert other_world.engine.get([id, holder]) == [None, before]
    assert other_world.engine.holders([("task", "key")]) == [holder]
    assert other_world.engine.check() == []


def test_copies_with_one_key_in_one_call(world: World, other_world: World) -> None:
    first = world.put(unique=key())
    world.engine.cancel([first])
    second = world.put(unique=key())
    copies = read(world, first, second)
    taken = replace(copies[1], record=replace(copies[1].record, id=world.new(unique=key()).id))
    codes = other_world.engine.put_copies([*copies, taken])
    assert codes == [CopyCode.STORED, CopyCode.STORED, CopyCode.HELD]
    assert other_world.engine.holders([("task", "key")]) == [second]
    assert other_world.engine.check() == []


def test_a_dead_copy_takes_its_key_when_it_is_revived(world: World, other_world: World) -> None:
    id = world.put(unique=key())
    claim = world.take()
    world.finish(Buried(id=id, token=claim.token, reason=Reason.REJECTED, error=b""))
    holder = other_world.put(unique=key())
    assert copy(world, other_world, id) == [CopyCode.STORED]
    assert other_world.engine.revive([Revival(id=id)]) == [ChangeCode.DUPLICATE]
    other_world.engine.cancel([holder])
    assert other_world.engine.revive([Revival(id=id)]) == [ChangeCode.DONE]
    assert other_world.engine.holders([("task", "key")]) == [id]
    assert other_world.engine.check() == []


@pytest.mark.parametrize("make", [cancelled, succeeded])
def test_an_ended_job_that_holds_a_key_is_listed(
    world: World, other_world: World, make: Callable[[World], str]
) -> None:
    id = make(world)
    for number in range(3):
        world.put(unique=key(name=f"waiting {number}", period_ms=DAY_MS))
    world.engine.cancel([world.put(unique=key(name="free"))])
    assert all_holders(world.engine) == [id]
    copy(world, other_world, id)
    other_world.advance(DAY_MS - 1)
    other_world.engine.tend()
    assert again(other_world, unique=key()) == Placed(id, PutCode.EXISTING)
    assert all_holders(other_world.engine) == [id]
    other_world.advance(1)
    assert all_holders(other_world.engine) == []
    other_world.advance(OPTIONS.dead_ttl_ms)
    assert other_world.engine.tend().purged == 1
    assert again(other_world, unique=key()).code is PutCode.CREATED
    assert other_world.engine.check() == []


def test_no_call_leaves_a_transaction_open(world: World) -> None:
    world.put_many(2)
    world.take()
    assert world.engine.open_transactions() == frozenset()


def test_many_unique_keys_are_read_in_batches(world: World) -> None:
    names = [f"key {number}" for number in range(MAX_KEYS + 5)]
    world.engine.put([world.new(unique=key(name=name, period_ms=DAY_MS)) for name in names])
    ids = world.ids()
    world.engine.cancel(ids)
    assert world.engine.list_holders().cursor is not None
    assert all_holders(world.engine) == sorted(ids)


def test_an_idempotency_key_is_copied_with_its_job(world: World, other_world: World) -> None:
    id = world.put(idempotency_key="k", fingerprint="f")
    world.advance(DAY_MS // 2)
    copy(world, other_world, id)
    assert copy_keys(world, other_world) == [CopyCode.STORED]
    assert copy_keys(world, other_world) == [CopyCode.KNOWN]
    same = again(other_world, idempotency_key="k", fingerprint="f")
    assert same == Placed(id, PutCode.EXISTING)
    other = again(other_world, idempotency_key="k", fingerprint="g")
    assert other == Placed(id, PutCode.CONFLICT)
    other_world.advance(DAY_MS // 2 - 1)
    assert [one.id for one in all_keys(other_world.engine)] == [id]
    other_world.advance(1)
    assert all_keys(other_world.engine) == []
    assert again(other_world, idempotency_key="k").code is PutCode.CREATED
    assert other_world.engine.check() == []


def test_a_key_outlives_its_job(world: World, other_world: World) -> None:
    id = world.put(idempotency_key="k")
    claim = world.take()
    world.finish(Succeeded(id=id, token=claim.token))
    world.advance(MIN_RECORD_MS)
    assert world.engine.tend().purged == 1
    other_world.move_clock(world.now_ms)
    assert copy_keys(world, other_world) == [CopyCode.STORED]
    assert again(other_world, idempotency_key="k") == Placed(id, PutCode.EXISTING)
    assert other_world.ids() == []


def test_an_idempotency_key_of_another_job_is_not_stored(world: World, other_world: World) -> None:
    world.put(idempotency_key="k")
    free = world.put(idempotency_key="l")
    holder = other_world.put(idempotency_key="k")
    assert copy_keys(world, other_world) == [CopyCode.HELD, CopyCode.STORED]
    found = {one.key: one.id for one in all_keys(other_world.engine)}
    assert found == {"k": holder, "l": free}


def test_a_key_of_a_unique_job_is_copied_with_both(world: World, other_world: World) -> None:
    fields: dict[str, Any] = {"unique": key(Until.START), "idempotency_key": "k"}
    id = world.put(**fields)
    copy(world, other_world, id)
    copy_keys(world, other_world)
    assert ids_of(other_world.claim()) == [id]
    assert again(other_world, **fields) == Placed(id, PutCode.EXISTING)
    assert again(other_world, unique=key(Until.START)).code is PutCode.CREATED


@pytest.mark.parametrize("keys_first", [True, False])
def test_a_copied_key_is_freed_with_its_job(
    world: World, other_world: World, keys_first: bool
) -> None:
    id = world.put(idempotency_key="k")
    if keys_first:
        copy_keys(world, other_world)
    copy(world, other_world, id)
    copy_keys(world, other_world)
    other_world.engine.cancel([id])
    assert other_world.engine.discard([id]) == [ChangeCode.DONE]
    assert all_keys(other_world.engine) == []
    assert again(other_world, idempotency_key="k").code is PutCode.CREATED


def test_keys_of_any_kind_are_listed_in_batches(world: World, other_world: World) -> None:
    names = ["a b", "  ", "1:a", "ä🙂", "%d", "0", "x" * 200, *(f"{n:04}" for n in range(MAX_KEYS))]
    world.engine.put(
        [world.new(task=f"{at % 3}:t", idempotency_key=name) for at, name in enumerate(names)]
    )
    world.engine.record("reporter", 1, [])
    found = all_keys(world.engine)
    assert sorted(one.key for one in found) == sorted(names)
    assert world.engine.list_keys().cursor is not None
    for at in range(0, len(found), MAX_KEYS):
        other_world.engine.put_keys(found[at : at + MAX_KEYS])
    assert all_keys(other_world.engine) == found


# ---------------------------------------------------------------------------------------------- ids


def test_a_copy_without_a_key_keeps_its_id(engine: Engine) -> None:
    for id in (new_id(1, 0), new_id(1, 999), "chosen-by-a-caller"):
        assert engine.copied_id(id, "task", None) == id


#: Ids in the first and the last partition, and one of a caller.
_IDS: Final = {"first": new_id(1, 0), "last": new_id(1, 999), "own": "chosen-by-a-caller"}


@pytest.mark.parametrize("id", _IDS.values(), ids=_IDS)
def test_a_copy_gets_an_id_under_which_its_key_is_found(
    world: World, other_world: World, id: str
) -> None:
    made = read(world, world.put(unique=key()))
    own = other_world.engine.copied_id(id, "task", "key")
    assert other_world.engine.copied_id(own, "task", "key") == own
    assert other_world.engine.copied_id(id, "task", "key") == own
    copies = [replace(one, record=replace(one.record, id=own)) for one in made]
    assert other_world.engine.put_copies(copies) == [CopyCode.STORED]
    assert again(other_world, unique=key()) == Placed(own, PutCode.EXISTING)
    assert other_world.get(own).unique_key == "key"


@pytest.mark.parametrize("id", _IDS.values(), ids=_IDS)
def test_a_copy_gets_an_id_under_which_its_schedule_watches_it(
    world: World, other_world: World, id: str
) -> None:
    own = other_world.engine.copied_id(id, "task", None, "nightly")
    assert other_world.engine.copied_id(own, "task", None, "nightly") == own
    copies = [replace(one, record=replace(one.record, id=own)) for one in read(world, world.put())]
    assert other_world.engine.put_copies(copies) == [CopyCode.STORED]
    change = ScheduleChange(
        name="nightly",
        expected="",
        revision="r",
        due_ms=START_MS,
        note=b"",
        body=b"body",
        watched=(own,),
    )
    assert other_world.engine.change_schedules([change]) == [True]
    assert other_world.engine.list_schedules()[0].unfinished == (own,)


def test_copies_wake_idle_sessions(world: World, other_world: World) -> None:
    ids = [world.put(), world.put(run_in_ms=1_000)]
    copy(world, other_world, *ids)
    assert other_world.claim(limit=0).next_in_ms == 1_000
    plan = Plan(queues=("queue",))
    batch = claim_jobs(other_world.engine, "worker", other_world.nonce(), plan, 9)
    assert ids_of(batch) == ids[:1]


def test_held_copies_keep_their_hold(world: World, other_world: World) -> None:
    id = unroutable(world)
    copy(world, other_world, id)
    assert other_world.get(id).hold is Hold.UNROUTABLE
    assert not other_world.claim().claims
    other_world.advance(DAY_MS)
    assert ids_of(other_world.claim()) == [id]

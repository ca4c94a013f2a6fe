"""Test jobs that are stored, and claims that end, in a transaction of a caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

from windlass.client.connections.recognition import read_connection
from windlass.core.states import State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    BATCH_BYTES,
    Capability,
    Claim,
    NewJob,
    Placed,
    Progressed,
    PutCode,
    QueueChange,
    SqlGenerator,
    Succeeded,
    TransactionVerbs,
    UniqueKey,
    Verdict,
    transaction_verbs,
)
from windlass.testing.contract.world import OUTCOMES, World

pytestmark = pytest.mark.needs(Capability.TRANSACTIONAL)

R = TypeVar("R")
Run = Callable[[SqlGenerator[R]], R]

#: How long a transaction may wait for another one, in seconds.
SOON_S: Final = 10.0

every_end = pytest.mark.parametrize("kind", [kind for kind in OUTCOMES if kind != "progressed"])


def verbs_of(world: World) -> TransactionVerbs:
    verbs = transaction_verbs(world.engine)
    assert verbs is not None
    return verbs


class Caller:
    """A connection of a caller, and one transaction on it."""

    def __init__(self, world: World) -> None:
        self.connection: Any = world.variant.connect()
        self._verbs = verbs_of(world)
        self._adapter = read_connection("connection", self.connection)

    def put(self, *jobs: NewJob) -> list[Placed]:
        return self._adapter.run(self._verbs, self._verbs.put_within(jobs))

    def finish(self, *outcomes: Any) -> list[Verdict]:
        return self._adapter.run(self._verbs, self._verbs.finish_within(outcomes))


@contextmanager
def caller(world: World, *, is_kept: bool = True) -> Iterator[Caller]:
    """The transaction is committed at the end of the block, or rolled back."""
    one = Caller(world)
    try:
        yield one
        one.connection.commit() if is_kept else one.connection.rollback()
    finally:
        one.connection.close()
    assert world.engine.check() == []


def running(world: World) -> Claim:
    world.put()
    return world.take()


def success(claim: Claim, result: bytes = b"42") -> Succeeded:
    return Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=60_000)


# -------------------------------------------------------------------------------------------- put


def test_a_committed_put_is_as_any_other(world: World) -> None:
    fields: dict[str, Any] = {"task": "mail.send", "priority": 3, "payload": b"\x00\xff%s$1"}
    with caller(world) as within:
        new = world.new(**fields)
        assert within.put(new) == [Placed(new.id, PutCode.CREATED)]
    other = world.get(world.put(**fields))
    assert world.get(new.id) == type(other)(**{**_fields(other), "id": new.id})
    assert world.engine.stats().queues == {"queue": {State.READY: 2}}
    assert [claim.id for claim in world.claim().claims] == [new.id, other.id]


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_nobody_sees_a_job_before_the_commit(world: World) -> None:
    with caller(world) as within:
        new = world.new()
        within.put(new)
        assert world.engine.get([new.id]) == [None]
        assert world.claim().claims == ()
        assert world.engine.stats().queues == {}
    assert world.take().id == new.id


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_open_transaction_is_listed_until_its_end(world: World, is_kept: bool) -> None:
    with caller(world, is_kept=is_kept) as within:
        within.put(world.new())
        (name,) = world.engine.open_transactions()
        assert world.engine.open_transactions() == {name}
    assert world.engine.open_transactions() == frozenset()


def test_two_transactions_of_a_connection_have_two_names(world: World) -> None:
    with caller(world) as within:
        within.put(world.new())
        names = world.engine.open_transactions()
        within.connection.commit()
        within.put(world.new())
        assert not names & world.engine.open_transactions()


def test_a_put_that_was_rolled_back_leaves_nothing(world: World) -> None:
    before = world.everything()
    keys = {"idempotency_key": "key", "unique": UniqueKey(key="key")}
    with caller(world, is_kept=False) as within:
        within.put(world.new(), world.new(**keys), world.new(run_in_ms=50))
    assert world.everything() == before
    again = world.new(**keys)
    assert world.engine.put([again]) == [Placed(again.id, PutCode.CREATED)]


def test_nothing_is_put_within(world: World) -> None:
    with caller(world) as within:
        assert within.put() == []
    assert world.ids() == []


def test_several_puts_are_one_transaction(world: World) -> None:
    with caller(world) as within:
        ids = [placed.id for _ in range(3) for placed in within.put(world.new())]
    assert [claim.id for claim in world.claim().claims] == ids


def test_an_id_repeated_within_a_transaction(world: World) -> None:
    known = world.put(payload=b"known")
    with caller(world) as within:
        first, second = world.new(payload=b"first"), world.new()
        again = world.new(id=first.id, payload=b"again")
        assert {placed.code for placed in within.put(first, again, second)} == {PutCode.CREATED}
        within.put(world.new(id=second.id), world.new(id=known, payload=b"other"))
    assert world.get(first.id).payload == b"first"
    assert world.get(known).payload == b"known"
    assert world.engine.stats().queues == {"queue": {State.READY: 3}}


def test_due_times_and_expiries_within(world: World) -> None:
    with caller(world) as within:
        later = world.new(run_in_ms=50, expires_in_ms=500)
        at = world.new(run_after_ms=world.now_ms + 70, expires_ms=world.now_ms + 80)
        within.put(later, at)
    records = [world.get(job.id) for job in (later, at)]
    assert [record.state for record in records] == [State.SCHEDULED] * 2
    assert [record.due_ms for record in records] == [world.now_ms + 50, world.now_ms + 70]
    assert [record.expires_ms for record in records] == [world.now_ms + 500, world.now_ms + 80]
    world.advance(70)
    assert [claim.id for claim in world.claim().claims] == [later.id, at.id]


def test_many_jobs_within(world: World) -> None:
    jobs = [world.new(payload=b"%d" % number) for number in range(600)]
    with caller(world) as within:
        assert within.put(*jobs) == [Placed(job.id, PutCode.CREATED) for job in jobs]
    assert world.engine.stats().queues == {"queue": {State.READY: 600}}
    assert [claim.id for claim in world.claim(limit=600).claims] == [job.id for job in jobs]


def test_large_calls_within(world: World) -> None:
    jobs = [world.new(payload=bytes([number]) * (BATCH_BYTES // 2)) for number in range(3)]
    with caller(world) as within:
        within.put(*jobs)
    assert [world.get(job.id).payload for job in jobs] == [job.payload for job in jobs]


# ------------------------------------------------------------------------------------------- keys


def test_idempotency_keys_within(world: World) -> None:
    known = world.put(idempotency_key="known", fingerprint="same")
    with caller(world) as within:
        new = world.new(idempotency_key="new", fingerprint="a")
        answers = within.put(
            new,
            world.new(idempotency_key="new", fingerprint="a"),
            world.new(idempotency_key="new", fingerprint="b"),
            world.new(idempotency_key="known", fingerprint="same"),
            world.new(idempotency_key="known", fingerprint="other"),
        )
    assert answers == [
        Placed(new.id, PutCode.CREATED),
        Placed(new.id, PutCode.EXISTING),
        Placed(new.id, PutCode.CONFLICT),
        Placed(known, PutCode.EXISTING),
        Placed(known, PutCode.CONFLICT),
    ]
    later = world.new(idempotency_key="new", fingerprint="a")
    assert world.engine.put([later]) == [Placed(new.id, PutCode.EXISTING)]


@pytest.mark.parametrize(
    ("on_conflict", "code"),
    [
        (OnConflict.RETURN, PutCode.EXISTING),
        (OnConflict.RAISE, PutCode.DUPLICATE),
        (OnConflict.REPLACE, PutCode.REPLACED),
    ],
)
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_taken_unique_key_within(
    world: World, on_conflict: OnConflict, code: PutCode, is_kept: bool
) -> None:
    held = world.put(unique=UniqueKey(key="key"), payload=b"old")
    with caller(world, is_kept=is_kept) as within:
        unique = UniqueKey(key="key", on_conflict=on_conflict)
        new = world.new(unique=unique, payload=b"new")
        assert within.put(new) == [Placed(held, code)]
    is_replaced = is_kept and code is PutCode.REPLACED
    assert world.get(held).payload == (b"new" if is_replaced else b"old")
    assert world.ids() == [held]


def test_a_unique_key_of_a_running_job_within(world: World) -> None:
    """The end of the job does not wait for the transaction of the caller."""
    world.put(unique=UniqueKey(key="key"))
    claim = world.take()
    with caller(world) as within:
        for on_conflict, code in (
            (OnConflict.RETURN, PutCode.EXISTING),
            (OnConflict.REPLACE, PutCode.DUPLICATE),
        ):
            new = world.new(unique=UniqueKey(key="key", on_conflict=on_conflict))
            assert within.put(new) == [Placed(claim.id, code)]
        assert world.finish(success(claim)) is Verdict.OK


def test_a_unique_key_that_is_free_again_within(world: World) -> None:
    with caller(world) as within:
        first = world.new(unique=UniqueKey(key="key"))
        within.put(first)
    world.finish(success(world.take()))
    with caller(world) as within:
        second = world.new(unique=UniqueKey(key="key"))
        assert within.put(second) == [Placed(second.id, PutCode.CREATED)]


# ------------------------------------------------------------------------------ settings of queues


def test_a_full_queue_within(world: World) -> None:
    world.engine.change_queue("queue", QueueChange(max_waiting=2))
    world.put()
    with caller(world) as within:
        jobs = [world.new() for _ in range(3)]
        codes = [placed.code for placed in within.put(*jobs)]
        assert codes == [PutCode.CREATED, PutCode.FULL, PutCode.FULL]
        # Other producers do not wait for this transaction, and do not see its jobs.
        assert world.engine.put([world.new()])[0].code is PutCode.CREATED
    assert world.engine.put([world.new()])[0].code is PutCode.FULL


def test_an_ageing_queue_within(world: World) -> None:
    """A put of others that notes the age of the queue does not wait for the transaction."""
    world.engine.change_queue("queue", QueueChange(ageing_ms=60_000))
    first = world.put()
    world.advance(10 * 60_000)
    with caller(world) as within:
        urgent = world.new(priority=5)
        within.put(urgent)
        late = world.put(priority=20)
    assert [claim.id for claim in world.claim().claims] == [late, first, urgent.id]


# ----------------------------------------------------------------------------------------- finish


@every_end
@pytest.mark.parametrize("is_kept", [True, False])
def test_an_end_within(world: World, kind: str, is_kept: bool) -> None:
    claim = running(world)
    before = world.everything()
    outcome = OUTCOMES[kind](claim.id, claim.token)
    with caller(world, is_kept=is_kept) as within:
        assert within.finish(outcome) == [Verdict.OK]
        assert world.get(claim.id).state is State.RUNNING
        assert world.everything() == before
    is_running = world.get(claim.id).state is State.RUNNING
    assert is_running is not is_kept
    assert world.everything() == before or is_kept
    expected = Verdict.REPEATED if is_kept else Verdict.OK
    assert world.finish(outcome) is expected


def test_an_end_within_has_its_result(world: World) -> None:
    claim = running(world)
    with caller(world) as within:
        within.finish(success(claim, b"result"))
    record = world.get(claim.id)
    assert (record.state, record.result) == (State.SUCCEEDED, b"result")
    assert world.engine.stats().totals["succeeded"] == 1


@every_end
def test_an_end_within_of_a_claim_that_is_over(world: World, kind: str) -> None:
    claim = running(world)
    world.let_expire("worker")
    record = world.get(claim.id)
    with caller(world, is_kept=False) as within:
        assert within.finish(OUTCOMES[kind](claim.id, claim.token)) == [Verdict.STALE]
        assert within.finish(OUTCOMES[kind](claim.id, claim.token)) == [Verdict.STALE]
    assert world.get(claim.id) == record


def test_a_put_and_an_end_within_one_transaction(world: World) -> None:
    claim = running(world)
    with caller(world) as within:
        child = world.new()
        within.put(child)
        assert within.finish(success(claim)) == [Verdict.OK]
    assert world.take().id == child.id
    assert world.get(claim.id).state is State.SUCCEEDED


def test_progress_before_an_end_within(world: World) -> None:
    claim = running(world)
    with caller(world) as within:
        progress = Progressed(id=claim.id, token=claim.token, progress=b"half")
        assert world.finish(progress) is Verdict.OK
        assert within.finish(success(claim)) == [Verdict.OK]


# ------------------------------------------------------------------- commits whose reply was lost


@every_end
def test_what_became_of_an_end(world: World, kind: str) -> None:
    claim = running(world)
    verbs, outcome = verbs_of(world), OUTCOMES[kind](claim.id, claim.token)
    with caller(world, is_kept=False) as within:
        within.finish(outcome)
    before = world.everything()
    assert verbs.find_verdicts([outcome]) == [Verdict.OK]
    assert world.everything() == before
    with caller(world) as within:
        within.finish(outcome)
    before = world.everything()
    assert verbs.find_verdicts([outcome]) == [Verdict.REPEATED]
    nowhere = Succeeded(id="nowhere", token=claim.token)
    assert verbs.find_verdicts([nowhere, outcome]) == [Verdict.STALE, Verdict.REPEATED]
    assert world.everything() == before


def test_what_became_of_an_end_that_came_too_late(world: World) -> None:
    claim = running(world)
    world.let_expire("worker")
    assert verbs_of(world).find_verdicts([success(claim)]) == [Verdict.STALE]
    again = world.take("other")
    world.finish(success(again))
    assert verbs_of(world).find_verdicts([success(claim)]) == [Verdict.STALE]


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_answer_waits_for_the_end_of_the_transaction(world: World, is_kept: bool) -> None:
    """The commit may be on its way when its connection breaks."""
    claim = running(world)
    verbs = verbs_of(world)
    found: list[Verdict] = []
    asking = threading.Thread(target=lambda: found.extend(verbs.find_verdicts([success(claim)])))
    with caller(world, is_kept=is_kept) as within:
        within.finish(success(claim))
        asking.start()
        asking.join(0.2)
        assert asking.is_alive()
    asking.join(SOON_S)
    assert found == [Verdict.REPEATED if is_kept else Verdict.OK]

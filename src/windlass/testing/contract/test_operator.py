"""Test operations of operators: cancel, retry, discard, counters, sessions, retention."""

import pytest
from msgspec.structs import replace

from windlass.core.states import Counters, Hold, Reason, State
from windlass.engine.contract import (
    BITE,
    MIN_RECORD_MS,
    SWEEP_BYTES,
    Buried,
    CancelCode,
    ChangeCode,
    Retried,
    Revival,
    SessionRecord,
    Succeeded,
    Tended,
    Unroutable,
    Verdict,
)
from windlass.testing.contract.place import OPTIONS, Place
from windlass.testing.contract.world import LEASE_MS, START_MS, World, ids_of, retry_jobs


def succeed(world: World, *, result: bytes | None = None, ttl_ms: int = 0) -> str:
    world.put()
    claim = world.take()
    world.finish(Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=ttl_ms))
    return claim.id


def bury(world: World, *, payload: bytes = b"payload") -> str:
    world.put(payload=payload)
    claim = world.take()
    world.finish(Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no"))
    return claim.id


def test_an_engine_can_do_what_its_variant_says(variant: Place) -> None:
    engine = variant.open()
    assert engine.capabilities == variant.capabilities
    assert engine.clock_offset_ms == 0
    assert engine.location


# -------------------------------------------------------------------------------------- cancel


def test_a_job_that_waits_is_cancelled(world: World) -> None:
    ready, scheduled = world.put(), world.put(run_in_ms=1_000)
    records = [world.get(id) for id in (ready, scheduled)]
    assert world.engine.cancel([ready, scheduled]) == [CancelCode.CANCELLED] * 2
    for record in records:
        assert world.get(record.id) == replace(
            record,
            state=State.CANCELLED,
            reason=Reason.CANCELLED,
            due_ms=None,
            finished_ms=START_MS,
        )
    world.advance(1_000)
    assert world.claim().claims == ()


def test_a_job_that_is_held_is_cancelled(world: World) -> None:
    id = world.put()
    world.finish(Unroutable(id=id, token=world.take().token))
    assert world.engine.cancel([id]) == [CancelCode.CANCELLED]
    record = world.get(id)
    assert (record.hold, record.due_ms) == (Hold.NONE, None)
    assert world.engine.adopt(["task"]) == 0


def test_a_running_job_is_asked(world: World) -> None:
    id = world.put()
    world.take()
    record = world.get(id)
    assert world.engine.cancel([id, id]) == [CancelCode.REQUESTED] * 2
    assert world.get(id) == replace(record, cancel_requested=True)


def test_a_success_wins_over_a_requested_cancellation(world: World) -> None:
    id = world.put()
    claim = world.take()
    world.engine.cancel([id])
    assert world.finish(Succeeded(id=id, token=claim.token)) is Verdict.OK
    assert world.get(id).state is State.SUCCEEDED


def test_other_ends_lose_to_a_requested_cancellation(world: World) -> None:
    id = world.put()
    claim = world.take()
    world.engine.cancel([id])
    world.finish(Retried(id=id, token=claim.token, delay_ms=9, error=b"boom"))
    record = world.get(id)
    assert (record.state, record.reason) == (State.CANCELLED, Reason.CANCELLED)
    assert (record.due_ms, record.finished_ms) == (None, START_MS)
    assert [entry.error for entry in record.failures] == [b"boom"]


@pytest.mark.parametrize("reason", Reason)
def test_a_job_buried_after_such_a_request_was_cancelled(world: World, reason: Reason) -> None:
    id = world.put()
    claim = world.take()
    world.engine.cancel([id])
    world.finish(Buried(id=id, token=claim.token, reason=reason, error=b""))
    record = world.get(id)
    assert (record.state, record.reason) == (State.CANCELLED, Reason.CANCELLED)


def test_what_has_ended_is_not_cancelled(world: World) -> None:
    ids = [succeed(world), bury(world), "nowhere"]
    before = world.records()
    codes = [CancelCode.FINAL, CancelCode.FINAL, CancelCode.UNKNOWN]
    assert world.engine.cancel(ids) == codes
    assert world.records() == before


# --------------------------------------------------------------------------- retry and discard


def test_a_retried_job_starts_afresh(world: World) -> None:
    id = world.put(expires_in_ms=10)
    first = world.claim("dying").claims[0]
    assert first.id == id
    world.engine.close("dying", [id], "killed")
    claim = world.take(suspects=True)
    world.finish(Buried(id=id, token=claim.token, reason=Reason.CRASHED, error=b"no"))
    dead = world.get(id)
    world.advance(1_000)
    assert retry_jobs(world.engine, [id]) == [ChangeCode.DONE]
    assert world.get(id) == replace(
        dead,
        state=State.READY,
        reason=None,
        counters=Counters(),
        finished_ms=None,
        expires_ms=None,
        suspect=False,
    )
    assert world.take().counters == Counters(1, 1)


def test_an_expired_job_can_be_retried(world: World) -> None:
    id = world.put(expires_in_ms=0)
    world.claim()
    assert world.get(id).reason is Reason.EXPIRED
    retry_jobs(world.engine, [id])
    assert ids_of(world.claim()) == [id]


def test_a_cancelled_job_can_be_retried(world: World) -> None:
    id = world.put()
    claim = world.take()
    world.engine.cancel([id])
    world.engine.release("worker", claim.token)
    retry_jobs(world.engine, [id])
    record = world.get(id)
    assert (record.state, record.cancel_requested) == (State.READY, False)
    claim = world.take()
    world.finish(Retried(id=id, token=claim.token, delay_ms=0, error=b""))
    assert world.get(id).state is State.RETRYING


def test_only_dead_and_cancelled_jobs_are_retried_or_discarded(world: World) -> None:
    ids = [succeed(world), world.put(run_in_ms=9), "nowhere"]
    refused = [ChangeCode.REFUSED, ChangeCode.REFUSED, ChangeCode.UNKNOWN]
    before = world.everything()
    assert retry_jobs(world.engine, ids) == refused
    assert world.engine.discard(ids) == refused
    assert world.everything() == before


def test_a_discarded_job_is_gone(world: World) -> None:
    dead, other = bury(world), bury(world)
    [record] = world.engine.get([dead])
    assert record is not None
    assert record.finished_ms is not None
    assert world.engine.discard([dead], {dead: record.finished_ms - 1}) == [ChangeCode.REFUSED]
    seen = {dead: record.finished_ms}
    assert world.engine.discard([dead, dead], seen) == [ChangeCode.DONE, ChangeCode.UNKNOWN]
    assert world.engine.get([dead]) == [None]
    assert world.ids() == [other]
    assert world.engine.stats().queues == {"queue": {State.DEAD: 1}}


def test_a_discarded_id_can_be_used_again(world: World) -> None:
    id = bury(world)
    world.engine.discard([id])
    world.put(id=id, payload=b"new")
    record = world.get(id)
    assert (record.payload, record.failures, record.counters) == (b"new", (), Counters())


def test_a_job_can_be_revived_with_another_payload(world: World) -> None:
    id = bury(world, payload=b"first")
    dead = world.get(id)
    world.advance(1_000)
    revival = Revival(id=id, finished_ms=dead.finished_ms, payload=b"second")
    assert world.engine.revive([revival]) == [ChangeCode.DONE]
    record = world.get(id)
    assert (record.state, record.payload, record.counters) == (State.READY, b"second", Counters())
    *before, entry = record.failures
    assert tuple(before) == dead.failures
    assert (entry.event, entry.error, entry.at_ms) == ("revive", b"first", world.now_ms)
    assert world.take().payload == b"second"
    assert world.engine.check() == []


def test_only_a_job_that_is_as_it_was_seen_is_revived(world: World) -> None:
    """Check that a repeated revival, after a lost reply, does not revive a job that died again."""
    id = bury(world)
    seen = Revival(id=id, finished_ms=world.get(id).finished_ms, payload=b"other")
    assert world.engine.revive([seen]) == [ChangeCode.DONE]
    world.advance(1)
    world.finish(Buried(id=id, token=world.take().token, reason=Reason.REJECTED, error=b"again"))
    before = world.everything()
    assert world.engine.revive([seen, Revival(id="nowhere")]) == [
        ChangeCode.REFUSED,
        ChangeCode.UNKNOWN,
    ]
    assert world.everything() == before


def test_what_is_revived_as_it_is_leaves_no_mark_in_the_history(world: World) -> None:
    id = bury(world)
    before = world.get(id)
    assert world.engine.revive([Revival(id=id)]) == [ChangeCode.DONE]
    after = world.get(id)
    assert (after.payload, after.failures) == (before.payload, before.failures)


# --------------------------------------------------------------------------- counters, sessions


def test_nothing_is_counted_at_first(world: World) -> None:
    stats = world.engine.stats()
    assert (stats.queues, stats.oldest_ready_ms) == ({}, {})
    assert all(number == 0 for number in stats.totals.values())


def test_records_are_counted_by_queue_and_state(world: World) -> None:
    world.put_many(2, queue="a")
    world.put(queue="b", run_in_ms=1_000)
    world.put(queue="b", priority=9)
    claim = world.take()
    assert world.engine.stats().queues == {
        "a": {State.READY: 2},
        "b": {State.SCHEDULED: 1, State.RUNNING: 1},
    }
    world.finish(Unroutable(id=claim.id, token=claim.token))
    assert world.engine.stats().queues["b"] == {State.SCHEDULED: 1, State.READY: 1}


def test_the_age_of_the_next_in_line(world: World) -> None:
    world.put(queue="a")
    world.advance(100)
    world.put(queue="a", priority=1)
    world.put(queue="b")
    world.put(queue="c", run_in_ms=1_000)
    world.advance(50)
    assert world.engine.stats().oldest_ready_ms == {"a": 50, "b": 50}


def test_totals_count_what_happened(world: World) -> None:
    succeed(world)
    bury(world)
    world.put(expires_in_ms=0)
    assert world.claim().claims == ()
    world.engine.cancel([world.put()])
    id = world.put()
    world.finish(Retried(id=id, token=world.take().token, delay_ms=0, error=b""))
    world.take("dying")
    world.engine.close("dying", [id], "killed")
    world.take("silent", suspects=True)
    world.let_expire("silent")
    world.finish(Succeeded(id=id, token="stale"))
    expected = {
        "enqueued": 5,
        "succeeded": 1,
        "dead": 1,
        "cancelled": 2,
        "retried": 1,
        "lost": 1,
        "crashed": 1,
        "stale": 1,
        "expired": 1,
    }
    totals = world.engine.stats().totals
    assert {name: totals.get(name, 0) for name in expected} == expected


def test_totals_outlive_their_jobs(world: World) -> None:
    world.engine.discard([bury(world)])
    totals = world.engine.stats().totals
    assert (totals["enqueued"], totals["dead"]) == (1, 1)


def test_sessions_are_shown_while_they_live(world: World) -> None:
    world.put_many(3)
    two = ids_of(world.claim("b", limit=2))
    world.advance(1_000)
    one = world.take("a").id
    assert world.engine.sessions() == [
        SessionRecord(session="a", expires_in_ms=LEASE_MS, jobs=1, held=(one,)),
        SessionRecord(session="b", expires_in_ms=LEASE_MS - 1_000, jobs=2, held=tuple(sorted(two))),
    ]


# ----------------------------------------------------------------------------------- retention


@pytest.mark.parametrize(
    ("ttl_ms", "kept_ms"),
    [(0, MIN_RECORD_MS), (1_000, MIN_RECORD_MS), (2 * MIN_RECORD_MS, 2 * MIN_RECORD_MS)],
)
@pytest.mark.parametrize("result", [None, b"result"])
def test_a_success_is_kept_for_its_time(
    world: World, ttl_ms: int, kept_ms: int, result: bytes | None
) -> None:
    id = succeed(world, result=result, ttl_ms=ttl_ms)
    claim_token = "nonce-000001"
    world.advance(kept_ms - 1)
    while world.engine.tend().more:
        pass
    assert world.finish(Succeeded(id=id, token=claim_token)) is Verdict.REPEATED
    world.advance(1)
    assert world.engine.tend() == Tended(purged=1)
    assert world.engine.get([id]) == [None]
    assert world.engine.stats().queues == {}


def test_a_result_goes_before_its_record(world: World) -> None:
    id = succeed(world, result=b"result", ttl_ms=1_000)
    world.advance(1_000)
    assert world.engine.tend() == Tended()
    record = world.get(id)
    assert (record.state, record.result, record.has_result) == (State.SUCCEEDED, None, False)


def test_the_dead_and_the_cancelled_are_kept_for_their_time(world: World) -> None:
    dead, cancelled = bury(world), world.put()
    world.engine.cancel([cancelled])
    world.advance(OPTIONS.dead_ttl_ms - 1)
    assert world.engine.tend() == Tended()
    world.advance(1)
    assert world.engine.tend() == Tended(purged=2)
    assert world.engine.get([dead, cancelled]) == [None, None]


def test_the_dead_are_purged_when_they_are_known(world: World) -> None:
    first, other, cancelled = bury(world), bury(world), world.put()
    world.engine.cancel([cancelled])
    assert world.engine.tend([first]) == Tended()  # their retention has not passed
    world.advance(OPTIONS.dead_ttl_ms)
    doomed = tuple(sorted([first, other]))
    assert world.engine.tend([]) == Tended(purged=1, doomed=doomed)
    assert world.engine.tend([]) == Tended(doomed=doomed)
    assert world.engine.tend([first, "nowhere"]) == Tended(purged=1, doomed=(other,))
    assert world.engine.tend([first]) == Tended(doomed=(other,))
    assert world.ids() == [other]
    retry_jobs(world.engine, [other])
    assert world.engine.tend([other]) == Tended()
    assert world.get(other).state is State.READY


@pytest.mark.parametrize(
    ("sizes", "number"),
    [
        ([SWEEP_BYTES // 4 - 1_000] * 9, 4),
        ([SWEEP_BYTES // 4 + 1_000] * 9, 3),
        ([2 * SWEEP_BYTES] * 3, 1),
        ([1] * 9, 9),
    ],
)
def test_the_bytes_of_one_sweep_are_bounded(world: World, sizes: list[int], number: int) -> None:
    """Limit the bytes of doomed jobs, which a caller reads: no batch may become slow."""
    ids = {bury(world, payload=b"x" * size) for size in sizes}
    world.advance(OPTIONS.dead_ttl_ms)
    swept: set[str] = set()
    while ids > swept:
        tended = world.engine.tend([])
        left = len(ids) - len(swept)
        assert len(tended.doomed) == min(number, left)
        assert tended.more is (number < left)
        assert world.engine.tend(tended.doomed).purged == len(tended.doomed)
        assert swept.isdisjoint(tended.doomed)
        swept.update(tended.doomed)
    assert ids == swept
    assert world.ids() == []


def test_a_revived_job_is_not_purged(world: World) -> None:
    id = bury(world)
    retry_jobs(world.engine, [id])
    world.advance(OPTIONS.dead_ttl_ms)
    assert world.engine.tend() == Tended()
    assert world.get(id).state is State.READY


def test_a_bounded_number_is_purged_at_a_time(world: World) -> None:
    world.engine.cancel(world.put_many(BITE + 1))
    world.advance(OPTIONS.dead_ttl_ms)
    assert world.engine.tend() == Tended(purged=BITE, more=True)
    assert world.engine.tend() == Tended(purged=1)


def test_an_engine_knows_how_full_it_is(world: World) -> None:
    space = world.engine.space()
    assert space.used >= 0
    assert space.limit == 0 or 0 < space.used <= space.limit

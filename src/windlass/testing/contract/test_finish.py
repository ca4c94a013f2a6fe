"""Test the end of claims: the effect of each outcome, stale tokens, repeats, results, history."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from windlass.core.durations import LATEST_MS
from windlass.core.states import (
    MAX_LOSSES,
    Counters,
    Event,
    Hold,
    Reason,
    State,
    stray_delay_ms,
)
from windlass.engine.contract import (
    BATCH_BYTES,
    MAX_FAILURES,
    MAX_WHY,
    Batch,
    Buried,
    Claim,
    Failure,
    Filter,
    JobRecord,
    Plan,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Unroutable,
    Verdict,
)
from windlass.testing.contract.world import (
    OUTCOMES,
    START_MS,
    World,
    claim_jobs,
    ids_of,
    retry_jobs,
)

every_outcome = pytest.mark.parametrize("kind", OUTCOMES)
every_end = pytest.mark.parametrize("kind", [kind for kind in OUTCOMES if kind != "progressed"])


def running(world: World) -> tuple[Claim, JobRecord]:
    """Put and claim a job, and let it run for a second."""
    world.put()
    claim = world.take()
    record = world.get(claim.id)
    world.advance(1_000)
    return claim, record


def failure(event: Event, error: bytes) -> Failure:
    at_ms = START_MS + 1_000
    return Failure(
        at_ms=at_ms,
        event=event.value,
        attempt=1,
        session="worker",
        started_ms=START_MS,
        error=error,
    )


# -------------------------------------------------------------------------------- each outcome


def test_succeeded(world: World) -> None:
    claim, record = running(world)
    outcome = Succeeded(id=claim.id, token=claim.token, result=b"42", result_ttl_ms=5)
    assert world.finish(outcome) is Verdict.OK
    assert world.get(claim.id) == replace(
        record,
        state=State.SUCCEEDED,
        finished_ms=START_MS + 1_000,
        result=b"42",
        has_result=True,
    )


@pytest.mark.parametrize("delay_ms", [0, 1, 3_600_000])
def test_retried(world: World, delay_ms: int) -> None:
    claim, record = running(world)
    outcome = Retried(id=claim.id, token=claim.token, delay_ms=delay_ms, error=b"boom")
    assert world.finish(outcome) is Verdict.OK
    assert world.get(claim.id) == replace(
        record,
        state=State.RETRYING,
        due_ms=START_MS + 1_000 + delay_ms,
        failures=(failure(Event.RETRY, b"boom"),),
    )
    world.advance(delay_ms)
    assert world.take().counters == Counters(attempt=2, starts=2)


@pytest.mark.parametrize("started", [True, False])
def test_buried(world: World, started: bool) -> None:
    claim, record = running(world)
    outcome = Buried(
        id=claim.id, token=claim.token, reason=Reason.EXHAUSTED, error=b"no", started=started
    )
    assert world.finish(outcome) is Verdict.OK
    assert world.get(claim.id) == replace(
        record,
        state=State.DEAD,
        reason=Reason.EXHAUSTED,
        finished_ms=START_MS + 1_000,
        counters=Counters(1, 1) if started else Counters(),
        failures=(failure(Event.BURY, b"no"),),
    )


@pytest.mark.parametrize("started", [True, False])
def test_released(world: World, started: bool) -> None:
    claim, record = running(world)
    assert world.finish(Released(id=claim.id, token=claim.token, started=started)) is Verdict.OK
    assert world.get(claim.id) == replace(
        record,
        state=State.READY,
        counters=Counters(starts=1, interruptions=1) if started else Counters(),
    )


def test_released_to_run_alone(world: World) -> None:
    claim, record = running(world)
    outcome = Released(id=claim.id, token=claim.token, started=False, alone=True)
    assert world.finish(outcome) is Verdict.OK
    assert world.get(claim.id) == replace(
        record, state=State.READY, counters=Counters(), suspect=True
    )
    batch = claim_jobs(world.engine, "s", "nonce-2", Plan(), 1)
    assert (batch.claims, batch.suspects) == ((), True)
    [again] = claim_jobs(world.engine, "s", "nonce-3", Plan(suspects=True), 1).claims
    retried = Retried(id=again.id, token=again.token, delay_ms=0, error=b"")
    assert world.finish(retried) is Verdict.OK
    assert not world.get(claim.id).suspect


def test_snoozed(world: World) -> None:
    claim, record = running(world)
    assert world.finish(Snoozed(id=claim.id, token=claim.token, delay_ms=50)) is Verdict.OK
    assert world.get(claim.id) == replace(
        record,
        state=State.SCHEDULED,
        due_ms=START_MS + 1_050,
        counters=Counters(starts=1, snoozes=1),
    )


@pytest.mark.parametrize("delay_ms", [LATEST_MS, 1 << 60])
def test_a_delay_ends_at_the_latest_instant(world: World, delay_ms: int) -> None:
    """Accept a delay that is too long: a worker could only repeat a refused outcome."""
    claims = [running(world)[0] for _ in range(3)]
    retried, snoozed, succeeded = [{"id": claim.id, "token": claim.token} for claim in claims]
    outcomes = [
        Retried(**retried, delay_ms=delay_ms, error=b""),
        Snoozed(**snoozed, delay_ms=delay_ms),
        Succeeded(**succeeded, result=b"result", result_ttl_ms=delay_ms),
    ]
    assert world.engine.finish(outcomes) == [Verdict.OK] * 3
    assert [world.get(claim.id).due_ms for claim in claims] == [LATEST_MS, LATEST_MS, None]
    world.advance(365_000 * 24 * 60 * 60 * 1000)
    assert world.claim().claims == ()
    assert world.get(claims[2].id).result == b"result"


def test_progressed(world: World) -> None:
    claim, record = running(world)
    for progress in (b"quarter", b"half"):
        outcome = Progressed(id=claim.id, token=claim.token, progress=progress)
        assert world.finish(outcome) is Verdict.OK
        assert world.get(claim.id) == replace(record, progress=progress)


def test_several_at_once(world: World) -> None:
    world.put_many(4)
    a, b, c, d = world.claim().claims
    verdicts = world.engine.finish(
        [
            Succeeded(id=a.id, token=a.token),
            Retried(id=b.id, token="other", delay_ms=0, error=b""),
            Buried(id=c.id, token=c.token, reason=Reason.REJECTED, error=b""),
            Succeeded(id="nowhere", token=d.token),
            Released(id=d.id, token=d.token, started=False),
        ]
    )
    assert verdicts == [Verdict.OK, Verdict.STALE, Verdict.OK, Verdict.STALE, Verdict.OK]
    states = [world.get(claim.id).state for claim in (a, b, c, d)]
    assert states == [State.SUCCEEDED, State.RUNNING, State.DEAD, State.READY]


def test_more_bytes_than_a_batch_has_at_once(world: World) -> None:
    """Report results larger than a batch together with a claim, and repeat the call."""
    world.put_many(7)
    claims = world.claim(limit=7).claims
    results = [bytes([number]) * (BATCH_BYTES // 3) for number in range(7)]
    outcomes = [
        Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=60_000)
        for claim, result in zip(claims, results, strict=True)
    ]
    last = world.put()
    nonce = world.nonce()
    for verdict in (Verdict.OK, Verdict.REPEATED):
        turn = world.engine.turn("worker", outcomes, nonce, Plan(), 5)
        assert turn.verdicts == (verdict,) * 7
        assert [claim.id for claim in turn.batch.claims] == [last]
    assert [world.get(claim.id).result for claim in claims] == results


def test_nothing_at_all(world: World) -> None:
    assert world.engine.finish([]) == []


def test_one_job_twice_in_one_call(world: World) -> None:
    claim, _ = running(world)
    outcomes = [
        Progressed(id=claim.id, token=claim.token, progress=b"end"),
        Retried(id=claim.id, token=claim.token, delay_ms=9, error=b"boom"),
        Succeeded(id=claim.id, token=claim.token, result=b"late", result_ttl_ms=9),
        Progressed(id=claim.id, token=claim.token, progress=b"late"),
    ]
    verdicts = world.engine.finish(outcomes)
    assert verdicts == [Verdict.OK, Verdict.OK, Verdict.STALE, Verdict.STALE]
    record = world.get(claim.id)
    assert (record.state, record.progress, record.result) == (State.RETRYING, b"end", None)


# -------------------------------------------------------------------------- tokens not current


@every_outcome
def test_a_wrong_token_changes_nothing(world: World, kind: str) -> None:
    claim, _ = running(world)
    before = world.records()
    assert world.finish(OUTCOMES[kind](claim.id, "wrong")) is Verdict.STALE
    assert world.records() == before
    assert world.engine.stats().totals["stale"] == 1


@every_outcome
def test_the_token_of_another_job_changes_nothing(world: World, kind: str) -> None:
    mine, other = world.put_many(2)
    world.take("worker")
    token = world.take("worker").token
    before = world.records()
    assert world.finish(OUTCOMES[kind](mine, token)) is Verdict.STALE
    assert world.records() == before
    assert world.get(other).state is State.RUNNING


@every_outcome
def test_an_unknown_job_is_stale(world: World, kind: str) -> None:
    assert world.finish(OUTCOMES[kind]("nowhere", "token")) is Verdict.STALE


def lose(world: World, claim: Claim) -> None:
    world.let_expire("worker")


def crash(world: World, claim: Claim) -> None:
    world.engine.close("worker", [claim.id], "killed")


def hand_back(world: World, claim: Claim) -> None:
    world.engine.close("worker", [], "ended")


@every_outcome
@pytest.mark.parametrize("taken_back", [lose, crash, hand_back])
@pytest.mark.parametrize("claimed_again", [False, True])
def test_a_claim_that_was_taken_back_is_stale(
    world: World, kind: str, taken_back: Callable[[World, Claim], None], claimed_again: bool
) -> None:
    claim, _ = running(world)
    taken_back(world, claim)
    if claimed_again:
        world.claim("next", suspects=world.get(claim.id).suspect)
        assert world.get(claim.id).state is State.RUNNING
    before = world.records()
    assert world.finish(OUTCOMES[kind](claim.id, claim.token)) is Verdict.STALE
    assert world.records() == before


# ----------------------------------------------------------------------------------- repeats


@every_end
@pytest.mark.parametrize("again", OUTCOMES)
def test_a_claim_that_has_ended_is_not_ended_again(world: World, kind: str, again: str) -> None:
    claim, _ = running(world)
    world.finish(OUTCOMES[kind](claim.id, claim.token))
    before = world.records()
    expected = Verdict.REPEATED if again == kind else Verdict.STALE
    assert world.finish(OUTCOMES[again](claim.id, claim.token)) is expected
    assert world.records() == before


@every_end
@pytest.mark.parametrize("in_turn", [False, True])
def test_each_outcome_of_a_batch_is_applied_once(world: World, kind: str, in_turn: bool) -> None:
    """Some outcomes of a batch are repeats, one comes twice in it, and one is stale."""
    world.put_many(3)
    repeated, fresh, stale = [(claim.id, claim.token) for claim in world.claim(limit=3).claims]
    make = OUTCOMES[kind]
    world.finish(make(*repeated))
    keys = [repeated, fresh, fresh, (stale[0], "wrong"), repeated]
    outcomes = [make(*key) for key in keys]
    expected = [Verdict.REPEATED, Verdict.OK, Verdict.REPEATED, Verdict.STALE, Verdict.REPEATED]
    if in_turn:
        turn = world.engine.turn("other", outcomes, world.nonce(), Plan(), 0)
        assert turn.verdicts == tuple(expected)
    else:
        assert world.engine.finish(outcomes) == expected
    assert world.get(stale[0]).state is State.RUNNING
    assert world.engine.stats().totals["stale"] == 1


def test_an_end_is_recognised_while_the_next_claim_runs(world: World) -> None:
    claim, _ = running(world)
    world.finish(Released(id=claim.id, token=claim.token, started=False))
    world.take("next")
    before = world.records()
    again = Released(id=claim.id, token=claim.token, started=False)
    assert world.finish(again) is Verdict.REPEATED
    assert world.records() == before


def test_an_end_by_release_is_recognised(world: World) -> None:
    claim, _ = running(world)
    assert world.engine.release("worker", claim.token) == 1
    assert world.engine.release("worker", claim.token) == 0
    again = Released(id=claim.id, token=claim.token, started=False)
    assert world.finish(again) is Verdict.REPEATED
    assert world.finish(Succeeded(id=claim.id, token=claim.token)) is Verdict.STALE
    assert world.get(claim.id).state is State.READY


def test_an_end_is_recognised_after_an_operator_retried_the_job(world: World) -> None:
    claim, _ = running(world)
    outcome = OUTCOMES["buried"](claim.id, claim.token)
    world.finish(outcome)
    retry_jobs(world.engine, [claim.id])
    assert world.finish(outcome) is Verdict.REPEATED
    assert world.get(claim.id).state is State.READY


# --------------------------------------------------------------------------------- unroutable


def test_a_held_job_keeps_the_reason_until_it_runs(world: World) -> None:
    id = world.put()
    world.finish(Unroutable(id=id, token=world.take().token, why=b"task unknown"))
    assert world.get(id).held_because == b"task unknown"
    assert world.engine.find(Filter()).records[0].held_because == b"task unknown"
    world.engine.adopt(["task"])
    assert world.get(id).held_because == b"task unknown"
    claim = world.take()
    assert world.get(id).held_because is None
    world.finish(Progressed(id=id, token=claim.token, progress=b"half"))
    assert (world.get(id).progress, world.get(id).held_because) == (b"half", None)


def test_the_reason_of_a_held_job_is_bounded(world: World) -> None:
    id = world.put()
    why = b"w" * (MAX_WHY + 1)
    world.finish(Unroutable(id=id, token=world.take().token, why=why))
    assert world.get(id).held_because == why[:MAX_WHY]
    world.engine.cancel([id])
    retry_jobs(world.engine, [id])
    assert world.get(id).held_because is None


def test_unroutable_jobs_rest_each_time_longer(world: World) -> None:
    id = world.put()
    for strays in range(8):
        claim = world.take()
        assert world.finish(Unroutable(id=id, token=claim.token)) is Verdict.OK
        record = world.get(id)
        delay_ms = stray_delay_ms(strays)
        assert (record.state, record.hold) == (State.READY, Hold.UNROUTABLE)
        assert record.due_ms == world.now_ms + delay_ms
        assert record.counters == Counters(strays=strays + 1)
        world.advance(delay_ms - 1)
        assert world.claim() == Batch(next_in_ms=1)
        world.advance(1)
    assert ids_of(world.claim()) == [id]
    record = world.get(id)
    assert (record.hold, record.due_ms) == (Hold.NONE, None)


def test_adoption_ends_the_rest_of_known_tasks(world: World) -> None:
    known, unknown = world.put(task="known"), world.put(task="unknown")
    for claim in world.claim().claims:
        world.finish(Unroutable(id=claim.id, token=claim.token))
    assert world.engine.adopt(["other"]) == 0
    assert world.engine.adopt(["known", "known", "other"]) == 1
    assert ids_of(world.claim()) == [known]
    assert world.get(unknown).hold is Hold.UNROUTABLE
    assert world.engine.adopt(["known"]) == 0
    assert world.engine.adopt([]) == 0


# ------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("result", [b"", b"\x00\xff", b"x" * (1 << 20)])
def test_a_result_comes_back_unchanged(world: World, result: bytes) -> None:
    claim, _ = running(world)
    world.finish(Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=10))
    world.advance(9)
    record = world.get(claim.id)
    assert (record.has_result, record.result) == (True, result)


@pytest.mark.parametrize(("result", "ttl_ms"), [(None, 10), (b"result", 0), (b"result", 5)])
def test_no_result_is_kept(world: World, result: bytes | None, ttl_ms: int) -> None:
    claim, _ = running(world)
    world.finish(Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=ttl_ms))
    world.advance(5)
    record = world.get(claim.id)
    assert (record.state, record.has_result, record.result) == (State.SUCCEEDED, False, None)


# ------------------------------------------------------------------------------------ history


def test_the_history_has_an_entry_for_each_failure(world: World) -> None:
    id = world.put()
    first = world.take("one")
    world.finish(Retried(id=id, token=first.token, delay_ms=0, error=b"boom"))
    world.claim("two")
    world.engine.close("two", [id], "signal 9")
    last = world.take("three", suspects=True)
    world.finish(Buried(id=id, token=last.token, reason=Reason.EXHAUSTED, error=b"end"))
    entries = [
        (entry.event, entry.attempt, entry.session, entry.error) for entry in world.get(id).failures
    ]
    assert entries == [
        ("retry", 1, "one", b"boom"),
        ("crash", 2, "two", b"signal 9"),
        ("bury", 2, "three", b"end"),
    ]


def test_the_history_keeps_the_newest_entries(world: World) -> None:
    id = world.put()
    for number in range(MAX_FAILURES + 3):
        claim = world.take()
        error = str(number).encode()
        world.finish(Retried(id=id, token=claim.token, delay_ms=0, error=error))
    kept = [int(entry.error) for entry in world.get(id).failures]
    assert kept == list(range(3, MAX_FAILURES + 3))


@every_end
def test_a_suspect_is_cleared_by_an_end_of_its_own(world: World, kind: str) -> None:
    id = world.put()
    world.claim("dying")
    world.engine.close("dying", [id], "killed")
    claim = world.take(suspects=True)
    world.finish(OUTCOMES[kind](id, claim.token))
    assert world.get(id).suspect is (kind in {"released", "unroutable"})


def test_losses_are_counted_without_end(world: World) -> None:
    """Lose a job often: the worker, not the engine, ends a job with too many losses."""
    id = world.put()
    for number in range(MAX_LOSSES + 1):
        session = f"worker-{number}"
        world.take(session, suspects=number >= 2)
        world.let_expire(session)
        record = world.get(id)
        assert record.counters == Counters(starts=number + 1, losses=number + 1)
        assert (record.state, record.suspect) == (State.READY, number + 1 >= 2)


def test_progress_begins_anew_with_every_start(world: World) -> None:
    claim, _ = running(world)
    world.finish(Progressed(id=claim.id, token=claim.token, progress=b"half"))
    world.finish(Released(id=claim.id, token=claim.token, started=True))
    assert world.get(claim.id).progress == b"half"
    world.take("another")
    assert world.get(claim.id).progress is None

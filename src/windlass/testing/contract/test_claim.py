"""Test claims: order, plans, due times, expiries, repeats, and other fields of a batch."""

from collections.abc import Callable

import pytest

from windlass.core.states import Counters, Reason, State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    BATCH_BYTES,
    BITE,
    Batch,
    Capability,
    Claim,
    Plan,
    Progressed,
    Released,
    Retried,
    Share,
    Snoozed,
    Succeeded,
    Turn,
    UniqueKey,
    Unroutable,
    Verdict,
)
from windlass.testing.contract.world import (
    LEASE_MS,
    START_MS,
    World,
    claim_jobs,
    ids_of,
    retry_jobs,
)

in_strict_order = pytest.mark.needs(Capability.STRICT_ORDER)
many_processes = pytest.mark.needs(Capability.MANY_PROCESSES)


def test_gives_what_was_put(world: World) -> None:
    id = world.put(task="mail.send", queue="mail", priority=5, payload=b"body")
    world.advance(10)
    assert world.claim("worker", nonce="token") == Batch(
        claims=(
            Claim(
                id=id,
                token="token",
                task="mail.send",
                queue="mail",
                priority=5,
                payload=b"body",
                counters=Counters(attempt=1, starts=1),
                created_ms=START_MS,
                waited_ms=10,
            ),
        )
    )
    record = world.get(id)
    assert (record.state, record.session) == (State.RUNNING, "worker")
    assert (record.started_ms, record.counters) == (START_MS + 10, Counters(1, 1))


def test_nothing_to_claim(world: World) -> None:
    assert world.claim() == Batch()


def test_a_job_is_claimed_once(world: World) -> None:
    world.put()
    assert len(world.claim().claims) == 1
    assert world.claim().claims == ()
    assert world.claim("other").claims == ()


# ------------------------------------------------------------------------------------------- order


@in_strict_order
def test_higher_priority_first_then_in_order_of_the_puts(world: World) -> None:
    priorities = [0, 100, -100, 7, 0, 100, -100, 7, -1]
    ids = [world.put(priority=priority) for priority in priorities]
    expected = [id for _, id in sorted(zip(priorities, ids, strict=True), key=lambda x: -x[0])]
    claimed = [id for _ in range(3) for id in ids_of(world.claim(limit=3))]
    assert claimed == expected


@in_strict_order
def test_a_batch_is_put_in_its_order(world: World) -> None:
    ids = world.put_many(500)
    assert ids_of(world.claim(limit=500)) == ids


@in_strict_order
def test_an_empty_plan_merges_all_queues(world: World) -> None:
    ids = [world.put(queue=queue) for queue in ("b", "a", "c", "b", "a")]
    urgent = world.put(queue="z", priority=1)
    assert ids_of(world.claim()) == [urgent, *ids]


@in_strict_order
def test_queues_are_served_in_strict_order(world: World) -> None:
    for queue, priority in (("low", 100), ("high", 0), ("other", 100), ("low", 50), ("high", 1)):
        world.put(queue=queue, priority=priority)
    batch = world.claim(queues=("high", "low"))
    served = [(claim.queue, claim.priority) for claim in batch.claims]
    assert served == [("high", 1), ("high", 0), ("low", 100), ("low", 50)]


def test_a_plan_leaves_other_queues_alone(world: World) -> None:
    world.put(queue="a")
    assert world.claim(queues=("b", "c")).claims == ()
    assert len(world.claim(queues=("b", "a")).claims) == 1


def test_a_queue_named_twice_is_served_once(world: World) -> None:
    id = world.put(queue="a")
    assert ids_of(world.claim(queues=("a", "b", "a"))) == [id]
    assert world.get(id).counters == Counters(1, 1)


def test_a_limit(world: World) -> None:
    world.put_many(5)
    assert [len(world.claim(limit=limit).claims) for limit in (0, 2, 1, 9)] == [0, 2, 1, 2]


@in_strict_order
def test_a_batch_has_a_budget_of_bytes(world: World) -> None:
    """Claim batches until no job is left; no batch exceeds the byte budget by more than one job."""
    ids = world.put_many(7, payload=b"x" * 100)
    world.put_many(2, payload=b"x" * 1_000)
    sizes: list[int] = []
    claimed: list[str] = []
    while batch := world.claim(most_bytes=300).claims:
        sizes.append(sum(len(claim.payload) for claim in batch))
        claimed += [claim.id for claim in batch]
    assert len(claimed) == len(set(claimed)) == 9
    assert sorted(claimed)[:7] == ids
    assert max(sizes) <= 1_000 + 300  # one job of the last partition may be too large
    assert len(sizes) >= 4


def test_a_batch_that_was_cut_short_says_that_there_is_more(world: World) -> None:
    world.put_many(3, payload=b"x" * 100)
    first = world.claim(most_bytes=100)
    assert first.claims
    assert len(first.claims) < 3
    assert first.next_in_ms == 0
    more = [world.claim(most_bytes=100) for _ in range(3)]
    assert sum(len(batch.claims) for batch in more) == 3 - len(first.claims)
    assert more[-1] == Batch()


def test_the_first_job_of_a_batch_may_exceed_the_budget(world: World) -> None:
    large = world.put(payload=b"x" * 100_000)
    batch = world.claim(most_bytes=10)
    assert ids_of(batch) == [large]
    assert batch.next_in_ms is None or batch.next_in_ms == 0


def test_a_usual_batch_has_about_four_megabytes(world: World) -> None:
    world.put_many(6, payload=b"x" * (BATCH_BYTES // 4))
    batch = world.claim()
    assert 4 <= len(batch.claims) <= 5
    assert batch.next_in_ms == 0
    assert 1 <= len(world.claim().claims) <= 2


def test_a_repeated_claim_gives_the_batch_that_was_cut_short(world: World) -> None:
    world.put_many(5, payload=b"x" * 100)
    first = world.claim(nonce="same", most_bytes=250)
    assert 0 < len(first.claims) < 5
    assert world.claim(nonce="same", most_bytes=250).claims == first.claims
    assert world.claim(nonce="same").claims == first.claims


@in_strict_order
def test_a_batch_that_was_cut_short_keeps_the_turns_of_queues(world: World) -> None:
    first, *_ = world.put_many(3, queue="a", payload=b"x" * 100)
    other = world.put(queue="b", payload=b"x" * 100)
    shares = (Share(0, 2, b"\0\1"),)
    plan = Plan(queues=("a", "b"), shares=shares, most_bytes=200)
    assert ids_of(claim_jobs(world.engine, "worker", world.nonce(), plan, 4)) == [first, other]


@in_strict_order
def test_a_job_that_was_replaced_counts_with_its_new_size(world: World) -> None:
    """Replace a small payload by a large one: engines do not measure small ones."""
    unique = UniqueKey(key="key", on_conflict=OnConflict.REPLACE)
    world.put(unique=unique)
    world.put(unique=unique, payload=b"x" * BATCH_BYTES)
    world.put(queue="queue", payload=b"y")
    assert len(world.claim(limit=500).claims) == 1
    assert len(world.claim(limit=500).claims) == 1


def test_a_limit_over_several_queues(world: World) -> None:
    for queue in ("a", "b", "c"):
        world.put_many(2, queue=queue)
    batch = world.claim(queues=("a", "b", "c"), limit=3)
    assert [claim.queue for claim in batch.claims] == ["a", "a", "b"]


GIVING_BACK: dict[str, Callable[[World, Claim], object]] = {
    "release": lambda world, claim: world.engine.release("worker", claim.token),
    "finish": lambda world, claim: world.finish(
        Released(id=claim.id, token=claim.token, started=True)
    ),
    "unroutable": lambda world, claim: (
        world.finish(Unroutable(id=claim.id, token=claim.token)),
        world.engine.adopt([claim.task]),
    ),
    "lose": lambda world, claim: world.let_expire("worker"),
    "close": lambda world, claim: world.engine.close("worker", [], "gone"),
}


@in_strict_order
@pytest.mark.parametrize("how", GIVING_BACK)
def test_a_job_given_back_has_its_old_place(world: World, how: str) -> None:
    first, second = world.put(), world.put()
    claim = world.take("worker")
    third = world.put()
    GIVING_BACK[how](world, claim)
    assert ids_of(world.claim("next")) == [first, second, third]


COMING_BACK: dict[str, Callable[[World, Claim], object]] = {
    "retry": lambda world, claim: world.finish(
        Retried(id=claim.id, token=claim.token, delay_ms=0, error=b"")
    ),
    "snooze": lambda world, claim: world.finish(
        Snoozed(id=claim.id, token=claim.token, delay_ms=0)
    ),
    "revive": lambda world, claim: (
        world.engine.release("worker", claim.token),
        world.engine.cancel([claim.id]),
        retry_jobs(world.engine, [claim.id]),
    ),
}


@in_strict_order
@pytest.mark.parametrize("how", COMING_BACK)
def test_a_job_that_comes_back_is_last(world: World, how: str) -> None:
    first, second = world.put(), world.put()
    COMING_BACK[how](world, world.take())
    assert ids_of(world.claim()) == [second, first]


# -------------------------------------------------------------------------------------- due times


def test_never_early(world: World) -> None:
    id = world.put(run_in_ms=1000)
    world.advance(999)
    assert world.claim() == Batch(next_in_ms=1)
    assert world.get(id).state is State.SCHEDULED
    world.advance(1)
    assert ids_of(world.claim()) == [id]
    assert world.get(id).due_ms is None


@in_strict_order
def test_due_jobs_line_up_by_due_time_then_in_order_of_the_puts(world: World) -> None:
    late, early, tied = (world.put(run_in_ms=delay) for delay in (30, 10, 30))
    ready = world.put()
    world.advance(100)
    assert ids_of(world.claim()) == [ready, early, late, tied]


def test_a_claim_promotes_jobs_that_it_does_not_want(world: World) -> None:
    id = world.put(queue="other", run_in_ms=10)
    world.advance(10)
    assert world.claim(queues=("queue",), limit=0) == Batch()
    assert world.get(id).state is State.READY


def test_a_bounded_number_is_promoted_at_a_time(world: World) -> None:
    world.put_many(BITE + 1, run_in_ms=10)
    world.advance(10)
    batch = world.claim(limit=0)
    assert batch.next_in_ms == 0
    assert world.engine.stats().queues == {"queue": {State.READY: BITE, State.SCHEDULED: 1}}
    assert world.claim(limit=0).next_in_ms is None
    assert world.engine.stats().queues == {"queue": {State.READY: BITE + 1}}


def test_the_batch_says_when_the_next_thing_is_due(world: World) -> None:
    world.put(run_in_ms=500, queue="other")
    assert world.claim(queues=("queue",)).next_in_ms == 500
    world.put(run_in_ms=200)
    assert world.claim().next_in_ms == 200
    world.advance(150)
    assert world.claim().next_in_ms == 50
    world.advance(50)
    assert world.claim().next_in_ms == 300


# ---------------------------------------------------------------------------------------- expiries


@pytest.mark.parametrize(("after_ms", "starts"), [(99, True), (100, False), (101, False)])
def test_an_expired_job_is_not_started(world: World, after_ms: int, starts: bool) -> None:
    id = world.put(expires_in_ms=100)
    world.advance(after_ms)
    assert bool(world.claim().claims) is starts
    record = world.get(id)
    if starts:
        assert record.state is State.RUNNING
    else:
        assert (record.state, record.reason) == (State.CANCELLED, Reason.EXPIRED)
        assert (record.finished_ms, record.counters) == (world.now_ms, Counters())


@in_strict_order
def test_expired_jobs_do_not_count_toward_the_limit(world: World) -> None:
    for _ in range(3):
        world.put(expires_in_ms=0)
        world.put_many(20, expires_in_ms=0)
        world.put()
    assert len(world.claim(limit=2).claims) == 2
    totals = world.engine.stats().totals
    assert (totals["expired"], totals["cancelled"]) == (42, 42)


def test_a_job_that_expires_before_it_is_due(world: World) -> None:
    id = world.put(run_in_ms=100, expires_in_ms=50)
    world.advance(100)
    assert world.claim().claims == ()
    assert world.get(id).reason is Reason.EXPIRED


def test_a_running_job_does_not_expire(world: World) -> None:
    id = world.put(expires_in_ms=100)
    world.take()
    world.advance(200)
    world.claim("other")
    assert world.get(id).state is State.RUNNING


# ----------------------------------------------------------------------------------------- repeats


def test_a_repeated_claim_gives_the_same_jobs(world: World) -> None:
    world.put_many(3, queue="a")
    world.put_many(2, queue="b", priority=9)
    first = world.claim(nonce="same", limit=4)
    before = world.records()
    again = world.claim(nonce="same", limit=4)
    assert again == first
    assert world.records() == before


def test_a_repeated_claim_gives_what_is_still_held(world: World) -> None:
    ids = world.put_many(4)
    world.claim(nonce="same", limit=3)
    world.finish(Succeeded(id=ids[1], token="same"))
    assert ids_of(world.claim(nonce="same", limit=3)) == [ids[0], ids[2]]
    assert ids_of(world.claim(nonce="same", limit=0)) == [ids[0], ids[2]]


def test_a_nonce_belongs_to_its_session(world: World) -> None:
    first, second = world.put_many(2)
    assert ids_of(world.claim("one", nonce="same", limit=1)) == [first]
    assert ids_of(world.claim("two", nonce="same", limit=1)) == [second]
    assert ids_of(world.claim("one", nonce="same", limit=1)) == [first]


def spread(world: World, number: int, queue: str = "a") -> list[str]:
    """Put jobs one by one, so that every partition gets some."""
    return [world.put(queue=queue) for _ in range(number)]


@many_processes
@pytest.mark.parametrize("queues", [(), ("a",), ("b", "a")])
def test_a_claim_may_be_repeated_through_another_engine_object(
    world: World, queues: tuple[str, ...]
) -> None:
    """Let both objects know the session, and let the reply to the last claim be lost."""
    plan, objects = Plan(queues=queues), [world.engine, world.open()]
    spread(world, 5)
    for engine in objects:
        assert len(claim_jobs(engine, "worker", world.nonce(), plan, 1).claims) == 1
    lost = world.nonce()
    first = ids_of(claim_jobs(objects[0], "worker", lost, plan, 5))
    spread(world, 8)
    before = world.records()
    assert len(first) == 3
    for engine in (objects[1], world.open(), objects[0]):
        assert set(ids_of(claim_jobs(engine, "worker", lost, plan, 5))) == set(first)
    assert world.records() == before
    objects[1].finish([Succeeded(id=first[0], token=lost)])
    again = ids_of(claim_jobs(world.open(), "worker", lost, plan, 5))
    assert set(again) == set(first[1:])


@many_processes
@pytest.mark.parametrize("queues", [(), ("a",), ("b", "a")])
def test_a_late_claim_through_another_engine_object_leases_nothing(
    world: World, queues: tuple[str, ...]
) -> None:
    """The claim was delayed: the session has claimed again since then."""
    plan, late, next_nonce = Plan(queues=queues), world.nonce(), world.nonce()
    spread(world, 12)
    assert len(claim_jobs(world.engine, "worker", next_nonce, plan, 1).claims) == 1
    assert claim_jobs(world.open(), "worker", late, plan, 5).claims == ()


@many_processes
def test_a_turn_through_another_engine_object_ends_the_claims_of_the_first(world: World) -> None:
    spread(world, 8)
    first = claim_jobs(world.engine, "worker", world.nonce(), Plan(), 4).claims
    outcomes = [Succeeded(id=claim.id, token=claim.token) for claim in first]
    other, nonce = world.open(), world.nonce()
    turn = other.turn("worker", outcomes, nonce, Plan(), 4)
    assert turn.verdicts == (Verdict.OK,) * 4
    repeated = world.engine.turn("worker", outcomes, nonce, Plan(), 4)
    assert repeated.verdicts == (Verdict.REPEATED,) * 4
    assert set(ids_of(repeated.batch)) == set(ids_of(turn.batch))
    assert len(turn.batch.claims) == 4


@pytest.mark.parametrize("queues", [(), ("a",), ("b", "a")])
def test_a_claim_that_found_nothing_leaves_its_nonce_free(
    world: World, queues: tuple[str, ...]
) -> None:
    plan, nonce = Plan(queues=queues), world.nonce()
    assert claim_jobs(world.engine, "worker", nonce, plan, 5).claims == ()
    (id,) = spread(world, 1)
    assert ids_of(claim_jobs(world.engine, "worker", nonce, plan, 5)) == [id]


def test_a_repeated_claim_has_no_progress_lost(world: World) -> None:
    id = world.put()
    claim = world.take()
    world.finish(Progressed(id=id, token=claim.token, progress=b"half"))
    world.claim(nonce=claim.token)
    assert world.get(id).progress == b"half"


def test_a_dead_session_claims_nothing(world: World) -> None:
    world.put()
    world.engine.close("worker", [], "ended")
    assert world.claim("worker") == Batch(gone=True)
    assert len(world.claim("other").claims) == 1


def test_a_claim_gives_the_session_a_whole_lease(world: World) -> None:
    world.put_many(2)
    world.take("worker")
    world.advance(LEASE_MS // 2)
    world.take("worker")
    (session,) = world.engine.sessions()
    assert (session.session, session.expires_in_ms, session.jobs) == ("worker", LEASE_MS, 2)


# ---------------------------------------------------------------------------------------- suspects


def make_suspects(world: World, number: int) -> list[str]:
    """Make suspects: jobs that were running when their process died."""
    ids = world.put_many(number)
    world.claim("dying")
    world.engine.close("dying", ids, "killed")
    return ids


def test_suspects_are_claimed_by_those_who_ask_for_them(world: World) -> None:
    suspects = make_suspects(world, 2)
    (ordinary,) = world.put_many(1)
    batch = world.claim()
    assert (ids_of(batch), batch.suspects) == ([ordinary], True)
    batch = world.claim(suspects=True, limit=1)
    assert (ids_of(batch), batch.suspects) == (suspects[:1], True)
    assert batch.claims[0].suspect
    batch = world.claim(suspects=True, limit=1)
    assert (ids_of(batch), batch.suspects) == (suspects[1:], False)


def test_a_look_by_nobody_says_whether_suspects_wait(world: World) -> None:
    """Claim without a session, as a supervisor does for busy workers, which do not claim."""
    assert claim_jobs(world.engine, "", "", Plan(suspects=True), 0).suspects is False
    make_suspects(world, 2)
    before = world.everything()
    assert claim_jobs(world.engine, "", "", Plan(suspects=True), 0).suspects is True
    assert world.everything() == before


def test_suspects_of_other_queues_are_not_mentioned(world: World) -> None:
    make_suspects(world, 1)
    assert world.claim(queues=("other",)).suspects is False
    assert world.claim(queues=("other", "queue")).suspects is True


# -------------------------------------------------------------------------------------------- turn


def test_a_turn_finishes_and_claims(world: World) -> None:
    first, second = world.put_many(2)
    claim = world.take()
    outcomes = [
        Succeeded(id=first, token=claim.token),
        Succeeded(id=second, token="stale"),
    ]
    turn = world.engine.turn("worker", outcomes, "nonce-next", Plan(), 1)
    assert turn.verdicts == (Verdict.OK, Verdict.STALE)
    assert ids_of(turn.batch) == [second]
    assert world.get(first).state is State.SUCCEEDED


def test_a_turn_may_claim_what_it_gave_back(world: World) -> None:
    id = world.put()
    claim = world.take()
    outcome = Released(id=id, token=claim.token, started=False)
    turn = world.engine.turn("worker", [outcome], "nonce-next", Plan(), 1)
    assert ids_of(turn.batch) == [id]
    assert world.get(id).counters == Counters(1, 1)


def test_a_turn_of_a_dead_session_still_reports(world: World) -> None:
    world.engine.close("worker", [], "ended")
    id = world.put()
    claim = world.take("other")
    outcome = Succeeded(id=id, token=claim.token)
    turn = world.engine.turn("worker", [outcome], "nonce-next", Plan(), 1)
    assert turn == Turn(verdicts=(Verdict.OK,), batch=Batch(gone=True))


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_expiring_is_bounded(world: World) -> None:
    """Check that a claim expires a bounded number of jobs, and the next claim continues."""
    world.put_many(BITE + 5, expires_in_ms=1)
    last = world.put()
    world.advance(1)
    assert world.claim(limit=1) == Batch(next_in_ms=0)
    assert world.engine.stats().totals["expired"] == BITE
    assert ids_of(world.claim(limit=1)) == [last]
    assert world.engine.stats().totals["expired"] == BITE + 5


@in_strict_order
def test_a_job_beyond_the_byte_limit_keeps_its_progress(world: World) -> None:
    """Only a claim that takes the job removes the progress of the attempt before."""
    ids = world.put_many(2, payload=b"x" * 100)
    for claim in world.claim().claims:
        progress = Progressed(id=claim.id, token=claim.token, progress=b"half")
        world.engine.finish([progress, Released(id=claim.id, token=claim.token, started=True)])
    (taken,) = ids_of(world.claim(most_bytes=150))
    (left,) = set(ids) - {taken}
    assert (world.get(taken).progress, world.get(left).progress) == (None, b"half")

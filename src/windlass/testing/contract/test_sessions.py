"""Test liveness: heartbeats, introductions, unknown nonces, expiry, silence of all workers."""

import pytest

from windlass.core.states import Counters, Event, Reason, State
from windlass.engine.contract import (
    BITE,
    MAX_HELD,
    UNKNOWN_NONCE_MS,
    Batch,
    Beat,
    Capability,
    Pulse,
    Retried,
    SessionRecord,
    Succeeded,
    Tended,
    Verdict,
)
from windlass.testing.contract.machine import all_introductions
from windlass.testing.contract.world import LEASE_MS, World, ids_of

# --------------------------------------------------------------------------------------- beats


def test_a_beat_of_an_unknown_session_creates_nothing(world: World) -> None:
    assert world.engine.beat([Beat(session="new")]) == [Pulse(session="new", alive=True)]
    assert world.engine.sessions() == []


def test_beats_keep_all_claims_for_as_long_as_it_takes(world: World) -> None:
    ids = world.put_many(3)
    world.claim("worker")
    world.pass_time(20 * LEASE_MS, "worker")
    world.claim("other", limit=0)
    assert world.engine.stats().queues == {"queue": {State.RUNNING: 3}}
    assert world.engine.sessions() == [
        SessionRecord(session="worker", expires_in_ms=LEASE_MS, jobs=3, held=tuple(sorted(ids)))
    ]


def test_a_beat_revives_an_expired_session_that_nobody_reaped(world: World) -> None:
    world.put()
    claim = world.take("worker")
    world.pass_time(2 * LEASE_MS)
    assert world.alive("worker")
    assert world.claim("other") == Batch()
    assert world.finish(Succeeded(id=claim.id, token=claim.token)) is Verdict.OK


def test_many_beats_are_answered_in_their_order(world: World) -> None:
    world.put_many(2)
    world.take("a")
    world.take("b")
    world.engine.close("b", [], "ended")
    pulses = world.engine.beat([Beat(session=name) for name in ("b", "new", "a")])
    assert [(pulse.session, pulse.alive) for pulse in pulses] == [
        ("b", False),
        ("new", True),
        ("a", True),
    ]
    assert world.engine.beat([]) == []


def test_a_beat_tells_of_cancellations(world: World) -> None:
    for id in ("c", "a", "b"):
        world.put(id=id)
    world.claim("worker")
    world.put(id="d")
    world.take("other")
    world.engine.cancel(["d", "c", "a"])
    pulses = world.engine.beat([Beat(session="worker"), Beat(session="other")])
    assert [pulse.cancel for pulse in pulses] == [("a", "c"), ("d",)]


# -------------------------------------------------------------------------------- introductions


def test_a_session_that_says_who_it_is_is_known(world: World) -> None:
    world.engine.beat([Beat(session="worker", info=b"one"), Beat(session="other")])
    world.advance(1_000)
    world.engine.beat([Beat(session="worker", info=b"\x00two")])
    world.engine.beat([Beat(session="worker")])
    assert world.engine.sessions() == [
        SessionRecord(session="worker", expires_in_ms=LEASE_MS, jobs=0, info=b"\x00two")
    ]


def test_what_a_session_says_stays_with_its_claims(world: World) -> None:
    ids = world.put_many(3)
    world.engine.beat([Beat(session="worker", info=b"me")])
    world.claim("worker", limit=2)
    world.claim("worker", limit=1)
    assert world.engine.sessions() == [
        SessionRecord(
            session="worker", expires_in_ms=LEASE_MS, jobs=3, held=tuple(sorted(ids)), info=b"me"
        )
    ]


def test_only_so_many_jobs_of_a_session_are_named(world: World) -> None:
    ids = world.put_many(MAX_HELD + 1)
    world.claim("worker")
    [record] = world.engine.sessions()
    assert record.jobs == MAX_HELD + 1
    assert len(record.held) == len(set(record.held)) == MAX_HELD
    assert set(record.held) < set(ids)


def test_a_session_that_only_said_who_it_is_ends_as_others_do(world: World) -> None:
    world.engine.beat([Beat(session="idle", info=b"me"), Beat(session="closed", info=b"me")])
    world.engine.close("closed", [], "ended")
    assert [record.session for record in world.engine.sessions()] == ["idle"]
    world.let_expire("idle")
    world.engine.beat([Beat(session=name, info=b"again") for name in ("idle", "closed")])
    assert not world.alive("closed")
    assert not world.alive("idle")
    assert world.engine.sessions() == []


def test_what_sessions_say_is_found_by_the_beginning_of_their_names(world: World) -> None:
    names = [f"host.{number}" for number in range(3 * BITE)]
    others = ["hos", "host", "hosts.1", "other.1", "\U0001f600.1"]
    world.engine.beat([Beat(session=name, info=name.encode()) for name in (*names, *others)])
    world.put_many(2)
    world.claim("host.silent")
    world.engine.close("host.7", [], "ended")
    world.engine.lose("host.8", "its worker died")
    said = all_introductions(world.engine, "host.")
    assert said == {name: name.encode() for name in names if name not in ("host.7", "host.8")}
    assert all_introductions(world.engine, "\U0001f600.") == {
        "\U0001f600.1": "\U0001f600.1".encode()
    }
    assert len(all_introductions(world.engine, "")) == len(names) + len(others) - 2


def test_sessions_that_beat_meanwhile_hide_no_silent_one(world: World) -> None:
    names = [f"host.{number:05}" for number in range(6 * BITE)]
    for at in range(0, len(names), BITE):
        world.engine.beat([Beat(session=name, info=b"x") for name in names[at : at + BITE]])
        world.advance(1)
    found: set[str] = set()
    cursor, silent = None, set(names[::2])
    while True:
        bite = world.engine.introductions("host.", cursor)
        found.update(bite.infos)
        if bite.cursor is None:
            break
        cursor = bite.cursor
        world.advance(1)
        world.engine.beat([Beat(session=name) for name in names[1::2]][:BITE])
    assert found >= silent


def test_one_bite_of_what_sessions_say_is_bounded(world: World) -> None:
    names = [f"host.{number:05}" for number in range(10 * BITE)]
    for at in range(0, len(names), BITE):
        beats = [Beat(session=name, info=b"x" * 100) for name in names[at : at + BITE]]
        world.engine.beat(beats)
    bite = world.engine.introductions("host.")
    assert len(bite.infos) < len(names) / 2
    assert bite.cursor is not None


# ----------------------------------------------------------------------------- unknown claims


@pytest.mark.parametrize(("age_ms", "given_back"), [(-1, False), (0, True), (1, True)])
def test_old_claims_under_unknown_nonces_are_given_back(
    world: World, age_ms: int, given_back: bool
) -> None:
    known, unknown = world.put_many(2)
    world.claim("worker", nonce="known", limit=1)
    world.claim("worker", nonce="unknown", limit=1)
    world.advance(UNKNOWN_NONCE_MS + age_ms)
    world.engine.beat([Beat(session="worker", nonces=("known", "never used"), newest="unknown")])
    assert world.get(known).state is State.RUNNING
    record = world.get(unknown)
    if given_back:
        assert (record.state, record.counters) == (State.READY, Counters())
    else:
        assert record.state is State.RUNNING


@pytest.mark.parametrize("back_ms", [1, 60 * 60 * 1000])
def test_a_claim_that_starts_in_the_future_counts_as_old(world: World, back_ms: int) -> None:
    """Set the clock back: a claim with a lost reply must not stay until it catches up."""
    known, unknown = world.put_many(2)
    world.claim("worker", nonce="known", limit=1)
    world.claim("worker", nonce="unknown", limit=1)
    world.advance(-back_ms)
    world.engine.beat([Beat(session="worker", nonces=("known",), newest="unknown")])
    assert world.get(known).state is State.RUNNING
    record = world.get(unknown)
    assert (record.state, record.counters) == (State.READY, Counters())


def test_a_claim_that_was_given_back_is_stale(world: World) -> None:
    world.put()
    claim = world.take("worker")
    world.advance(UNKNOWN_NONCE_MS)
    world.engine.beat([Beat(session="worker", nonces=(), newest=claim.token)])
    assert world.finish(Succeeded(id=claim.id, token=claim.token)) is Verdict.STALE


def test_a_beat_without_nonces_gives_nothing_back(world: World) -> None:
    id = world.put()
    world.take("worker")
    world.advance(UNKNOWN_NONCE_MS)
    world.engine.beat([Beat(session="worker")])
    assert world.get(id).state is State.RUNNING


def test_claims_of_others_are_left_alone(world: World) -> None:
    id = world.put()
    world.take("other")
    world.put()
    world.take("worker")
    world.advance(UNKNOWN_NONCE_MS)
    world.engine.beat([Beat(session="worker", nonces=(), newest=world.nonce())])
    assert world.get(id).state is State.RUNNING


def test_a_beat_says_nothing_of_claims_after_its_newest(world: World) -> None:
    """Check a late heartbeat: its list of nonces was complete only when the child sent it."""
    id = world.put()
    newest = world.nonce()
    world.take("worker")
    world.advance(UNKNOWN_NONCE_MS)
    world.engine.beat([Beat(session="worker", nonces=(), newest=newest)])
    assert world.get(id).state is State.RUNNING


def test_a_claim_that_arrives_late_leases_nothing(world: World) -> None:
    """Claim late, under an old nonce: a lease would make the token of an ended claim current."""
    world.put()
    first = world.take("worker")
    world.finish(Retried(id=first.id, token=first.token, delay_ms=0, error=b""))
    world.put()
    second = world.claim("worker").claims
    world.put()
    late = world.claim("worker", nonce=first.token)
    assert (len(second), late.claims) == (2, ())


def test_a_released_nonce_is_used_up(world: World) -> None:
    world.put()
    world.take("worker")
    late = world.nonce()
    assert world.engine.release("worker", late) == 0
    world.put()
    assert world.claim("worker", nonce=late).claims == ()
    assert len(world.claim("worker").claims) == 1


# ------------------------------------------------------------------------------------- reaping


@pytest.mark.parametrize(("late_ms", "lost"), [(-1, False), (0, True), (1, True)])
@pytest.mark.parametrize("by", ["claim", "tend"])
def test_jobs_of_a_silent_session_are_taken_back(
    world: World, late_ms: int, lost: bool, by: str
) -> None:
    id = world.put()
    world.take("worker")
    world.pass_time(LEASE_MS + late_ms)
    if by == "claim":
        world.claim("other", limit=0)
    else:
        assert world.engine.tend() == Tended(reaped=int(lost))
    record = world.get(id)
    if lost:
        assert record.counters == Counters(starts=1, losses=1)
        (entry,) = record.failures
        assert (entry.event, entry.session, entry.error) == (Event.LOSE, "worker", b"")
    assert record.state is (State.READY if lost else State.RUNNING)
    assert world.alive("worker") is not lost


def test_the_claim_that_takes_jobs_back_can_have_them(world: World) -> None:
    id = world.put()
    world.take("worker")
    world.pass_time(LEASE_MS)
    batch = world.claim("other")
    assert ids_of(batch) == [id]
    assert batch.claims[0].counters == Counters(attempt=1, starts=2, losses=1)


def test_a_dead_session_stays_dead(world: World) -> None:
    world.put_many(2)
    world.claim("worker", limit=1)
    world.let_expire("worker")
    for _ in range(3):
        assert not world.alive("worker")
        assert world.claim("worker") == Batch(gone=True)
        world.advance(60_000)


def test_a_session_that_claims_too_late_is_gone(world: World) -> None:
    world.put_many(2)
    world.take("worker")
    world.pass_time(LEASE_MS)
    assert world.claim("worker") == Batch(gone=True)
    assert world.engine.stats().queues == {"queue": {State.READY: 2}}
    assert not world.alive("worker")


def test_a_session_without_jobs_expires_too(world: World) -> None:
    world.put()
    claim = world.take("worker")
    world.finish(Succeeded(id=claim.id, token=claim.token))
    world.let_expire("worker")
    assert not world.alive("worker")


def test_a_bounded_number_is_taken_back_at_a_time(world: World) -> None:
    ids = world.put_many(BITE + 5)
    world.claim("worker", nonce="token", limit=BITE + 5)
    world.pass_time(LEASE_MS)
    assert world.engine.tend() == Tended(reaped=BITE, more=True)
    assert not world.alive("worker")
    still = [id for id in ids if world.get(id).state is State.RUNNING]
    assert len(still) == 5
    # The holder may still end jobs that were not taken back yet.
    assert world.finish(Succeeded(id=still[0], token="token")) is Verdict.OK
    assert world.engine.tend() == Tended(reaped=4)
    assert world.engine.stats().totals["lost"] == BITE + 4


def test_a_claim_says_that_there_is_more_to_take_back(world: World) -> None:
    world.put_many(BITE + 5)
    world.claim("worker", limit=BITE + 5)
    world.pass_time(LEASE_MS)
    assert world.claim("other", limit=0).next_in_ms == 0
    assert world.claim("other", limit=0).next_in_ms is None


def test_a_lost_job_whose_cancellation_was_requested_is_cancelled(world: World) -> None:
    id = world.put()
    world.take("worker")
    world.engine.cancel([id])
    world.let_expire("worker")
    record = world.get(id)
    assert (record.state, record.reason) == (State.CANCELLED, Reason.CANCELLED)


# --------------------------------------------------------------------------- the silence of all


def test_after_a_silence_of_all_they_get_time_to_beat(world: World) -> None:
    world.put()
    world.take("worker")
    world.advance(10 * LEASE_MS)
    world.claim("other")
    assert world.engine.tend() == Tended()
    world.advance(LEASE_MS // 2 - 1)
    world.claim("other")
    assert world.engine.tend() == Tended()
    assert world.alive("worker")


def test_after_that_time_they_are_lost(world: World) -> None:
    world.put()
    world.take("worker")
    world.advance(10 * LEASE_MS)
    assert world.alive("other")
    world.advance(LEASE_MS // 2)
    assert world.engine.tend() == Tended(reaped=1)
    assert not world.alive("worker")


@pytest.mark.parametrize(("away_ms", "reaped"), [(LEASE_MS // 2, 1), (LEASE_MS // 2 + 1, 0)])
def test_half_a_lease_of_silence_is_none(world: World, away_ms: int, reaped: int) -> None:
    world.put()
    world.take("worker")
    world.pass_time(LEASE_MS)
    world.advance(away_ms)
    world.alive("other")
    assert world.engine.tend() == Tended(reaped=reaped)


def test_the_first_call_of_all_is_no_silence(world: World) -> None:
    world.put()
    world.take("worker")
    world.advance(LEASE_MS // 2)
    world.alive("other")
    world.advance(LEASE_MS // 2)
    assert world.engine.tend() == Tended(reaped=1)


def test_a_clock_that_goes_back_costs_nobody_a_lease(world: World) -> None:
    id = world.put()
    world.take("worker")
    world.advance(-60_000)
    world.alive("other")
    assert world.engine.sessions() == [
        SessionRecord(session="worker", expires_in_ms=LEASE_MS, jobs=1, held=(id,))
    ]
    assert world.engine.tend() == Tended()
    world.pass_time(LEASE_MS)
    assert world.engine.tend() == Tended(reaped=1)
    assert world.get(id).state is State.READY


@pytest.mark.needs(Capability.MANY_PROCESSES)
@pytest.mark.parametrize("verb", ["beat", "tend"])
def test_after_a_silence_the_longest_lease_counts(world: World, verb: str) -> None:
    """Let a worker with a short lease return first: the others need their longer lease."""
    world.put()
    world.take("patient")
    hasty = world.open(LEASE_MS // 10)
    world.advance(LEASE_MS + 10_000)
    for _ in range(10):
        if verb == "beat":
            hasty.beat([Beat(session="hasty", info=b"hasty")])
        assert hasty.tend() == Tended()
        world.advance(LEASE_MS // 30)
    assert world.alive("patient")


@pytest.mark.needs(Capability.MANY_PROCESSES)
def test_a_second_silence_does_not_shorten_the_time_to_beat(world: World) -> None:
    world.put()
    world.take("patient")
    hasty = world.open(LEASE_MS // 10)
    for _ in range(3):
        world.advance(10 * LEASE_MS)
        for _ in range(10):
            assert hasty.tend() == Tended()
            world.advance(LEASE_MS // 30)
    assert world.alive("patient")


@pytest.mark.needs(Capability.MANY_PROCESSES)
def test_the_longest_lease_is_forgotten_with_its_workers(world: World) -> None:
    """Check that, without the worker with the longest lease, the next longest lease counts."""
    world.put()
    world.take("patient")
    hasty, middle = world.open(LEASE_MS // 10), world.open(LEASE_MS // 2)
    hasty.beat([Beat(session="hasty", info=b"hasty")])
    middle.beat([Beat(session="middle", info=b"middle")])
    for _ in range(3 * 30):
        world.advance(LEASE_MS // 30)
        hasty.beat([Beat(session="hasty")])
        middle.beat([Beat(session="middle")])
    assert {record.session for record in hasty.sessions()} == {"patient", "hasty", "middle"}
    world.advance(10 * LEASE_MS)
    begin_ms = world.now_ms
    while hasty.tend() == Tended():
        world.advance(LEASE_MS // 60)
    assert world.now_ms - begin_ms == LEASE_MS // 4, "half of what was the second longest"
    assert world.engine.stats().totals["lost"] == 1


@pytest.mark.needs(Capability.MANY_PROCESSES)
def test_a_clock_that_goes_back_leaves_the_longest_lease(world: World) -> None:
    id = world.put()
    world.take("patient")
    world.advance(-60_000)
    world.open(LEASE_MS // 10).tend()
    assert world.engine.sessions() == [
        SessionRecord(session="patient", expires_in_ms=LEASE_MS, jobs=1, held=(id,))
    ]


def test_upkeep_after_a_silence_of_all_reaps_nobody(world: World) -> None:
    """Let the machine sleep: the first worker runs maintenance before any heartbeat."""
    id = world.put()
    world.engine.beat([Beat(session="worker")])
    world.take("worker")
    world.advance(10 * LEASE_MS)
    assert world.engine.tend().reaped == 0
    assert world.get(id).state is State.RUNNING
    assert world.engine.beat([Beat(session="worker")])[0].alive

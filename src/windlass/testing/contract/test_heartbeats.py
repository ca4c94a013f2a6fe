"""Test heartbeats that list jobs, session commands, and the info of single sessions."""

from typing import Any

import pytest

from windlass.core.states import Counters, State
from windlass.engine.contract import (
    BATCH,
    MAX_HELD_BEAT,
    UNKNOWN_NONCE_MS,
    Beat,
    Capability,
    Pulse,
    Retried,
    SessionCommand,
    Succeeded,
    Verdict,
)
from windlass.errors import EngineError
from windlass.testing.contract.world import World, ids_of


def beat(
    world: World, session: str = "worker", held: tuple[str, ...] | None = None, **fields: Any
) -> Pulse:
    (pulse,) = world.engine.beat([Beat(session=session, held=held, **fields)])
    return pulse


# ---------------------------------------------------------------------------------- listed jobs


@pytest.mark.parametrize(("age_ms", "given_back"), [(-1, False), (0, True), (1, True)])
def test_old_claims_of_jobs_that_are_not_listed_are_given_back(
    world: World, age_ms: int, given_back: bool
) -> None:
    world.put_many(6)
    nonce = world.nonce()
    listed, *others = ids_of(world.claim(nonce=nonce))
    world.advance(UNKNOWN_NONCE_MS + age_ms)
    pulse = beat(world, held=(listed,), newest=nonce)
    assert pulse == Pulse(session="worker", alive=True)
    assert world.get(listed).state is State.RUNNING
    for record in map(world.get, others):
        if given_back:
            assert (record.state, record.counters) == (State.READY, Counters())
        else:
            assert record.state is State.RUNNING
    assert world.engine.check() == []


def test_a_late_list_of_jobs_releases_no_later_claim(world: World) -> None:
    """Delay a heartbeat on the network: the worker claimed a job after it had sent the list."""
    answered, later = world.put_many(2)
    nonce = world.nonce()
    assert ids_of(world.claim(nonce=nonce, limit=1)) == [answered]
    assert ids_of(world.claim(limit=1)) == [later]
    world.advance(UNKNOWN_NONCE_MS)
    assert beat(world, held=("lost", later), newest=nonce).lost == ("lost",)
    assert beat(world, held=(), newest=nonce).lost == ()
    assert [world.get(id).state for id in (answered, later)] == [State.READY, State.RUNNING]
    assert world.engine.check() == []


def test_a_list_of_jobs_without_an_answered_claim_releases_nothing(world: World) -> None:
    ids = world.put_many(6)
    world.claim()
    world.advance(UNKNOWN_NONCE_MS)
    beat(world, held=())
    assert {world.get(id).state for id in ids} == {State.RUNNING}


def test_a_listed_claim_that_starts_in_the_future_counts_as_old(world: World) -> None:
    """Set the clock back: a claim with a lost reply must not stay until it catches up."""
    id = world.put()
    claim = world.take()
    world.advance(-1)
    beat(world, held=(), newest=claim.token)
    assert world.get(id).state is State.READY


def test_a_job_that_was_not_listed_is_stale(world: World) -> None:
    world.put()
    claim = world.take()
    world.advance(UNKNOWN_NONCE_MS)
    beat(world, held=(), newest=claim.token)
    assert world.finish(Succeeded(id=claim.id, token=claim.token)) is Verdict.STALE


def test_a_list_of_jobs_says_nothing_of_other_sessions(world: World) -> None:
    world.put_many(2)
    mine, theirs = world.take("worker"), world.take("other")
    world.advance(UNKNOWN_NONCE_MS)
    pulse = beat(world, held=(mine.id, theirs.id), newest=theirs.token)
    assert pulse.lost == (theirs.id,)
    assert world.get(theirs.id).session == "other"
    assert world.get(theirs.id).state is State.RUNNING


def test_listed_jobs_that_a_session_does_not_hold_are_lost(world: World) -> None:
    """List jobs in any partition, in the order of the list."""
    ids = world.put_many(8)
    claims = {claim.id: claim for claim in world.claim().claims}
    ended, retried, released, *kept = ids
    world.finish(Succeeded(id=ended, token=claims[ended].token))
    retry = Retried(id=retried, token=claims[retried].token, delay_ms=0, error=b"")
    world.finish(retry)
    waiting, unknown = world.put(), world.later_id(0)
    listed = (kept[0], unknown, ended, kept[1], waiting, retried, "no id", *kept[2:], released)
    pulse = beat(world, held=listed)
    assert pulse.lost == (unknown, ended, waiting, retried, "no id")
    assert beat(world, held=tuple(kept)).lost == ()


def test_jobs_of_an_unknown_session_are_lost(world: World) -> None:
    ids = tuple(world.put_many(6))
    assert beat(world, "new", held=ids) == Pulse(session="new", alive=True, lost=ids)
    assert world.engine.sessions() == []


def test_a_dead_session_is_told_so_and_nothing_else(world: World) -> None:
    ids = tuple(world.put_many(6))
    world.claim()
    world.engine.command(["worker"], SessionCommand.QUIET)
    world.engine.close("worker", [], "ended")
    assert beat(world, held=ids) == Pulse(session="worker", alive=False)


def test_a_heartbeat_lists_jobs_and_nonces(world: World) -> None:
    """List both: a claim is kept only if its nonce and its job are listed."""
    by_nonce, by_job, both = world.put_many(3)
    nonces = {name: world.nonce() for name in (by_nonce, by_job, both)}
    for id, nonce in nonces.items():
        assert ids_of(world.claim(nonce=nonce, limit=1)) == [id]
    world.advance(UNKNOWN_NONCE_MS)
    known = (nonces[by_nonce], nonces[both])
    pulse = beat(world, nonces=known, newest=nonces[both], held=(by_job, both))
    assert pulse.lost == (by_job,)
    assert [world.get(id).state for id in nonces] == [State.READY, State.READY, State.RUNNING]


def test_a_heartbeat_with_jobs_tells_of_cancellations(world: World) -> None:
    first, second = world.put_many(2)
    world.claim()
    world.engine.cancel([first, second])
    assert set(beat(world, held=(first, second)).cancel) == {first, second}


def test_a_heartbeat_lists_a_bounded_number_of_jobs(world: World) -> None:
    ids = world.put_many(MAX_HELD_BEAT)
    for _ in range(MAX_HELD_BEAT // BATCH):
        world.claim(limit=BATCH)
    world.advance(UNKNOWN_NONCE_MS)
    newest = world.nonce()
    assert beat(world, held=tuple(ids), newest=newest).lost == ()
    with pytest.raises(EngineError, match=f"at most {MAX_HELD_BEAT}"):
        beat(world, held=(*ids, "more"), newest=newest)
    assert world.engine.stats().queues == {"queue": {State.RUNNING: MAX_HELD_BEAT}}
    beat(world, held=(), newest=newest)
    assert world.engine.stats().queues == {"queue": {State.READY: MAX_HELD_BEAT}}


@pytest.mark.needs(Capability.MANY_PROCESSES)
def test_a_session_is_served_by_any_engine_object(world: World) -> None:
    """Beat, claim and finish by turns, as through several instances of a gateway."""
    engines = [world.engine, world.open(), world.open()]
    engines[0].beat([Beat(session="worker", info=b"me")])
    world.put_many(12)
    held: list[str] = []
    for engine in engines:
        world.engine = engine
        held += ids_of(world.claim(limit=4))
    assert len(held) == 12
    assert [engine.infos(["worker"]) for engine in engines] == [[b"me"]] * 3
    assert engines[1].command(["worker"], SessionCommand.STOP) == [True]
    world.advance(UNKNOWN_NONCE_MS)
    newest = world.nonce()
    for engine in engines:
        (pulse,) = engine.beat([Beat(session="worker", held=(*held, "lost"), newest=newest)])
        assert (pulse.lost, pulse.command) == (("lost",), SessionCommand.STOP)
    assert world.engine.stats().queues == {"queue": {State.RUNNING: 12}}


# ------------------------------------------------------------------------------------- commands


def test_heartbeats_return_the_command_until_it_is_changed(world: World) -> None:
    world.engine.beat([Beat(session="worker", info=b"me"), Beat(session="other", info=b"it")])
    assert beat(world).command is SessionCommand.RUN
    for command in (SessionCommand.QUIET, SessionCommand.STOP, SessionCommand.RUN):
        assert world.engine.command(["worker"], command) == [True]
        assert [beat(world).command for _ in range(2)] == [command] * 2
        assert beat(world, held=()).command is command
        assert beat(world, "other").command is SessionCommand.RUN
        commands = {record.session: record.command for record in world.engine.sessions()}
        assert commands == {"worker": command, "other": SessionCommand.RUN}


def test_a_command_outlasts_claims_and_infos(world: World) -> None:
    """Claim after the command, because a claim may be under way when it is given."""
    world.put_many(8)
    world.take()
    world.engine.command(["worker"], SessionCommand.QUIET)
    world.claim()
    world.engine.release("worker", world.nonce())
    world.engine.beat([Beat(session="worker", info=b"me")])
    assert beat(world).command is SessionCommand.QUIET


def test_a_session_that_only_claimed_gets_commands(world: World) -> None:
    """Claim one job from each partition, so that most sessions claim from a foreign one."""
    world.put_many(4)
    names = [f"worker-{number}" for number in range(8)]
    able = [name for name in names if world.claim(name, limit=1).claims]
    assert len(able) == 4
    assert world.engine.command(names, SessionCommand.STOP) == [name in able for name in names]
    for name in names:
        expected = SessionCommand.STOP if name in able else SessionCommand.RUN
        assert beat(world, name).command is expected


def test_only_live_sessions_get_commands(world: World) -> None:
    world.engine.beat([Beat(session=name, info=b"me") for name in ("a", "closed", "lost", "b")])
    world.engine.close("closed", [], "ended")
    world.engine.lose("lost", "its worker died")
    names = ["a", "unknown", "closed", "b", "lost", "a", "", "a\0"]
    done = world.engine.command(names, SessionCommand.QUIET)
    assert done == [True, False, False, True, False, True, False, False]
    assert world.engine.command([], SessionCommand.QUIET) == []
    assert [record.session for record in world.engine.sessions()] == ["a", "b"]


def test_a_command_keeps_no_session_alive(world: World) -> None:
    world.engine.beat([Beat(session="worker", info=b"me")])
    world.engine.command(["worker"], SessionCommand.QUIET)
    world.let_expire("worker")
    assert world.engine.command(["worker"], SessionCommand.RUN) == [False]


# ---------------------------------------------------------------------------------------- infos


def test_the_info_of_single_sessions_is_read(world: World) -> None:
    names = [f"worker-{number}" for number in range(8)]
    world.engine.beat([Beat(session=name, info=name.encode()) for name in names])
    world.put()
    world.take("silent")
    world.engine.close(names[2], [], "ended")
    world.engine.lose(names[3], "its worker died")
    asked = [names[0], "unknown", names[2], "silent", names[3], names[7], names[0]]
    first, last = names[0].encode(), names[7].encode()
    assert world.engine.infos(asked) == [first, None, None, None, None, last, first]
    assert world.engine.infos([]) == []


def test_the_newest_info_is_read(world: World) -> None:
    world.engine.beat([Beat(session="worker", info=b"one")])
    world.engine.beat([Beat(session="worker", info=b"\0two"), Beat(session="worker")])
    assert world.engine.infos(["worker"]) == [b"\0two"]
    world.let_expire("worker")
    assert world.engine.infos(["worker"]) == [None]

"""Test the end of a session: closed with suspects, lost with its worker; release of a nonce."""

from windlass.core.states import SUSPECT_AFTER_LOSSES, Counters, Event, State
from windlass.engine.contract import BITE, Batch, Beat, Closed, Succeeded
from windlass.testing.contract.world import World

# ------------------------------------------------------------------------------------- closing


def test_a_single_suspect_is_charged_a_crash(world: World) -> None:
    ids = world.put_many(3)
    world.claim("worker")
    closed = world.engine.close("worker", [ids[1]], "signal 11")
    assert closed == Closed(crashed=1, released=2)
    records = [world.get(id) for id in ids]
    assert [record.state for record in records] == [State.READY] * 3
    assert [record.suspect for record in records] == [False, True, False]
    crashed, interrupted = Counters(starts=1, crashes=1), Counters(starts=1, interruptions=1)
    assert [record.counters for record in records] == [interrupted, crashed, interrupted]
    (entry,) = records[1].failures
    assert (entry.event, entry.error) == (Event.CRASH, b"signal 11")


def test_several_suspects_have_to_run_alone(world: World) -> None:
    ids = world.put_many(3)
    world.claim("worker")
    closed = world.engine.close("worker", ids[:2], "signal 9")
    assert closed == Closed(suspected=2, released=1)
    records = [world.get(id) for id in ids]
    assert [record.suspect for record in records] == [True, True, False]
    interrupted = Counters(starts=1, interruptions=1)
    assert [record.counters for record in records] == [interrupted] * 3
    assert [record.failures[0].event for record in records[:2]] == [Event.SUSPECT] * 2


def test_suspects_that_the_session_does_not_hold_are_innocent(world: World) -> None:
    mine, ended, others = world.put_many(3)
    world.take("worker")
    claim = world.take("worker")
    world.finish(Succeeded(id=ended, token=claim.token))
    world.take("other")
    closed = world.engine.close("worker", [mine, ended, others, "nowhere"], "killed")
    assert closed == Closed(suspected=1), "several were running, whatever became of the others"
    assert world.get(others).state is State.RUNNING
    assert world.get(ended).state is State.SUCCEEDED


def test_a_closed_session_is_gone(world: World) -> None:
    world.put()
    world.take("worker")
    world.engine.close("worker", [], "ended")
    assert not world.alive("worker")
    assert world.claim("worker") == Batch(gone=True)
    assert world.engine.sessions() == []


def test_closing_an_unknown_session_ends_it(world: World) -> None:
    assert world.engine.close("unknown", ["nowhere"], "killed") == Closed()
    assert not world.alive("unknown")


def test_closing_twice_does_nothing_more(world: World) -> None:
    ids = world.put_many(2)
    world.claim("worker")
    world.engine.close("worker", ids[:1], "killed")
    before = world.everything()
    assert world.engine.close("worker", ids[:1], "killed") == Closed()
    assert world.everything() == before


def test_a_cancelled_job_is_cancelled_by_the_closing(world: World) -> None:
    ids = world.put_many(2)
    world.claim("worker")
    world.engine.cancel(ids)
    world.engine.close("worker", ids[:1], "killed")
    assert [world.get(id).state for id in ids] == [State.CANCELLED] * 2


# ------------------------------------------------------------------------------- lost as a whole


def test_a_session_that_is_lost_is_as_one_that_expired(world: World) -> None:
    """Compare with an expired lease: only the cause in the history differs."""
    running, asked = world.put_many(2)
    world.claim("worker")
    world.engine.cancel([asked])
    assert world.engine.lose("worker", "its worker died") == 2
    record = world.get(running)
    assert (record.state, record.counters) == (State.READY, Counters(starts=1, losses=1))
    assert not record.suspect
    (entry,) = record.failures
    assert (entry.event, entry.session, entry.error) == (Event.LOSE, "worker", b"its worker died")
    assert world.get(asked).state is State.CANCELLED
    assert world.engine.stats().totals["lost"] == 2
    assert not world.alive("worker")
    assert world.claim("worker") == Batch(gone=True)
    assert world.engine.sessions() == []


def test_lost_sessions_with_an_info_are_counted_once(world: World) -> None:
    """Without an info the session is no worker's: it made a call, and was forgotten."""
    world.put_many(2)
    world.engine.beat([Beat(session=name, info=b"me") for name in ("closed", "lost", "expired")])
    world.claim("lost", limit=1)
    world.claim("silent", limit=1)
    world.engine.close("closed", [], "exit code 0")
    world.engine.lose("lost", "its worker died")
    world.engine.lose("lost", "its worker died")
    assert world.engine.stats().totals["sessions_lost"] == 1
    world.let_expire("expired", "silent")
    assert world.engine.stats().totals["sessions_lost"] == 2


def test_a_job_that_is_lost_again_and_again_has_to_run_alone(world: World) -> None:
    """Lose a job repeatedly: it may be the job that kills its workers."""
    id = world.put()
    for number in range(SUSPECT_AFTER_LOSSES):
        assert world.take(f"worker-{number}").id == id
        assert world.engine.lose(f"worker-{number}", "its worker died") == 1
    assert world.claim("other").claims == ()
    assert world.take("other", suspects=True).id == id


def test_many_jobs_are_lost_at_once(world: World) -> None:
    world.put_many(2 * BITE + 1)
    world.claim("worker")
    assert world.engine.lose("worker", "its worker died") == 2 * BITE + 1
    assert world.engine.stats().queues == {"queue": {State.READY: 2 * BITE + 1}}
    assert world.engine.check() == []


def test_a_session_that_is_unknown_is_lost_too(world: World) -> None:
    assert world.engine.lose("unknown", "its worker died") == 0
    assert not world.alive("unknown")


# ------------------------------------------------------------------------------------- release


def test_release_gives_back_what_is_held_under_a_nonce(world: World) -> None:
    ids = world.put_many(4)
    world.claim("worker", nonce="one", limit=2)
    world.claim("worker", nonce="two", limit=1)
    world.claim("other", nonce="one", limit=1)
    assert world.engine.release("worker", "one") == 2
    records = [world.get(id) for id in ids]
    assert [record.state for record in records] == [
        State.READY,
        State.READY,
        State.RUNNING,
        State.RUNNING,
    ]
    assert [record.counters for record in records[:2]] == [Counters()] * 2


def test_release_of_nothing(world: World) -> None:
    assert world.engine.release("worker", "nonce") == 0

"""Test that `check` finds no error after all kinds of changes; test the format and reopening."""

import threading

import pytest

from windlass.core.states import Reason
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    AuditEntry,
    Beat,
    Buried,
    Capability,
    DocumentChange,
    Engine,
    Progressed,
    Released,
    Retried,
    SessionCommand,
    Snoozed,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.testing.contract.place import Place
from windlass.testing.contract.world import LEASE_MS, World, retry_jobs


def live_a_life(world: World) -> None:
    """Make at least one job in each state, with at least one move of each kind."""
    world.put_many(12)
    world.put(run_in_ms=1_000)
    world.put(expires_in_ms=0, idempotency_key="key")
    for _ in range(3):
        unique = UniqueKey(key="key", period_ms=1_000, on_conflict=OnConflict.REPLACE)
        world.put(run_in_ms=1_000, unique=unique)
    a, b, c, d, e, f, g, *_ = world.claim("worker", limit=10).claims
    world.engine.cancel([a.id])
    world.engine.finish(
        [
            Progressed(id=a.id, token=a.token, progress=b"half"),
            Retried(id=a.id, token=a.token, delay_ms=0, error=b"boom"),
            Succeeded(id=b.id, token=b.token, result=b"result", result_ttl_ms=1_000),
            Retried(id=c.id, token=c.token, delay_ms=1_000, error=b"boom"),
            Buried(id=d.id, token=d.token, reason=Reason.REJECTED, error=b"no"),
            Released(id=e.id, token=e.token, started=True),
            Snoozed(id=f.id, token=f.token, delay_ms=1_000),
            Unroutable(id=g.id, token=g.token),
        ]
    )
    world.engine.command(["worker"], SessionCommand.QUIET)
    world.engine.close("worker", [a.id, b.id], "killed")
    world.claim("other")
    world.engine.command(["other"], SessionCommand.STOP)
    world.let_expire("other")
    retry_jobs(world.engine, [d.id])
    world.engine.adopt([g.task])
    world.engine.beat([Beat(session="other", nonces=(), newest=world.nonce())])
    world.engine.tend()
    keep_records(world)


def keep_records(world: World) -> None:
    """Store documents and audit entries, which no maintenance removes."""
    made, gone = (
        DocumentChange(kind="kind", key=key, expected="", revision="1", body=b"body")
        for key in ("made", "gone")
    )
    removed = DocumentChange(kind="kind", key="gone", expected="1", revision="2", body=None)
    world.engine.change_documents([made, gone])
    world.engine.change_documents([removed])
    world.engine.add_audit([AuditEntry(id=id, body=b"entry") for id in ("a", "b")])


def test_nothing_is_wrong_with_an_empty_engine(engine: Engine) -> None:
    assert engine.check() == []


def test_nothing_is_wrong_after_everything(world: World) -> None:
    live_a_life(world)
    assert world.engine.check() == []


@pytest.mark.parametrize("change", [False, True])
def test_where_nothing_is_wrong_nothing_is_repaired(world: World, change: bool) -> None:
    live_a_life(world)
    before, cursor = world.everything(), None
    while True:
        bite = world.engine.repair(cursor, change=change)
        assert (bite.fixed, bite.left) == ((), ())
        cursor = bite.cursor
        if cursor is None:
            break
    assert world.everything() == before
    assert world.engine.check() == []


def test_migrating_again_changes_nothing(world: World) -> None:
    live_a_life(world)
    before = world.everything()
    assert world.engine.migrate() == world.engine.migrate()
    assert world.everything() == before


@pytest.mark.needs(Capability.DURABLE)
def test_everything_survives_the_end_of_the_process(world: World) -> None:
    live_a_life(world)
    before = world.everything()
    world.reopen()
    assert world.everything() == before
    assert world.engine.check() == []


@pytest.mark.needs(Capability.DURABLE)
def test_an_engine_can_be_used_after_its_shutdown(world: World) -> None:
    live_a_life(world)
    before = world.everything()
    world.engine.shutdown()
    assert world.everything() == before


@pytest.mark.needs(Capability.MANY_PROCESSES)
def test_what_one_object_does_others_see_at_once(world: World) -> None:
    other = world.open()
    for _ in range(20):
        id = world.put()
        (record,) = other.get([id])
        assert record is not None
        assert record.created_ms == world.now_ms
        other.cancel([id])
        assert world.get(id).reason is Reason.CANCELLED
        world.advance(LEASE_MS)


def test_shutdown_leaves_no_threads(variant: Place) -> None:
    before = set(threading.enumerate())
    engine = variant.open()
    callers = [threading.Thread(target=engine.stats) for _ in range(8)]
    callers += [threading.Thread(target=engine.beat, args=([],)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    engine.shutdown()
    assert set(threading.enumerate()) == before

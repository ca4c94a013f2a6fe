"""Lost sessions and crash suspects: which workers were lost, and what became of their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from windlass import State, Windlass
from windlass.core.introduction import Introduction
from windlass.core.states import Reason
from windlass.engine.contract import Beat, Buried
from windlass.errors import EngineUnavailable
from windlass.lost_sessions import (
    KIND,
    LossKind,
    SessionWatch,
    note_loss,
    try_note_loss,
)
from windlass.testing.faults import Faults

LEASE_MS = 60_000
KNOWN = Introduction(host="web", worker=7, app="shop:app", queues=("mail",), lease_ms=LEASE_MS)


@pytest.fixture(params=["sqlite-file", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path), lease="60s") as app:
        app.task(name="charge", queue="mail")(charge)
        yield app


def charge(order: int) -> None:
    """A task."""


def hold(app: Windlass, session: str, number: int = 1) -> list[str]:
    """Let a session begin and claim jobs."""
    app.engine.beat([Beat(session=session, info=KNOWN.pack())])
    hand, ids = Hand(app), []
    hand.session = session
    for order in range(number):
        app.tasks["charge"].enqueue(order)
        ids.append(hand.take().id)
    return ids


def watch_of(app: Windlass) -> SessionWatch:
    """A watch whose clock is moved like that of the engine."""
    return SessionWatch(app.engine, lambda: app.engine.clock_offset_ms / 1000)


def pass_by(app: Windlass, ms: int, *living: str) -> None:
    """Let time pass, in which only some sessions send heartbeats."""
    while ms > 0:
        app.engine.clock_offset_ms += min(ms, LEASE_MS // 4)
        ms -= LEASE_MS // 4
        app.engine.beat([Beat(session=one, info=KNOWN.pack()) for one in ("other", *living)])


# ------------------------------------------------------------------------------------------- watch


def test_a_session_that_expires_is_noted_with_its_jobs(app: Windlass) -> None:
    ids = hold(app, "web.8.a", 2)
    watches = [watch_of(app), watch_of(app)]
    pass_by(app, LEASE_MS - 10_000)
    for watch in watches:
        watch.look()
    assert app.lost_sessions() == []
    pass_by(app, 20_000)
    app.engine.tend(())
    for watch in watches:
        watch.look()
    [lost] = app.lost_sessions()
    assert (lost.session, lost.kind, lost.worker) == ("web.8.a", LossKind.EXPIRED, "web:7")
    assert (lost.cause, lost.app, lost.queues) == (
        "no heartbeat for a lease",
        "shop:app",
        ("mail",),
    )
    assert lost.job_count == 2
    assert {(job.id, job.task, job.queue, job.state) for job in lost.jobs} == {
        (id, "charge", "mail", State.READY) for id in ids
    }
    assert asyncio.run(app.alost_sessions()) == [lost]


def test_a_session_without_jobs_is_noted_if_it_was_silent(app: Windlass) -> None:
    hold(app, "web.8.a", 0)
    watch = watch_of(app)
    pass_by(app, LEASE_MS - 10_000)
    watch.look()
    pass_by(app, 20_000)
    app.engine.tend(())
    watch.look()
    [lost] = app.lost_sessions()
    assert (lost.session, lost.job_count, lost.jobs) == ("web.8.a", 0, ())


@pytest.mark.parametrize("number", [0, 1])
def test_a_session_that_ends_itself_is_not_noted(app: Windlass, number: int) -> None:
    """Long after the last look, and also shortly after it."""
    hold(app, "web.8.a", number)
    watch = watch_of(app)
    watch.look()
    app.engine.close("web.8.a", (), "the end")
    watch.look()
    hold(app, "web.9.a", number)
    watch.look()
    pass_by(app, 2 * LEASE_MS, "web.9.a")
    app.engine.close("web.9.a", (), "the end")
    watch.look()
    assert app.lost_sessions() == []


def test_the_watch_of_a_large_fleet_looks_less_often(app: Windlass) -> None:
    watch = watch_of(app)
    assert watch.look() == 15
    app.engine.beat([Beat(session=f"web.{n}.a", info=KNOWN.pack()) for n in range(100)])
    assert watch.look() == 35


# ------------------------------------------------------------------------------------------- notes


def test_the_last_sessions_are_kept(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.lost_sessions.MAX_KEPT", 3)
    for number in range(5):
        app.engine.clock_offset_ms += 1_000
        note_loss(app.engine, f"s{number}", LossKind.DIED, "gone", KNOWN, [])
    assert [one.session for one in app.lost_sessions()] == ["s4", "s3", "s2"]
    assert [one.session for one in app.lost_sessions(limit=1)] == ["s4"]
    assert len(app.engine.list_documents(KIND)) == 3


def test_a_session_is_noted_once_and_names_some_jobs(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.lost_sessions.MAX_JOBS", 2)
    ids = hold(app, "web.8.a", 3)
    for cause in ("first", "second"):
        try_note_loss(
            app.engine, "s", LossKind.CRASHED, cause, KNOWN, ids, job_count=3, suspects=ids[:1]
        )
    [lost] = app.lost_sessions()
    assert (lost.cause, lost.job_count) == ("first", 3)
    assert [job.is_suspect for job in lost.jobs] == [True, False]
    assert {job.state for job in lost.jobs} == {State.RUNNING}


def test_a_note_that_fails_is_logged(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults(app.engine)
    faults.refuse("change_documents")
    try_note_loss(faults.engine, "s", LossKind.DIED, "gone", KNOWN, [], job_count=0)
    assert any("lost session s is not in the list" in line for line in caplog.messages)
    faults.refuse("change_documents")
    with pytest.raises(EngineUnavailable):
        note_loss(faults.engine, "s", LossKind.DIED, "gone", KNOWN, [])


# ---------------------------------------------------------------------------------------- suspects


def test_suspects_wait_alone_or_are_dead(app: Windlass) -> None:
    ids = hold(app, "web.8.a", 2)
    app.engine.close("web.8.a", ids, "killed by signal 9")
    other = app.tasks["charge"].enqueue(9).id
    found = app.crash_suspects()
    assert {job.id for job in found.waiting} == set(ids)
    assert (found.is_exact, found.dead) == (True, ())
    hand = Hand(app)
    hand.session = "web.9.a"
    taken = hand.take()
    assert taken.id == other
    buried = Buried(id=taken.id, token=taken.token, reason=Reason.CRASHED, error=b"")
    app.engine.finish([buried])
    [dead] = asyncio.run(app.acrash_suspects()).dead
    assert (dead.id, dead.state, dead.reason) == (taken.id, State.DEAD, Reason.CRASHED)

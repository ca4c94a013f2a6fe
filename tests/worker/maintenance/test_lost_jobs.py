"""A worker logs when jobs were reclaimed from workers that stopped responding, and when index
entries were dropped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from windlass import Windlass
from windlass.core.ids import new_session
from windlass.engine.contract import Beat
from windlass.worker.maintenance import lost_jobs
from windlass.worker.maintenance.lost_jobs import LossWatch


@pytest.fixture(params=["sqlite-file", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        app.task(name="nothing")(nothing)
        yield app


def nothing(number: int) -> None:
    """A task."""


def fall_silent(app: Windlass, number: int, *living: str) -> None:
    """One worker claims jobs and sends no heartbeat for a lease, while others do. Then a claim
    takes the jobs back."""
    silent = Hand(app)
    silent.session = new_session("silent", 1)
    for _ in range(number):
        app.tasks["nothing"].enqueue(1)
        assert silent.find()
    for _ in range(4):
        app.engine.clock_offset_ms += app.settings.lease_ms // 3
        let_live(app, *living)
    assert app.engine.tend(()).reaped == number


def let_live(app: Windlass, *sessions: str) -> None:
    app.engine.beat([Beat(session=session, info=b"here") for session in sessions])


def test_one_worker_tells_it_once(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    fall_silent(app, 1, "b")
    let_live(app, "a", "b")
    watches = [LossWatch(app.engine, partial(list, own)) for own in "ab"]
    with caplog.at_level(logging.WARNING, "windlass.worker"):
        for _ in range(2):
            assert [watch.look() for watch in watches] == [lost_jobs.LOOK_S] * 2
        assert caplog.messages == [], "what was before it came is old"
        fall_silent(app, 2, "a", "b")
        for _ in range(2):
            for watch in watches:
                watch.look()
    assert caplog.messages == ["reclaimed 2 jobs from workers that stopped responding"]


def test_dropped_entries_are_told_of_once(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_live(app, "a", "b")
    watches = [LossWatch(app.engine, partial(list, own)) for own in "ab"]
    stats = app.engine.stats()
    for watch in watches:
        watch.look()
    damaged = replace(stats, totals={**stats.totals, "orphans": 2})
    monkeypatch.setattr(app.engine, "stats", lambda: damaged)
    with caplog.at_level(logging.WARNING, "windlass.worker"):
        for _ in range(2):
            for watch in watches:
                watch.look()
    assert caplog.messages == ["dropped 2 index entries without a job; see windlass check --repair"]

"""The releases of a worker, and the fingerprints of jobs that an earlier version ended."""

from __future__ import annotations

from math import inf

import pytest

from windlass import FailureText, Reason, Retry, Windlass
from windlass.engine.contract import Buried, Engine, Plan
from windlass.engine.releases import MAX_RELEASES, note_release, read_releases
from windlass.errors import JobFailed
from windlass.testing.contract.world import claim_jobs
from windlass.worker.maintenance.dead_groups import LOOK_S, PAGE_S, DeadLabeller, ReleaseWatch


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///:memory:", release="v7")


@pytest.fixture
def engine(app: Windlass) -> Engine:
    return app.engine


def test_a_release_begins_with_its_first_worker(engine: Engine) -> None:
    sessions = ["host.1.ab@v2", "host.2.ab", "host.3.ab@v2"]
    watch = ReleaseWatch(engine, lambda: sessions)
    assert watch.look() == LOOK_S
    first = read_releases(engine)
    assert list(first) == ["v2"]
    engine.clock_offset_ms += 1_000
    sessions.append("host.4.ab@v1")
    ReleaseWatch(engine, lambda: sessions).look()
    releases = read_releases(engine)
    assert list(releases) == ["v2", "v1"]
    assert releases["v2"] == first["v2"]


def test_the_oldest_releases_are_forgotten(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_RELEASES >= 100
    monkeypatch.setattr("windlass.engine.releases.MAX_RELEASES", 2)
    for release in ("v1", "v2", "v3"):
        engine.clock_offset_ms += 1
        note_release(engine, release)
    assert list(read_releases(engine)) == ["v2", "v3"]


def test_jobs_without_a_fingerprint_get_one_page_by_page(app: Windlass, engine: Engine) -> None:
    """A sealed failure, which the supervisor cannot read, stays without one and blocks nothing."""
    task = app.task(name="charge")(charge)
    task.enqueue_many([()] * 60)
    claims = claim_jobs(engine, "w", "n", Plan(), 60).claims
    texts = [FailureText("ValueError", "no", sealed="sealed")] + [FailureText("KeyError")] * 59
    engine.finish(
        [
            Buried(id=one.id, token=one.token, reason=Reason.EXHAUSTED, error=text.pack())
            for one, text in zip(claims, texts, strict=True)
        ]
    )
    labeller = DeadLabeller(engine)
    assert labeller.look() == PAGE_S
    assert labeller.look() == inf
    numbers = {one.fingerprint: one.number for one in engine.dead_tallies().tallies}
    assert numbers == {"": 1, FailureText("KeyError").fingerprint: 59}


def test_a_worker_reports_fingerprint_and_release(app: Windlass) -> None:
    job = app.task(name="charge", retry=Retry(max_attempts=1))(charge).enqueue()
    with app.worker(slots=1), pytest.raises(JobFailed):
        job.result(timeout=20)
    (group,) = app.dead.groups()
    assert group.error is not None
    assert group.fingerprint == group.error.fingerprint
    assert [one.release for one in group.releases] == ["v7"]


def charge() -> None:
    raise ValueError("the bank is closed")

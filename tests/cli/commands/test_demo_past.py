"""The past hour of the live demo: it has everything that the dashboard can show, and an engine
that agrees with itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.cli.commands.demo.live import tasks
from windlass.cli.commands.demo.live.past import POISON, SeededPast, seed_past
from windlass.core.ids import release_of
from windlass.core.states import Hold, Reason, State
from windlass.engine.clock import read_clock
from windlass.engine.contract import EngineOptions, Filter
from windlass.engine.url import open_engine


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededPast]:
    """The app of the live demo on a seeded database, with its workers."""
    file: Path = tmp_path_factory.mktemp("past") / "demo.db"
    engine = open_engine(f"sqlite:///{file}?durability=normal", EngineOptions(lease_ms=3_600_000))
    with tasks.app.replace_engine(engine):
        yield seed_past(tasks.app, keep_workers=True)
    engine.shutdown()


@pytest.fixture
def app(seeded: SeededPast) -> Windlass:
    assert seeded.jobs > 5_000
    return tasks.app


def test_the_engine_agrees_with_itself(app: Windlass) -> None:
    assert app.engine.clock_offset_ms == 0
    assert not app.engine.check()


def test_the_same_seed_makes_the_same_jobs(seeded: SeededPast) -> None:
    """Jobs of schedules depend on the time of day, and are not among these."""
    assert seeded.jobs == 10_299


def test_every_queue_has_jobs(app: Windlass) -> None:
    queues = app.engine.stats().queues
    assert set(queues) == {"mail", "payments", "reports", "default", "imports"}
    assert app.queue("imports").info().paused
    assert queues["imports"][State.READY] > 20
    states = {state for counts in queues.values() for state in counts}
    assert states == set(State) - {State.WAITING}


def test_failures_have_several_causes_and_one_is_new_since_the_release(app: Windlass) -> None:
    records = app.engine.get([letter.id for letter in app.dead.list()])
    deaths = [(one.task, one.reason, one.failures[-1]) for one in records if one is not None]
    releases = {task: set[str | None]() for task, _, _ in deaths}
    for task, reason, failure in deaths:
        if reason is not Reason.CRASHED:
            releases[task].add(release_of(failure.session or ""))
    assert releases["payments.refund"] == {tasks.NEW_RELEASE}
    assert releases["payments.charge"] == {tasks.OLD_RELEASE, tasks.NEW_RELEASE}
    assert len(app.dead.groups()) >= 6


def test_a_job_that_kills_its_process_is_a_dead_letter(app: Windlass) -> None:
    [poison] = [letter for letter in app.dead.list() if letter.reason == Reason.CRASHED]
    record = app.engine.get([poison.id])[0]
    assert record is not None
    assert record.counters.crashes == app.settings.max_crashes
    assert POISON.encode() in record.payload


def test_two_suspects_wait_to_run_alone(app: Windlass) -> None:
    waiting = app.engine.find(Filter(state=State.READY, task=tasks.render.name)).records
    assert [record.suspect for record in waiting] == [True, True]


def test_jobs_of_a_lost_worker_were_charged_a_loss(app: Windlass) -> None:
    page = app.engine.find(Filter(), limit=20_000)
    assert 0 < sum(record.counters.losses for record in page.records) < 20
    assert not any(worker.host == "web-2" for worker in app.workers())


def test_lost_sessions_are_listed(app: Windlass) -> None:
    lost = app.lost_sessions()
    assert Counter(one.kind for one in lost) == {"crashed": 4, "expired": 1}
    [expired] = [one for one in lost if one.kind == "expired"]
    assert expired.worker.startswith("web-2:")
    assert expired.job_count >= 1
    suspects = app.crash_suspects()
    assert (len(suspects.waiting), len(suspects.dead)) == (2, 1)


def test_jobs_of_the_next_release_are_held(app: Windlass) -> None:
    held = app.engine.find(Filter(state=State.READY, hold=Hold.UNROUTABLE)).records
    assert {record.task for record in held} == {"images.upscale"}


def test_workers_run_jobs_with_progress(app: Windlass, seeded: SeededPast) -> None:
    workers = app.workers()
    assert len(workers) == len(seeded.workers) == 3
    assert {worker.release for worker in workers} == {tasks.NEW_RELEASE}
    running = app.engine.find(Filter(state=State.RUNNING, task=tasks.monthly.name)).records
    assert any(record.progress for record in app.engine.get([one.id for one in running]) if record)


def test_one_schedule_is_late(app: Windlass) -> None:
    """Another one is paused, and its time may have passed meanwhile."""
    now_ms = read_clock(app.engine)
    late = [
        one.name
        for one in app.schedules.list()
        if one.next_at is not None
        and one.state == "active"
        and now_ms / 1000 - one.next_at.timestamp() > 120
    ]
    assert late == ["prices-of-zenith"]


def test_each_minute_has_a_history(app: Windlass) -> None:
    history = app.history(timedelta(hours=1), step="minute")
    minutes = {row.at for row in history.rows if row.runs}
    assert len(minutes) >= 58
    assert {row.queue for row in history.rows} == set(app.engine.stats().queues)


def test_the_days_before_have_a_history(app: Windlass) -> None:
    history = app.history(timedelta(days=30), step="hour")
    hours = Counter(row.at for row in history.rows if row.runs)
    assert 718 <= len(hours) <= 722
    days = [row for row in history.rows if row.at < history.begin + timedelta(days=4)]
    assert len({row.task for row in days}) == 11
    for task in {row.task for row in days}:
        rates = [row.failure_rate or 0 for row in days if row.task == task]
        assert 0 < max(rates) < 0.2  # a rare task has hours, and whole weekends, without a failure

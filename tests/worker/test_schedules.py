"""Schedules in real workers that are killed, and far-off jobs that cost nothing: the small forms of
two proofs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.soon import is_once
from tests.worker.apps.ticking import await_all, kill_until, next_second, save, share, take_account
from tests.worker.conftest import MakeYard
from tests.worker.yard import Yard, until
from windlass.core.states import State

SCHEDULES, SECONDS = 6, 4


@pytest.mark.local
def test_every_occurrence_is_enqueued_once_while_workers_are_killed(make_yard: MakeYard) -> None:
    yard = make_yard(lease="2s")
    workers = [yard.start() for _ in range(3)]
    for worker in workers:
        worker.await_log("ready: ")
    begin = next_second(0.2)
    expected = save(yard, SCHEDULES, SECONDS, begin)
    kill_until(yard, workers, begin + timedelta(seconds=SECONDS - 1), 1.0)
    await_all(yard, SCHEDULES * SECONDS, 10)
    yard.await_count(State.SUCCEEDED, SCHEDULES * SECONDS)
    account = take_account(yard, expected)
    assert (account.missing, account.invented) == (0, 0)
    assert yard.app.engine.stats().totals["enqueued"] == SCHEDULES * SECONDS
    assert {line.label for line in yard.events("start")} == {f"tick-{n}" for n in range(SCHEDULES)}
    assert 0 <= share(account.enqueued_late_ms, 50) < 1_000


@pytest.mark.local
def test_a_worker_declares_the_schedules_of_its_code_and_keeps_them(yard: Yard) -> None:
    worker = yard.start(app="tests.worker.apps.scheduled:app")
    until(lambda: "ticked" in yard.lines(), "a run")
    (info,) = yard.app.schedules.list()
    assert (info.name, info.task, info.is_declared) == ("ticking", "ticking", True)
    assert worker.stop() == 0
    assert [info.name for info in yard.app.schedules.list()] == ["ticking"]


@pytest.mark.local
def test_jobs_of_the_far_future_do_not_delay_those_that_are_due(yard: Yard) -> None:
    far = yard.script.plain.using(run_after=datetime.now(UTC) + timedelta(days=3_652))
    far.enqueue_many(far.bind(f"far-{number}", []) for number in range(5_000))
    yard.start(slots=10)
    yard.plain("warm")
    yard.await_count(State.SUCCEEDED, 1)
    assert is_once(lambda: median_delay_ms(yard) < 200)
    assert yard.count(State.SCHEDULED) == 5_000


def median_delay_ms(yard: Yard) -> int:
    """The median delay of jobs that are due soon, in turn."""
    clock = yard.script.clock
    begin = datetime.now(UTC) + timedelta(seconds=0.3)
    moments = [begin + timedelta(milliseconds=10 * number) for number in range(50)]
    jobs = clock.enqueue_many(clock.using(run_after=moment).bind() for moment in moments)
    late_ms = sorted(
        job.result(timeout=20) // 1_000_000 - int(moment.timestamp() * 1000)
        for job, moment in zip(jobs, moments, strict=True)
    )
    assert late_ms[0] >= 0
    return late_ms[25]

"""Cancellation of jobs that run, in each runner."""

from __future__ import annotations

import time

import pytest

from tests.worker.conftest import MakeYard
from tests.worker.yard import Yard, until
from windlass.core.retry import Retry
from windlass.core.states import Reason, State
from windlass.errors import JobCancelled
from windlass.job import Job

#: Short, so that the heartbeat that brings cancellations comes soon.
LEASE = "600ms"
STUBBORN = ["swallow", "hold:60"]


def enqueue(yard: Yard, kind: str, label: str, *steps: str) -> Job[str]:
    task = {
        "plain": yard.script.plain,
        "coroutine": yard.script.coroutine,
        "process": yard.script.process,
    }[kind]
    return task.enqueue(label, list(steps))


@pytest.mark.local
@pytest.mark.parametrize(
    ("kind", "step"), [("plain", "nap"), ("coroutine", "sleep:60"), ("process", "nap")]
)
def test_a_job_that_runs_is_interrupted_and_ends_as_cancelled(
    make_yard: MakeYard, kind: str, step: str
) -> None:
    yard = make_yard(lease=LEASE)
    neighbour = yard.plain("neighbour", "sleep:2")
    job = enqueue(yard, kind, "wanted", step)
    worker = yard.start(slots=2)
    yard.await_start("wanted")
    assert job.cancel()
    record = yard.await_state(job, State.CANCELLED)
    assert (record.reason, len(yard.events("start", "wanted"))) == (Reason.CANCELLED, 1)
    with pytest.raises(JobCancelled):
        job.result(timeout=1)
    worker.await_log(f"job {job.id} of task {kind} was cancelled while it ran")
    assert neighbour.result(timeout=20) == "neighbour done"
    assert yard.record(neighbour).counters.starts == 1
    assert "killing" not in worker.log()


def test_a_cancellation_arrives_within_a_second_whatever_the_lease(make_yard: MakeYard) -> None:
    yard = make_yard(lease="60s")  # the next regular heartbeat comes 20 s after the first one
    job = yard.plain("wanted", "nap")
    yard.start()
    yard.await_start("wanted")
    job.cancel()
    begin = time.monotonic()
    yard.await_state(job, State.CANCELLED)
    assert time.monotonic() - begin < 5, "with room for a busy machine"


def test_a_task_may_look_for_itself_and_its_success_counts(make_yard: MakeYard) -> None:
    yard = make_yard(lease=LEASE)
    job = yard.plain("polite", "until_cancelled")
    yard.start()
    yard.await_start("polite")
    job.cancel()
    assert job.result(timeout=20) == "polite done"
    assert f"heard {job.id}" in yard.lines()


@pytest.mark.local
def test_one_that_takes_no_notice_goes_on_beside_its_neighbours(make_yard: MakeYard) -> None:
    """In a shared process nothing is done by force for a mere wish."""
    yard = make_yard(lease=LEASE, kill_after="100ms")
    gate = yard.folder / "gate"
    job = yard.plain("deaf", "sleep:1.5")
    neighbour = yard.plain("neighbour", f"await:{gate}")
    worker = yard.start(slots=2)
    yard.await_start("deaf")
    yard.await_start("neighbour")
    job.cancel()
    yard.await_state(job, State.CANCELLED)  # when its call had ended, the interruption arrived
    assert yard.events("end", "deaf") == []
    gate.touch()
    assert neighbour.result(timeout=20) == "neighbour done"
    assert "retires" not in worker.log()


@pytest.mark.local
@pytest.mark.parametrize(
    "step", ["sleep:60", *(pytest.param(step, marks=pytest.mark.slow) for step in STUBBORN)]
)
def test_one_that_runs_alone_and_takes_no_notice_is_killed(make_yard: MakeYard, step: str) -> None:
    yard = make_yard(lease=LEASE, kill_after="200ms")
    job = yard.process("deaf", step)
    worker = yard.start()
    yard.await_start("deaf")
    job.cancel()
    record = yard.await_state(job, State.CANCELLED)
    assert record.counters.crashes == 0
    worker.await_log(f"job {job.id} still ran 200ms after it was cancelled")
    assert yard.process("after").result(timeout=20) == "after done"


@pytest.mark.slow
def test_jobs_that_end_at_that_very_moment_leave_the_next_ones_alone(
    make_yard: MakeYard,
) -> None:
    """Jobs run in turn in one slot. Every second one is cancelled about when it ends. The others
    must not be affected."""
    yard = make_yard(lease="300ms", kill_after="0s")
    using = yard.script.process.using(retry=Retry(1))
    pairs = [
        (using.enqueue(f"c{n}", ["sleep:0.1"]), using.enqueue(f"n{n}", ["sleep:0.05"]))
        for n in range(12)
    ]
    yard.start(slots=1)
    for number, (wanted, _) in enumerate(pairs):
        yard.await_start(f"c{number}")
        wanted.cancel()
    for number, (wanted, unwanted) in enumerate(pairs):
        assert unwanted.result(timeout=20) == f"n{number} done"
        assert len(yard.events("start", f"n{number}")) == 1
        until(lambda job=wanted: job.info().state.is_final, "the end of it")  # type: ignore[misc]

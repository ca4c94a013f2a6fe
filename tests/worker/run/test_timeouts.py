"""Time-outs: one meaning in threads, on the event loop and in processes of their own."""

from __future__ import annotations

import time

import pytest

from tests.worker.conftest import MakeYard
from tests.worker.yard import Yard, until
from windlass.core.failures import FailureText
from windlass.core.retry import Retry
from windlass.core.states import Reason, State
from windlass.engine.contract import JobRecord
from windlass.job import Job

ONCE = Retry(1)
#: Less than any of these tests waits for something that must not happen.
SOON_S = 15.0


def error_of(record: JobRecord) -> FailureText:
    return FailureText.unpack(record.failures[-1].error)


def enqueue(yard: Yard, kind: str, label: str, *steps: str, timeout: str = "300ms") -> Job[str]:
    task = yard.script.plain if kind == "plain" else yard.script.coroutine
    return task.using(timeout=timeout, retry=ONCE).enqueue(label, list(steps))


def assert_all_slots_work(yard: Yard, slots: int) -> None:
    """Run one job for each slot; each job waits until all others have started."""
    gate = yard.folder / f"gate-{time.monotonic_ns()}"
    jobs = [yard.plain(f"{gate.name}-{number}", f"await:{gate}") for number in range(slots)]
    for number in range(slots):
        yard.await_start(f"{gate.name}-{number}")
    gate.touch()
    for job in jobs:
        assert job.result(timeout=20).endswith("done")


@pytest.mark.local
@pytest.mark.parametrize(
    ("kind", "step"), [("plain", "nap"), ("plain", "spin:60"), ("coroutine", "sleep:60")]
)
def test_a_run_past_its_timeout_is_interrupted_and_nothing_else_is(
    yard: Yard, kind: str, step: str
) -> None:
    job = enqueue(yard, kind, "slow", step)
    neighbour = yard.plain("neighbour", "sleep:1")
    worker = yard.start(slots=2)
    record = yard.await_state(job, State.DEAD)
    assert record.reason is Reason.TIMED_OUT
    assert record.counters.attempt == 1
    error = error_of(record)
    assert error.type == "windlass.errors.TimedOut"
    assert error.message == "The job ran for longer than its time-out, 300ms."
    assert "scripted.py" in error.traceback  # where it was
    assert neighbour.result(timeout=20) == "neighbour done"
    assert_all_slots_work(yard, 2)
    assert {line.pid for line in yard.events("start")} == set(worker.children())


@pytest.mark.local
def test_a_timeout_is_a_failed_attempt_like_any_other(make_yard: MakeYard) -> None:
    yard = make_yard(kill_after="100ms")
    job = yard.script.plain.using(timeout="200ms").enqueue("better", ["stuck_before:2"])
    worker = yard.start()
    assert job.result(timeout=20) == "better done"
    assert job.info().attempts == 2
    assert ", ending child" in worker.log()


@pytest.mark.local
@pytest.mark.parametrize("kind", ["plain", "process"])
def test_a_retry_begins_only_when_the_run_before_it_is_gone(make_yard: MakeYard, kind: str) -> None:
    yard = make_yard(kill_after="100ms", grace="2s")
    neighbour = yard.plain("neighbour", f"await:{yard.folder / 'gate'}")
    worker = yard.start(slots=2)
    yard.await_start("neighbour")
    task = yard.script.plain if kind == "plain" else yard.script.process
    job = task.using(timeout="200ms").enqueue("haunting", ["haunt_before:2"])
    worker.await_log(", ending child")
    if kind == "plain":  # the other job has the grace, and this one still runs meanwhile
        record = yard.record(job)
        assert (record.state, record.counters.attempt) == (State.RUNNING, 1)
    second = yard.await_start("haunting", 2)
    assert second.attempt == 2
    assert second.pid != yard.events("start", "haunting")[0].pid
    assert job.result(timeout=20) == "haunting done"
    lines = yard.lines()
    after = lines[lines.index(f"start haunting 2 {second.pid}") :]
    assert [line for line in after if line.startswith("haunt ")] == []
    [failure] = yard.record(job).failures
    assert FailureText.unpack(failure.error).type == "windlass.errors.TimedOut"
    assert yard.record(job).counters.attempt == 2
    (yard.folder / "gate").touch()
    assert neighbour.result(timeout=20) == "neighbour done"


@pytest.mark.local
def test_a_worker_that_stops_meanwhile_reports_the_time_out(make_yard: MakeYard) -> None:
    yard = make_yard(kill_after="100ms", grace="1s")
    yard.plain("neighbour", f"await:{yard.folder / 'gate'}")
    worker = yard.start(slots=2)
    yard.await_start("neighbour")
    job = yard.script.plain.using(timeout="200ms").enqueue("haunting", ["haunt_before:9"])
    worker.await_log(", ending child")
    assert worker.stop() == 0
    record = yard.record(job)
    assert record.state in (State.RETRYING, State.READY)  # ready if the short delay is over
    assert record.counters.attempt == 1
    assert (record.counters.interruptions, record.counters.losses) == (0, 0)
    assert error_of(record).type == "windlass.errors.TimedOut"


@pytest.mark.slow  # claims under a nonce that is not known are given back after ten seconds
def test_a_run_that_goes_on_keeps_its_claim_until_it_is_gone(make_yard: MakeYard) -> None:
    yard = make_yard(kill_after="100ms", grace="16s", lease="3s")
    yard.plain("neighbour", f"await:{yard.folder / 'gate'}")
    worker = yard.start(slots=2)
    yard.await_start("neighbour")
    job = yard.script.plain.using(timeout="200ms").enqueue("haunting", ["haunt_before:2"])
    worker.await_log(", ending child")
    first = yard.events("start", "haunting")[0]
    until(lambda: first.pid not in worker.children(), "the end of the child", seconds=40)
    assert job.result(timeout=20) == "haunting done"
    counters = yard.record(job).counters
    assert (counters.attempt, counters.starts, counters.losses) == (2, 2, 0)
    lines = yard.lines()
    second = yard.events("start", "haunting")[1]
    after = lines[lines.index(f"start haunting 2 {second.pid}") :]
    assert [line for line in after if line.startswith("haunt ")] == []


@pytest.mark.local
def test_a_run_that_deals_with_its_interruption_may_still_succeed(yard: Yard) -> None:
    job = enqueue(yard, "plain", "tidy", "until_cancelled")
    yard.start()
    assert job.result(timeout=20) == "tidy done"


@pytest.mark.local
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("plain", "sleep:60"),
        ("plain", "swallow"),
        ("plain", "hold:60"),
        ("coroutine", "swallow"),
        ("coroutine", "block:60"),
    ],
)
def test_a_run_that_does_not_end_loses_its_job_and_its_slot_is_made_good(
    make_yard: MakeYard, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    yard = make_yard(kill_after="200ms")
    worker = yard.start(slots=2)
    worker.await_log("ready")
    job = enqueue(yard, kind, "stuck", step)
    first = yard.await_start("stuck")
    began_at = time.monotonic()
    record = yard.await_state(job, State.DEAD)
    assert time.monotonic() - began_at < SOON_S
    assert record.reason is Reason.TIMED_OUT
    assert (record.counters.attempt, record.counters.crashes) == (1, 0)
    assert "did not end within 200ms" in error_of(record).message
    worker.await_log(f"job {job.id} of task {kind} is dead, timed_out: TimedOut")
    assert_all_slots_work(yard, 2)
    until(lambda: first.pid not in worker.children(), "the end of the child")
    assert len(worker.children()) == 1
    assert "stale" not in worker.log()


@pytest.mark.local
def test_neighbours_of_a_stuck_run_have_the_grace_to_end(make_yard: MakeYard) -> None:
    yard = make_yard(kill_after="100ms")
    gate = yard.folder / "gate"
    neighbours = [yard.plain("neighbour", f"await:{gate}"), yard.coroutine("other", "sleep:2")]
    worker = yard.start(slots=3)
    yard.await_start("neighbour")
    yard.await_start("other")
    stuck = enqueue(yard, "plain", "stuck", "sleep:60")
    yard.await_state(stuck, State.DEAD)
    worker.await_log("retires: job")
    assert yard.plain("after").result(timeout=20) == "after done"  # in the replacement
    gate.touch()
    for job in neighbours:
        job.result(timeout=20)
        counters = yard.record(job).counters
        assert (counters.attempt, counters.starts, counters.interruptions) == (1, 1, 0)
    old = yard.events("start", "stuck")[0].pid
    until(lambda: old not in worker.children(), "the end of the old child")
    assert "died" not in worker.log()


def test_neighbours_that_take_longer_go_back_to_the_head_of_the_line(make_yard: MakeYard) -> None:
    yard = make_yard(grace="300ms", kill_after="100ms")
    gate = yard.folder / "gate"
    neighbour = yard.plain("neighbour", f"await:{gate}")
    yard.start(slots=2)
    yard.await_start("neighbour")
    stuck = enqueue(yard, "plain", "stuck", "sleep:60")
    yard.await_state(stuck, State.DEAD)
    second = yard.await_start("neighbour", 2)
    assert second.attempt == 1
    gate.touch()
    assert neighbour.result(timeout=20) == "neighbour done"
    counters = yard.record(neighbour).counters
    assert (counters.attempt, counters.interruptions, counters.crashes) == (1, 1, 0)

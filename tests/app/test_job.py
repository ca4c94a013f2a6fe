"""Handles on jobs: what they show, what they wait for, and what they change."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.app.hand import Hand
from windlass import (
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Progress,
    Reason,
    ResultExpired,
    Retry,
    State,
    Task,
    Windlass,
)


@pytest.fixture
def next_day(app: Windlass) -> Task[..., date]:
    @app.task(name="shop.next_day")
    def next_day(day: date) -> date:
        return day + timedelta(days=1)

    return next_day


@pytest.fixture(params=["plain", "coroutine"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a verb of a job by its name, either itself or its twin for coroutines."""

    def plainly(job: Job[Any], verb: str, *args: Any) -> Any:
        return getattr(job, verb)(*args)

    def in_a_coroutine(job: Job[Any], verb: str, *args: Any) -> Any:
        async def main() -> Any:
            twin: Coroutine[Any, Any, Any] = getattr(job, f"a{verb}")(*args)
            return await twin

        return asyncio.run(main())

    return plainly if request.param == "plain" else in_a_coroutine


TODAY = date(2030, 1, 1)

# ------------------------------------------------------------------------------------------ handles


def test_a_handle_is_its_id(app: Windlass, next_day: Task[..., date]) -> None:
    job = next_day.enqueue(TODAY)
    assert {job, app.job(job.id), next_day.job(job.id)} == {job}
    assert job != next_day.enqueue(TODAY)
    assert job != job.id
    assert repr(job) == f"<Job {job.id} of shop.next_day>"
    assert repr(app.job(job.id)) == f"<Job {job.id}>"
    assert not app.job(job.id).created


@pytest.mark.parametrize("wrong", ["", "a b", "../x", "x" * 65])
def test_what_is_no_id_is_refused(app: Windlass, next_day: Task[..., date], wrong: str) -> None:
    for handle in (app.job, next_day.job):
        with pytest.raises(ValueError, match="an id must be 1 to 64 characters"):
            handle(wrong)


@pytest.mark.parametrize("verb", ["info", "result", "cancel", "retry"])
def test_a_job_that_is_not_there(app: Windlass, ask: Callable[..., Any], verb: str) -> None:
    with pytest.raises(JobNotFound, match=r"There is no job missing in sqlite .*jobs\.db"):
        ask(app.job("missing"), verb)


@pytest.mark.parametrize("verb", ["info", "result"])
def test_a_job_of_another_task(
    app: Windlass, next_day: Task[..., date], ask: Callable[..., Any], verb: str
) -> None:
    @app.task(name="shop.other")
    def other() -> int:
        return 1

    job = other.enqueue()
    with pytest.raises(TypeError, match=r"belongs to task shop\.other, not to shop\.next_day"):
        ask(next_day.job(job.id), verb)


# --------------------------------------------------------------------------------------------- info


def test_info_of_a_job_that_waits(next_day: Task[..., date], ask: Callable[..., Any]) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    job = next_day.using(queue="mail", priority=3).enqueue(TODAY)
    info = ask(job, "info")
    assert (info.id, info.task, info.queue, info.priority) == (job.id, "shop.next_day", "mail", 3)
    assert (info.state, info.reason, info.attempts) == (State.READY, None, 0)
    assert before <= info.enqueued_at <= datetime.now(UTC)
    assert (info.started_at, info.finished_at, info.worker) == (None, None, None)
    assert (info.progress, info.error, info.cancel_requested) == (None, None, False)


def test_info_of_a_job_that_runs(next_day: Task[..., date], hand: Hand) -> None:
    job = next_day.enqueue(TODAY)
    claim = hand.take()
    hand.report(claim, b'{"value":0.5,"message":"half way"}')
    info = job.info()
    assert (info.state, info.attempts, info.worker) == (State.RUNNING, 1, hand.session)
    assert info.started_at is not None
    assert info.progress == Progress(0.5, "half way")


def test_info_of_a_job_that_failed_once(next_day: Task[..., date], hand: Hand) -> None:
    job = next_day.enqueue(TODAY)
    hand.fail(ValueError("no calendar"), delay_ms=60_000)
    info = job.info()
    assert (info.state, info.attempts) == (State.RETRYING, 1)
    assert info.due_at is not None
    assert info.error is not None
    assert (info.error.type, info.error.message) == ("ValueError", "no calendar")


def test_info_is_a_snapshot(next_day: Task[..., date], hand: Hand) -> None:
    job = next_day.enqueue(TODAY)
    before = job.info()
    hand.succeed(TODAY)
    assert (before.state, job.info().state) == (State.READY, State.SUCCEEDED)
    assert job.info().finished_at is not None


# ------------------------------------------------------------------------------------------- result


def test_a_result_is_of_the_type_of_the_function(
    next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]
) -> None:
    job = next_day.enqueue(TODAY)
    hand.succeed(date(2030, 1, 2))
    assert ask(job, "result") == date(2030, 1, 2)


def test_a_result_is_waited_for(
    next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]
) -> None:
    job = next_day.enqueue(TODAY)
    worker = threading.Timer(0.05, hand.succeed, [date(2030, 1, 2)])
    worker.start()
    assert ask(job, "result", "1m") == date(2030, 1, 2)
    worker.join()


def test_a_result_without_its_task_is_json(
    app: Windlass, next_day: Task[..., date], hand: Hand
) -> None:
    job = next_day.enqueue(TODAY)
    hand.succeed(date(2030, 1, 2))
    assert app.job(job.id).result() == date(2030, 1, 2)
    with Windlass(app.settings.url) as stranger:
        assert stranger.job(job.id).result() == "2030-01-02"


def test_waiting_ends_in_time(next_day: Task[..., date], ask: Callable[..., Any]) -> None:
    job = next_day.enqueue(TODAY)
    said = f"Job {job.id} has not ended within .*: it is ready in sqlite "
    for timeout in (0, 0.1, timedelta(milliseconds=100)):
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=said):
            ask(job, "result", timeout)
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_running_job_does_not_wait_for_another_without_end(
    app: Windlass, next_day: Task[..., date], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(id: str, timeout: float | None) -> date:
        return next_day.job(id).result(timeout)

    async def coroutine(id: str, limit: float | None) -> date:
        return await next_day.job(id).aresult(limit)

    wait = app.task(name=f"wait_{kind}", retry=Retry(1))(plain if kind == "plain" else coroutine)
    later = next_day.using(run_after="1h").enqueue(TODAY)
    with app.worker(slots=4):
        done = next_day.enqueue(TODAY)
        done.result(timeout=20)
        assert wait.enqueue(done.id, None).result(timeout=20) == TODAY + timedelta(days=1)
        with pytest.raises(JobFailed, match=rf"would wait for job {later.id}: it keeps its slot"):
            wait.enqueue(later.id, None).result(timeout=20)
        for _ in range(2):
            with pytest.raises(JobFailed, match="TimeoutError"):
                wait.enqueue(later.id, 0.05).result(timeout=20)
    told = f"task {wait.name} waits for the result of another job"
    assert sum(line.startswith(told) for line in caplog.messages) == 1


def test_no_time_is_time_enough_for_a_result_that_is_there(
    next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]
) -> None:
    job = next_day.enqueue(TODAY)
    hand.succeed(TODAY)
    assert ask(job, "result", 0) == TODAY


def test_a_dead_job_raises_what_happened(
    next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]
) -> None:
    job = next_day.enqueue(TODAY)
    hand.bury(ValueError("no calendar"))
    with pytest.raises(JobFailed) as caught:
        ask(job, "result")
    failure = caught.value
    assert (failure.job_id, failure.task) == (job.id, "shop.next_day")
    assert (failure.reason, failure.type, failure.message) == (
        "exhausted",
        "ValueError",
        "no calendar",
    )
    assert failure.traceback.endswith("ValueError: no calendar\n")


def test_a_cancelled_job_has_no_result(next_day: Task[..., date], ask: Callable[..., Any]) -> None:
    job = next_day.enqueue(TODAY)
    job.cancel()
    with pytest.raises(JobCancelled) as caught:
        ask(job, "result")
    assert (caught.value.job_id, caught.value.reason) == (job.id, "cancelled")


def test_a_result_that_is_not_kept_has_expired(
    next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]
) -> None:
    job = next_day.enqueue(TODAY)
    hand.succeed(TODAY, ttl_ms=0)
    with pytest.raises(ResultExpired, match=r"of task shop\.next_day succeeded, but its result"):
        ask(job, "result")


def test_a_result_past_its_time_has_expired(
    app: Windlass, next_day: Task[..., date], hand: Hand
) -> None:
    job = next_day.enqueue(TODAY)
    hand.succeed(TODAY, ttl_ms=60_000)
    assert job.result() == TODAY
    app.engine.clock_offset_ms = 61_000
    with pytest.raises(ResultExpired):
        job.result()


# --------------------------------------------------------------------------------- cancel and retry


def test_cancelling(next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]) -> None:
    waiting, running, ended = (next_day.enqueue(TODAY) for _ in range(3))
    assert ask(waiting, "cancel") is True
    assert (waiting.info().state, waiting.info().reason) == (State.CANCELLED, Reason.CANCELLED)
    assert hand.take().id == running.id
    assert ask(running, "cancel") is True
    assert (running.info().state, running.info().cancel_requested) == (State.RUNNING, True)
    hand.succeed(TODAY)
    assert ask(ended, "cancel") is False
    assert ended.result() == TODAY


def test_retrying(next_day: Task[..., date], hand: Hand, ask: Callable[..., Any]) -> None:
    job = next_day.enqueue(TODAY)
    assert ask(job, "retry") is False
    hand.bury(ValueError("no calendar"))
    assert ask(job, "retry") is True
    assert (job.info().state, job.info().attempts) == (State.READY, 0)
    hand.succeed(TODAY)
    assert job.result() == TODAY

"""Hooks: what they get, when they are called, and what they cannot do to a job."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import pytest

from tests.worker.apps.hooked import EXIT_S, HOOK_S
from tests.worker.conftest import MakeYard
from tests.worker.yard import until
from windlass import (
    Context,
    Interrupted,
    JobEvent,
    Reason,
    Reject,
    Retry,
    Snooze,
    State,
    Tasks,
    TimedOut,
    Windlass,
)
from windlass.core.failures import FailureText
from windlass.engine.contract import Plan, Retried, Succeeded, Verdict
from windlass.testing.contract.world import claim_jobs
from windlass.worker.ipc.channel import EndedByForce
from windlass.worker.run import hooks as hooks_module
from windlass.worker.run.hooks import HookThread

QUICK = Retry(2, base=0.01, jitter=0)


class Seen:
    """The events of one app, which hooks collect."""

    def __init__(self) -> None:
        self.events: list[JobEvent] = []
        self.threads: set[str] = set()

    def plain(self, event: JobEvent) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append(event)

    async def coroutine(self, event: JobEvent) -> None:
        await asyncio.sleep(0)
        self.plain(event)

    def one(self) -> JobEvent:
        until(lambda: self.events, "a call of the hook")
        [event] = self.events
        return event


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def app(url: str) -> Iterator[Windlass]:
    with Windlass(url, retry=QUICK) as app:
        yield app


# ------------------------------------------------------------------------------- what a hook gets


def test_a_success(app: Windlass, seen: Seen) -> None:
    app.on_success(seen.plain)
    app.on_dead(seen.plain), app.on_retry(seen.plain)

    @app.task(name="add", takes_context=True, queue="sums")
    def add(ctx: Context, numbers: list[int], *, more: int = 0) -> int:
        total = sum(numbers) + more
        numbers.clear()
        return total

    with app.worker():
        job = add.using(headers={"user": "ann"}).enqueue([1, 2], more=3)
        job.result(timeout=20)
        event = seen.one()
    assert (event.kind, event.job_id, event.task, event.queue) == ("success", job.id, "add", "sums")
    assert (event.attempt, event.max_attempts, event.headers) == (1, 2, {"user": "ann"})
    assert (event.args, event.kwargs, event.result) == (([1, 2],), {"more": 3}, 6)
    assert (event.error, event.failure, event.retry_in, event.reason) == (None, None, None, None)
    assert seen.threads == {"hooks"}
    with pytest.raises(AttributeError):
        event.result = 7  # type: ignore[misc]  # it is frozen, and a checker knows


def test_a_retry_and_then_a_death(app: Windlass, seen: Seen) -> None:
    retried, dead = Seen(), Seen()
    app.on_success(seen.plain)

    @app.task(name="fail", on_retry=retried.coroutine, on_dead=dead.coroutine)
    async def fail(number: int) -> None:
        raise KeyError(number)

    policy = Retry(2, base=0.02, jitter=0)
    with app.worker():
        job = fail.using(retry=policy).enqueue(5)
        first, last = retried.one(), dead.one()
    assert (first.kind, first.attempt, first.max_attempts) == ("retry", 1, 2)
    assert first.retry_in == timedelta(milliseconds=20)
    assert (first.args, first.kwargs) == ((), {"number": 5}) or first.args == (5,)
    assert first.reason is None
    assert (last.kind, last.job_id, last.attempt, last.retry_in) == ("dead", job.id, 2, None)
    assert last.reason is Reason.EXHAUSTED
    for event in (first, last):
        assert isinstance(event.error, KeyError)
        assert event.error.__traceback__ is not None
        assert event.failure is not None
        assert (event.failure.type, event.result) == ("KeyError", None)
    assert seen.events == []


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_time_out_is_the_error_that_is_stored(app: Windlass, seen: Seen, kind: str) -> None:
    dead = Seen()
    app.on_retry(seen.plain), app.on_dead(dead.plain)

    def hang() -> None:
        while True:
            time.sleep(0.01)

    async def wait() -> None:
        await asyncio.sleep(60)

    task = app.task(name="hang", timeout=0.05)(hang if kind == "thread" else wait)
    with app.worker():
        task.enqueue()
        events = [seen.one(), dead.one()]
    cause = Interrupted if kind == "thread" else asyncio.CancelledError
    for event in events:
        assert isinstance(event.error, TimedOut)
        assert event.error.timeout_ms == 50
        assert isinstance(event.error.__cause__, cause)
        assert event.failure is not None
        assert (event.failure.name, event.failure.message) == ("TimedOut", str(event.error))
    assert events[1].reason is Reason.TIMED_OUT


@pytest.mark.parametrize("kind", ["bad result", "undecodable", "rejected"])
def test_other_deaths(app: Windlass, seen: Seen, kind: str) -> None:
    app.on_dead(seen.plain)

    @app.task(name="die")
    def die(number: int) -> object:
        if kind == "rejected":
            raise Reject("told to")
        return object()

    if kind == "undecodable":
        with Windlass(app.settings.url) as other:
            job = other.task_named("die").enqueue(number="no number")
    else:
        job = die.enqueue(1)
    with app.worker():
        event = seen.one()
    assert (event.job_id, event.kind) == (job.id, "dead")
    assert event.failure is not None
    if kind == "undecodable":
        assert (event.reason, event.args, event.error) == (Reason.UNDECODABLE, (), None)
    elif kind == "rejected":
        assert event.reason is Reason.REJECTED
        assert isinstance(event.error, Reject)
    else:
        assert (event.reason, event.result) == (Reason.BAD_RESULT, None)


def test_the_result_is_given_although_it_is_not_stored(app: Windlass, seen: Seen) -> None:
    @app.task(name="give", result_ttl=0, on_success=seen.plain)
    def give() -> object:
        return seen

    with app.worker():
        give.enqueue()
        assert seen.one().result is seen


def test_a_hook_of_a_task_replaces_those_of_the_app(app: Windlass, seen: Seen) -> None:
    own = Seen()
    app.on_success(seen.plain)
    app.on_success(seen.coroutine)
    group = Tasks(prefix="group")
    special = group.task(name="special", on_success=own.plain)(nothing)
    usual = app.task(name="usual", on_dead=own.plain)(nothing)
    app.include(group)
    with app.worker():
        special.enqueue()
        own.one()
        usual.enqueue()
        until(lambda: len(seen.events) == 2, "both hooks of the app")
    assert [event.task for event in own.events] == ["group.special"]
    assert [event.task for event in seen.events] == ["usual", "usual"]


def nothing() -> None:
    """A task that does nothing."""


# ------------------------------------------------------------------------- when a hook is called


@pytest.mark.local
def test_a_snooze_and_a_cancelled_job_call_none(app: Windlass, seen: Seen) -> None:
    started = Event()
    for add in (app.on_success, app.on_retry, app.on_dead):
        add(seen.plain)

    @app.task(name="snooze", takes_context=True)
    def snooze(ctx: Context) -> None:
        raise Snooze(60)

    @app.task(name="stop", takes_context=True)
    def stop(ctx: Context) -> None:
        started.set()
        with suppress(Interrupted):
            until(lambda: ctx.cancelled, "the cancellation")
        raise ValueError("fails while it is cancelled")

    with app.worker():
        snoozed, stopped = snooze.enqueue(), stop.enqueue()
        assert started.wait(20)
        stopped.cancel()
        until(lambda: stopped.info().state is State.CANCELLED, "the end")
        until(lambda: snoozed.info().state is State.SCHEDULED, "the snooze")
    assert seen.events == []


def test_a_stale_outcome_calls_none(app: Windlass, seen: Seen) -> None:
    started, gate, runs = Event(), Event(), []

    @app.task(name="run", on_success=seen.plain)
    def run() -> str:
        runs.append("run")
        if len(runs) > 1:
            return "second"
        started.set()
        assert gate.wait(20)
        return "stale"

    with app.worker():
        job = run.enqueue()
        assert started.wait(20)
        [session] = app.engine.sessions()
        app.engine.lose(session.session, "a test")
        until(lambda: job.info().state is State.SUCCEEDED, "the second run")
        gate.set()
    assert [event.result for event in seen.events] == ["second"]


@pytest.mark.local
def test_a_worker_that_stops_first_finishes_its_hooks(app: Windlass, seen: Seen) -> None:
    gate = Event()

    def wait(event: JobEvent) -> None:
        assert gate.wait(20)
        seen.plain(event)

    quick = app.task(name="quick", on_success=wait)(nothing)
    with app.worker():
        jobs = quick.enqueue_many([()] * 5)
        until(lambda: jobs[-1].info().state is State.SUCCEEDED, "the jobs")
        assert seen.events == [], "no job waits for a hook"
        threading.Timer(0.05, gate.set).start()
    assert len(seen.events) == 5


@pytest.mark.local
def test_a_hook_that_hangs_delays_the_shutdown_by_the_grace_at_most(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, called = Event(), Event()

    def hang(event: JobEvent) -> None:
        called.set()
        gate.wait(60)

    with Windlass(url, shutdown_grace="300ms") as app:
        task = app.task(name="nothing", on_success=hang)(nothing)
        with app.worker():
            task.enqueue().result(timeout=20)
            assert called.wait(20)
            began = monotonic()
    assert 0.25 <= monotonic() - began < 10
    assert "dropped 1 hook call" in caplog.text
    gate.set()


# ---------------------------------------------------------------------- what it cannot do to a job


@pytest.mark.local
def test_errors_of_hooks_are_logged(
    app: Windlass, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: JobEvent) -> None:
        raise SystemExit("of a hook")

    async def afail(event: JobEvent) -> None:
        raise ValueError("of a coroutine")

    for hook in (fail, afail, seen.plain):
        app.on_success(hook)
    task = app.task(name="nothing")(nothing)
    with app.worker():
        job = task.enqueue()
        job.result(timeout=20)
        seen.one()
    assert job.info().state is State.SUCCEEDED
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info is not None for record in records] == [True, True]
    assert f"failed for job {job.id} of task nothing" in records[0].getMessage()
    assert "of a coroutine" in caplog.text


@pytest.mark.local
def test_a_hook_that_keeps_others_waiting_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks_module, "SLOW_S", 0.05)
    gate, called = Event(), Event()

    def wait(event: JobEvent) -> None:
        called.set()
        assert gate.wait(20)

    task = app.task(name="nothing", on_success=wait)(nothing)
    with app.worker():
        job = task.enqueue()
        assert called.wait(20)
        time.sleep(0.06)  # real time is what is measured
        for number in range(1, 4):
            task.enqueue().result(timeout=20)
            until(lambda: "has run for" in caplog.text, f"the line after {number} more calls")
        gate.set()
    [line] = [one.getMessage() for one in caplog.records if "has run for" in one.getMessage()]
    assert re.fullmatch(
        rf"hook on_success, \S+wait, has run for \d+s? for job {job.id} of task nothing: "
        "other hooks of this child wait for it",
        line,
    )


@pytest.mark.local
def test_an_event_loop_that_cannot_start_fails_one_call(
    monkeypatch: pytest.MonkeyPatch, app: Windlass, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """As without a free file descriptor."""
    loops = iter([OSError(24, "Too many open files")])

    def fail_once() -> asyncio.AbstractEventLoop:
        for error in loops:
            raise error
        return asyncio.SelectorEventLoop()

    task = app.task(name="nothing", on_success=seen.coroutine)(nothing)
    thread = HookThread(app)
    monkeypatch.setattr("asyncio.events.new_event_loop", fail_once)
    task.enqueue_many([(), ()])
    # With several partitions, jobs need not be claimed in the order in which they were enqueued.
    claims = claim_jobs(app.engine, "session", "1", Plan(), 2).claims
    for claim in claims:
        thread.notes.note(claim)
        thread.accept([Succeeded(id=claim.id, token=claim.token)], [Verdict.OK])
    thread.close(20)
    assert seen.one().job_id == claims[1].id
    assert "Too many open files" in caplog.text


@pytest.mark.local
def test_a_full_queue_drops_calls_and_counts_them(
    monkeypatch: pytest.MonkeyPatch, app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks_module, "MOST_WAITING", 3)
    gate, called, calls = Event(), Event(), []

    def wait(event: JobEvent) -> None:
        called.set()
        calls.append(event)
        assert gate.wait(20)

    task = app.task(name="nothing", on_success=wait)(nothing)
    with app.worker():
        task.enqueue().result(timeout=20)
        assert called.wait(20)
        for job in task.enqueue_many([()] * 10):
            job.result(timeout=20)
        until(lambda: "dropped 1 hook call:" in caplog.text, "the first one to be logged")
        gate.set()
    assert len(calls) == 4
    assert "dropped 6 hook calls:" in caplog.text


def test_without_hooks_nothing_is_noted() -> None:
    app = Windlass("sqlite:///:memory:")
    task = app.task(name="nothing")(nothing)
    thread = HookThread(app)
    assert not app.hooks.is_used
    with app.worker():
        task.enqueue().result(timeout=20)
    app.on_dead(lambda event: None)
    assert app.hooks.is_used
    thread.close(0)
    other = Windlass("sqlite:///:memory:")
    other.task(name="own", on_retry=lambda event: None)(nothing)
    assert other.hooks.is_used


# --------------------------------------------------------------------------------- in real workers


def test_hooks_of_a_worker(make_yard: MakeYard) -> None:
    yard = make_yard(max_crashes=1)
    worker = yard.start(app="tests.worker.apps.hooked:app")
    yard.plain("good"), yard.coroutine("bad", "fail_before:2")
    until(lambda: yard.events("success", "good") and yard.events("success", "bad"), "successes")
    yard.plain("crash", "exit:3")  # after them: a process that dies takes its hooks with it
    until(lambda: yard.events("dead", "crash-crashed-"), "the death, found by the next claim")
    assert len(yard.events("retry", "bad")) == 1
    assert worker.stop() == 0


@pytest.mark.parametrize("kind", ["plain", pytest.param("process", marks=pytest.mark.slow)])
def test_a_job_that_is_ended_by_force_calls_its_hook(make_yard: MakeYard, kind: str) -> None:
    yard = make_yard(grace="1s", kill_after="100ms")
    yard.start(app="tests.worker.apps.hooked:app", processes=1)
    task = getattr(yard.script, kind).using(timeout="50ms", retry=Retry(1))
    job = task.enqueue("stuck", ["call:60"])
    yard.await_state(job, State.DEAD)
    [line] = until(lambda: yard.events("dead", "stuck-timed_out-TimedOut"), "the hook")
    assert line.pid != os.getpid()


@pytest.mark.parametrize("kind", ["plain", pytest.param("process", marks=pytest.mark.slow)])
def test_a_retry_of_a_job_that_is_ended_by_force_calls_its_hook(
    make_yard: MakeYard, kind: str
) -> None:
    yard = make_yard(grace="500ms", kill_after="100ms")
    yard.start(app="tests.worker.apps.hooked:app", processes=1)
    task = getattr(yard.script, kind).using(timeout="50ms", retry=Retry(2, base=0.1, jitter=0))
    job = task.enqueue("stuck", ["call:60"])
    yard.await_state(job, State.DEAD)
    until(lambda: yard.events("dead", "stuck-timed_out-TimedOut"), "the hook of the death")
    [retried] = yard.events("retry", "stuck")
    [dead] = yard.events("dead", "stuck-timed_out-TimedOut")
    assert (retried.attempt, dead.attempt) == (1, 2)


def test_the_event_of_a_retry_by_force(app: Windlass, seen: Seen) -> None:
    """The job may have run again before its hook is called."""
    app.on_retry(seen.plain)
    job = app.task(name="nothing")(nothing).using(headers={"user": "ann"}).enqueue()
    for nonce, name in (("1", "TimedOut"), ("2", "")):
        claim_jobs(app.engine, "session", nonce, Plan(), 1)
        if name:
            error = FailureText(type=name, message="too long").pack()
            app.engine.finish([Retried(id=job.id, token=nonce, delay_ms=0, error=error)])
    thread = HookThread(app)
    thread.report_forced_end(EndedByForce(job.id, 1_500))
    thread.report_forced_end(EndedByForce("unknown", 1_500))
    thread.close(20)
    event = seen.one()
    assert (event.kind, event.job_id, event.attempt) == ("retry", job.id, 1)
    assert (event.retry_in, event.reason, event.error) == (timedelta(seconds=1.5), None, None)
    assert event.failure is not None
    assert (event.failure.type, event.headers) == ("TimedOut", {"user": "ann"})


def test_a_cancelled_job_that_is_ended_by_force_calls_none(app: Windlass, seen: Seen) -> None:
    for add in (app.on_retry, app.on_dead):
        add(seen.plain)
    job = app.task(name="nothing")(nothing).enqueue()
    claim_jobs(app.engine, "session", "nonce", Plan(), 1)
    job.cancel()
    app.engine.finish([Retried(id=job.id, token="nonce", delay_ms=0, error=b"")])
    thread = HookThread(app)
    thread.report_forced_end(EndedByForce(job.id, 0))
    thread.close(20)
    assert seen.events == []


@pytest.mark.local
def test_a_worker_that_is_stopped_gives_hooks_the_grace(make_yard: MakeYard) -> None:
    def stop_after(hook_s: str, grace: str) -> tuple[float, int]:
        yard = make_yard(grace=grace)
        worker = yard.start(
            app="tests.worker.apps.hooked:app", environment={HOOK_S: hook_s}, slots=1
        )
        job: Any = yard.plain("one")
        yard.await_state(job, State.SUCCEEDED)
        began = monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        return monotonic() - began, len(yard.events("success", "one"))

    assert stop_after("0.5", "10s")[1] == 1
    took, _ = stop_after("60", "500ms")
    assert took < 10


@pytest.mark.local
@pytest.mark.parametrize("late_s", [0.0, 0.3])
def test_a_hook_that_hangs_does_not_keep_the_lifespan_from_ending(
    make_yard: MakeYard, late_s: float
) -> None:
    """The grace ends while the child waits for the hook: sooner or later after the last job."""
    yard = make_yard(grace="500ms")
    worker = yard.start(
        app="tests.worker.apps.hooked:app", environment={HOOK_S: "60"}, slots=2, processes=1
    )
    hooked: Any = yard.plain("hooked")
    yard.await_state(hooked, State.SUCCEEDED)
    yard.plain("last", f"sleep:{late_s}")
    yard.await_start("last")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert len(yard.events("left", "lifespan")) == 1


@pytest.mark.local
def test_the_end_of_the_grace_does_not_cut_off_the_exit_of_the_lifespan(
    make_yard: MakeYard,
) -> None:
    """All jobs have ended, and the exit takes longer than the grace."""
    yard = make_yard(grace="300ms")
    worker = yard.start(
        app="tests.worker.apps.hooked:app", environment={EXIT_S: "1"}, slots=2, processes=1
    )
    job: Any = yard.plain("one")
    yard.await_state(job, State.SUCCEEDED)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert len(yard.events("left", "lifespan")) == 1

"""The tree of a trace: a request, its enqueue, the attempts, and what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tests.telemetry.otel.collector import (
    Collector,
    attributes,
    idle,
    linked_ids,
    parent_id,
    span_id,
    trace_id,
)
from windlass import Context, EngineUnavailable, Job, Snooze, Task, Windlass
from windlass.telemetry.otel import instrument
from windlass.testing import Sandbox


@pytest.fixture(params=["plain", "coroutine"])
def flaky(request: pytest.FixtureRequest, app: Windlass) -> Task[[int], int]:
    """A task that succeeds in its last attempt only, as a plain function or as a coroutine."""
    failures: list[None] = []

    def work(number: int) -> int:
        failures.append(None)
        if len(failures) < 3:
            raise ValueError(f"failure {len(failures)}")
        return number

    async def coroutine(number: int) -> int:
        await asyncio.sleep(0)
        return work(number)

    if request.param == "plain":
        return app.task(name="shop.flaky")(work)
    return app.task(name="shop.flaky")(coroutine)


def run_all(box: Sandbox) -> None:
    for _ in range(3):
        box.drain(raise_errors=False)
        box.advance("1m")


def test_request_enqueue_and_attempts_are_one_tree(
    collector: Collector, box: Sandbox, flaky: Task[[int], int]
) -> None:
    with collector.tracer.start_as_current_span("POST /orders", kind=SpanKind.SERVER):
        job = flaky.using(queue="mail").enqueue(7)
    run_all(box)
    assert job.result() == 7
    request, enqueue = collector.only("POST /orders"), collector.only("enqueue mail")
    first, second, third = runs = collector.named("run shop.flaky")
    assert {trace_id(span) for span in collector.spans} == {trace_id(request)}
    assert parent_id(enqueue) == span_id(request)
    assert [parent_id(run) for run in runs] == [span_id(enqueue)] * 3
    assert [linked_ids(run) for run in runs] == [[], [span_id(first)], [span_id(second)]]
    assert [attributes(run)["windlass.attempt"] for run in runs] == [1, 2, 3]
    assert (enqueue.kind, third.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert len(collector.spans) == 5


def test_a_failed_attempt_has_its_error(
    collector: Collector, box: Sandbox, flaky: Task[[int], int]
) -> None:
    job = flaky.enqueue(7)
    box.drain(raise_errors=False)
    run = collector.only("run shop.flaky")
    assert run.status.status_code is StatusCode.ERROR
    assert run.status.description == "ValueError: failure 1"
    assert attributes(run)["error.type"] == "ValueError"
    (event,) = run.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.message"] == "failure 1"
    error = job.info().error
    assert error is not None
    note = f"Trace {trace_id(run):032x}, span {span_id(run):016x}.\n"
    assert error.traceback.endswith(f"ValueError: failure 1\n{note}")
    assert error.message == "failure 1"  # the note is no part of the fingerprint


def test_the_attributes_follow_the_messaging_conventions(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    job = app.task(name="shop.send")(idle).using(queue="mail").enqueue()
    box.drain()
    common = {
        "messaging.system": "windlass",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "windlass.task": "shop.send",
    }
    assert attributes(collector.only("enqueue mail")) == {
        **common,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
    }
    assert attributes(collector.only("run shop.send")) == {
        **common,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "windlass.attempt": 1,
    }


def test_coroutines_that_enqueue_at_once_keep_their_own_spans(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    work = app.task(name="shop.work")(idle)

    async def request(number: int) -> Job[None]:
        with collector.tracer.start_as_current_span(f"request {number}"):
            job = await work.aenqueue()
            assert trace.get_current_span().get_span_context().is_valid
            return job

    async def requests() -> list[Job[None]]:
        return await asyncio.gather(*map(request, range(5)))

    jobs = asyncio.run(requests())
    enqueues = collector.named("enqueue default")
    for number, job in enumerate(jobs):
        (enqueue,) = (one for one in enqueues if attributes(one)["messaging.message.id"] == job.id)
        assert parent_id(enqueue) == span_id(collector.only(f"request {number}"))


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
def test_what_a_task_does_belongs_to_its_run(
    collector: Collector, app: Windlass, box: Sandbox, is_async: bool
) -> None:
    """Spans of the task, and jobs that it enqueues."""
    child = app.task(name="shop.child")(idle)

    def parent() -> None:
        with collector.tracer.start_as_current_span("query"):
            pass
        child.enqueue()

    async def coroutine() -> None:
        with collector.tracer.start_as_current_span("query"):
            await asyncio.sleep(0)
        await child.aenqueue()

    body: Callable[[], Any] = coroutine if is_async else parent
    app.task(name="shop.parent")(body).enqueue()
    box.drain()
    run = collector.only("run shop.parent")
    assert parent_id(collector.only("query")) == span_id(run)
    first, second = collector.named("enqueue default")
    assert parent_id(first) is None
    assert parent_id(second) == span_id(run)
    assert parent_id(collector.only("run shop.child")) == span_id(second)
    assert trace_id(collector.only("run shop.child")) == trace_id(first)


def test_no_run_sees_the_span_of_another(app: Windlass, box: Sandbox) -> None:
    seen: list[bool] = []
    plain = Windlass("sqlite:///:memory:")

    @plain.task(name="plain")
    def work() -> None:
        seen.append(trace.get_current_span().get_span_context().is_valid)

    app.task(name="traced")(idle).enqueue()
    box.drain()
    with Sandbox(plain) as other:
        work.enqueue()
        other.drain()
    assert seen == [False]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_snooze_is_no_error(collector: Collector, app: Windlass, box: Sandbox) -> None:
    @app.task(name="shop.later")
    def later() -> None:
        raise Snooze("1h")

    later.enqueue()
    box.drain()
    run = collector.only("run shop.later")
    assert run.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes(run)
    assert run.events == ()


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
def test_a_run_that_timed_out_says_so(
    collector: Collector, app: Windlass, box: Sandbox, is_async: bool
) -> None:
    def endless() -> None:
        while True:
            pass

    async def coroutine() -> None:
        await asyncio.Event().wait()

    body: Callable[[], Any] = coroutine if is_async else endless
    job = app.task(name="shop.endless", timeout="50ms")(body).enqueue()
    box.drain(raise_errors=False)
    run = collector.only("run shop.endless")
    assert attributes(run)["error.type"] == "windlass.errors.TimedOut"
    error = job.info().error
    assert error is not None
    assert f"span {span_id(run):016x}." in error.traceback


def test_an_error_that_is_raised_again_names_its_last_span_only(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    error = ValueError("always the same object")

    @app.task(name="shop.fail")
    def fail() -> None:
        raise error

    fail.enqueue()
    run_all(box)
    last = collector.named("run shop.fail")[-1]
    assert [note for note in error.__notes__ if note.startswith("Trace ")] == [
        f"Trace {trace_id(last):032x}, span {span_id(last):016x}."
    ]


def test_an_attempt_that_ends_before_the_answer_has_its_link_too(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    """The loop of a coroutine never waits for the engine. The error of the attempt itself is stored
    by then, and is not taken for that of the attempt before."""

    @app.task(name="shop.fail")
    async def fail() -> None:
        raise ValueError

    fail.enqueue()
    box.drain(raise_errors=False)
    box.advance("1m")
    box.faults.delay("1s", "get")
    box.drain(raise_errors=False)
    first, second = collector.named("run shop.fail")
    assert linked_ids(second) == [span_id(first)]
    assert second.start_time is not None
    assert second.end_time is not None
    took_s = (second.end_time - second.start_time) / 1e9
    assert took_s < 0.9  # the time of the run, not of the answer


def test_middleware_outside_of_tracing_does_not_see_the_span(collector: Collector) -> None:
    app, seen = Windlass("sqlite:///:memory:"), list[bool]()

    @app.around_run
    def outer(ctx: Context) -> Iterator[None]:
        yield
        seen.append(trace.get_current_span().get_span_context().is_valid)

    instrument(app, collector.tracers)
    work = app.task(name="shop.work")(idle)
    with Sandbox(app) as box:
        work.enqueue()
        box.drain()
    assert seen == [False]


def test_after_a_retry_by_an_operator_attempts_link_to_the_new_ones(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    @app.task(name="shop.fail")
    def fail() -> None:
        raise ValueError

    job = fail.enqueue()
    run_all(box)
    assert job.retry()
    run_all(box)
    *_, first, second, _ = runs = collector.named("run shop.fail")
    assert [attributes(run)["windlass.attempt"] for run in runs] == [1, 2, 3, 1, 2, 3]
    assert linked_ids(first) == []
    assert linked_ids(second) == [span_id(first)]


def test_an_enqueue_that_fails_has_its_error(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    work = app.task(name="shop.work")(idle)
    box.faults.refuse("put")
    with pytest.raises(EngineUnavailable):
        work.enqueue()
    enqueue = collector.only("enqueue default")
    assert attributes(enqueue)["error.type"] == "windlass.errors.EngineUnavailable"
    assert enqueue.status.status_code is StatusCode.ERROR
    assert "messaging.message.id" not in attributes(enqueue)


def test_a_retry_runs_although_the_attempt_before_cannot_be_read(
    collector: Collector, box: Sandbox, flaky: Task[[int], int]
) -> None:
    job = flaky.enqueue(7)
    box.drain(raise_errors=False)
    box.advance("1m")
    box.faults.refuse("get", times=2)
    box.drain(raise_errors=False)
    box.faults.clear()
    box.advance("1m")
    box.drain()
    assert job.result() == 7
    first, second, third = collector.named("run shop.flaky")
    assert (linked_ids(first), linked_ids(second)) == ([], [])
    assert linked_ids(third) == [span_id(second)]

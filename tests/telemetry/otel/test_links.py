"""Runs that begin new traces: of some tasks, of a bulk, of a schedule, and after a long delay."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.telemetry.otel.collector import (
    Collector,
    attributes,
    idle,
    linked_ids,
    parent_id,
    span_id,
    trace_id,
)
from windlass import Every, Task, Windlass
from windlass.telemetry.otel.trace_context import MODE_HEADER
from windlass.testing import Sandbox


@pytest.fixture
def work(app: Windlass) -> Task[..., None]:
    return app.task(name="shop.work")(idle)


def assert_linked(collector: Collector, run: str, enqueue: str) -> None:
    """All runs have their own traces, with a link to the enqueue."""
    runs, origin = collector.named(run), collector.only(enqueue)
    assert runs
    assert len({trace_id(span) for span in (origin, *runs)}) == 1 + len(runs)
    for span in runs:
        assert parent_id(span) is None
        assert linked_ids(span) == [span_id(origin)]


def test_a_task_may_have_links_alone(collector: Collector, app: Windlass, box: Sandbox) -> None:
    job = app.task(name="shop.alone")(idle).enqueue()
    box.drain()
    assert MODE_HEADER not in job.info().headers  # the worker decides, also for stored jobs
    assert_linked(collector, "run shop.alone", "enqueue default")


def test_a_retry_links_to_the_enqueue_and_to_the_attempt_before(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    @app.task(name="shop.fail.alone")
    def fail() -> None:
        raise ValueError

    fail.enqueue()
    for _ in range(2):
        box.drain(raise_errors=False)
        box.advance("1m")
    origin = collector.only("enqueue default")
    first, second = collector.named("run shop.fail.alone")
    assert linked_ids(second) == [span_id(origin), span_id(first)]
    assert trace_id(first) != trace_id(second)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
def test_a_bulk_has_one_span_and_links(
    collector: Collector, work: Task[..., None], box: Sandbox, is_async: bool
) -> None:
    calls = [work.bind() for _ in range(3)]
    with collector.tracer.start_as_current_span("request"):
        if is_async:
            asyncio.run(work.aenqueue_many(calls))
        else:
            work.enqueue_many(calls)
    box.drain()
    bulk = collector.only("enqueue default")
    assert attributes(bulk) == {
        "messaging.system": "windlass",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.batch.message_count": 3,
    }
    assert parent_id(bulk) == span_id(collector.only("request"))
    assert len(collector.named("run shop.work")) == 3
    assert_linked(collector, "run shop.work", "enqueue default")


def test_a_bulk_of_several_chunks_has_one_span(
    collector: Collector, work: Task[..., None], box: Sandbox
) -> None:
    work.enqueue_many([()] * 501)
    assert attributes(collector.only("enqueue default"))["messaging.batch.message_count"] == 501


def test_a_bulk_for_several_queues_names_none(
    collector: Collector, app: Windlass, work: Task[..., None], box: Sandbox
) -> None:
    app.enqueue_many([work.bind(), work.using(queue="mail").bind()])
    assert "messaging.destination.name" not in attributes(collector.only("enqueue"))


def test_a_bulk_that_fails_counts_what_was_stored(
    collector: Collector, work: Task[..., None], box: Sandbox
) -> None:
    def calls() -> Any:
        yield from [()] * 500
        raise LookupError("the source of the calls has ended")

    with pytest.raises(LookupError):
        work.enqueue_many(calls())
    bulk = collector.only("enqueue default")
    assert attributes(bulk)["messaging.batch.message_count"] == 500
    assert attributes(bulk)["error.type"] == "LookupError"


@pytest.mark.parametrize(
    ("run_after", "is_late"),
    [
        ("60m", False),
        (timedelta(minutes=61), True),
        (datetime.now(UTC) + timedelta(minutes=30), False),
        (datetime.now(UTC) + timedelta(days=1), True),
    ],
)
def test_a_long_delay_begins_a_new_trace(
    collector: Collector, work: Task[..., None], run_after: Any, is_late: bool
) -> None:
    with Sandbox(work.app, now=datetime.now(UTC)) as box:
        work.using(run_after=run_after).enqueue()
        box.advance("2d")
        box.drain()
    run, enqueue = collector.only("run shop.work"), collector.only("enqueue default")
    if is_late:
        assert_linked(collector, "run shop.work", "enqueue default")
    else:
        assert parent_id(run) == span_id(enqueue)


def test_a_job_of_a_schedule_begins_a_trace(collector: Collector, app: Windlass) -> None:
    app.task(name="shop.tick", schedule=Every("1h"))(idle)
    with Sandbox(app, schedules=True) as box:
        box.advance("1h")
        box.drain()
    (run,) = collector.spans  # the worker enqueues it, and imports no code of the app for that
    assert (run.name, parent_id(run), linked_ids(run)) == ("run shop.tick", None, [])

"""The trace context in the headers of jobs, next to those of the caller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context, propagate
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from tests.telemetry.otel.collector import (
    Collector,
    attributes,
    idle,
    parent_id,
    span_id,
    trace_id,
)
from windlass import EnqueueCall, Task, Windlass
from windlass.core.headers import MAX_HEADER_BYTES, MAX_HEADERS
from windlass.telemetry.otel import instrument
from windlass.testing import Sandbox

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0xB7AD6B7169203331


@pytest.fixture
def work(app: Windlass) -> Task[..., None]:
    return app.task(name="shop.work")(idle)


def test_headers_carry_the_span_of_the_enqueue(
    collector: Collector, work: Task[..., None], box: Sandbox
) -> None:
    job = work.using(headers={"user": "ann"}).enqueue()
    enqueue = collector.only("enqueue default")
    parent = job.info().headers["traceparent"]
    assert parent.startswith(f"00-{trace_id(enqueue):032x}-{span_id(enqueue):016x}-")
    assert job.info().headers == {"user": "ann", "traceparent": parent}


def test_state_and_baggage_travel_too(
    collector: Collector, work: Task[..., None], box: Sandbox
) -> None:
    remote = {"traceparent": PARENT, "tracestate": "vendor=1"}
    token = context.attach(baggage.set_baggage("tenant", "a1", propagate.extract(remote)))
    try:
        headers = work.enqueue().info().headers
    finally:
        context.detach(token)
    assert (headers["tracestate"], headers["baggage"]) == ("vendor=1", "tenant=a1")


def test_a_header_of_the_caller_stays(
    collector: Collector, work: Task[..., None], box: Sandbox
) -> None:
    """Its trace is continued, by the enqueue and by the runs."""
    job = work.using(headers={"traceparent": PARENT}).enqueue()
    box.drain()
    assert job.info().headers == {"traceparent": PARENT}
    for span in collector.spans:
        assert (trace_id(span), parent_id(span)) == (TRACE, SPAN)


def test_a_header_of_other_middleware_stays(
    app: Windlass, work: Task[..., None], box: Sandbox
) -> None:
    @app.around_enqueue
    def own(call: EnqueueCall) -> Iterator[None]:
        call.headers["traceparent"] = PARENT
        yield

    assert work.enqueue().info().headers == {"traceparent": PARENT}


@pytest.mark.parametrize(
    "headers",
    [{f"h{n}": "" for n in range(MAX_HEADERS)}, {"h": "x" * (MAX_HEADER_BYTES - 1)}],
    ids=["number", "size"],
)
def test_headers_without_room_stay_as_they_are(
    collector: Collector, work: Task[..., None], box: Sandbox, headers: dict[str, str]
) -> None:
    job = work.using(headers=headers).enqueue()
    box.drain()
    assert job.info().headers == headers
    assert parent_id(collector.only("run shop.work")) is None


def test_without_a_tracer_only_the_trace_of_the_caller_travels() -> None:
    app = Windlass("sqlite:///:memory:")
    instrument(app)  # the program has set no provider
    work = app.task(name="shop.work")(idle)
    span = SpanContext(TRACE, SPAN, is_remote=True, trace_flags=TraceFlags(1))
    with Sandbox(app) as box:
        assert work.enqueue().info().headers == {}
        token = context.attach(set_span_in_context(NonRecordingSpan(span)))
        try:
            job = work.enqueue()
        finally:
            context.detach(token)
        assert job.info().headers == {"traceparent": PARENT}
        assert len(box.drain()) == 2


def test_a_span_that_is_not_sampled_is_handed_on_as_such(
    collector: Collector, work: Task[..., None], box: Sandbox
) -> None:
    job = work.using(headers={"traceparent": PARENT.removesuffix("01") + "00"}).enqueue()
    box.drain()
    assert collector.spans == []
    assert job.info().headers["traceparent"].endswith("-00")


def test_middleware_sees_the_delay_of_a_call(
    app: Windlass, work: Task[..., None], box: Sandbox
) -> None:
    seen: list[str] = []

    @app.around_enqueue
    def note(call: EnqueueCall) -> Iterator[None]:
        seen.append(str(call.run_after))
        yield

    work.enqueue()
    work.using(run_after="90s").enqueue()
    assert seen == ["None", "0:01:30"]


def test_an_attribute_is_a_name_of_the_task_as_it_is_stored(
    collector: Collector, app: Windlass, box: Sandbox
) -> None:
    app.task(name="shop.new", aliases=["shop.old"])(idle)
    app.task_named("shop.old").enqueue()
    box.drain()
    assert attributes(collector.only("run shop.new"))["windlass.task"] == "shop.new"

"""Broken parts of OpenTelemetry fail neither a job nor an enqueue."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler

from tests.telemetry.otel.collector import Collector
from windlass import Retry, Windlass
from windlass.telemetry.otel import instrument, safety
from windlass.testing import Sandbox


@pytest.fixture(autouse=True)
def _log_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which steps have failed in earlier tests."""
    monkeypatch.setattr(safety, "_logged", set())


class BrokenPropagator(TextMapPropagator):
    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        raise RuntimeError("broken propagator")

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Context:
        raise RuntimeError("broken propagator")

    @property
    def fields(self) -> set[str]:
        return set()


class OddPropagator(BrokenPropagator):
    """Writes a header that no job can have."""

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        carrier["not a name"] = "x"


class BrokenProcessor(SpanProcessor):
    """An exporter that fails without catching its errors."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        raise RuntimeError("broken exporter")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("broken exporter")


class BrokenSampler(Sampler):
    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken sampler")

    def get_description(self) -> str:
        return "broken"


def work_through(app: Windlass) -> None:
    """Enqueue jobs in each way, let one fail, and see that all has gone well."""
    failures: list[None] = []

    @app.task(name="shop.flaky")
    def flaky() -> int:
        failures.append(None)
        if len(failures) == 1:
            raise ValueError
        return 7

    @app.task(name="shop.coroutine")
    async def coroutine() -> int:
        return 8

    with Sandbox(app) as box:
        first, second = flaky.enqueue(), coroutine.enqueue()
        box.drain(raise_errors=False)
        box.advance("1m")
        others = coroutine.enqueue_many([(), ()])
        box.drain()
        assert [job.result() for job in (first, second, *others)] == [7, 8, 8, 8]


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///:memory:", retry=Retry(3, base=1, jitter=0))


@pytest.fixture
def _own_propagator() -> Iterator[None]:
    before = propagate.get_global_textmap()
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures("_own_propagator")
@pytest.mark.parametrize("propagator", [BrokenPropagator(), OddPropagator()])
def test_a_broken_propagator_costs_the_tree_only(
    app: Windlass,
    collector: Collector,
    propagator: TextMapPropagator,
    caplog: pytest.LogCaptureFixture,
) -> None:
    propagate.set_global_textmap(propagator)
    instrument(app, collector.tracers)
    work_through(app)
    assert len(collector.spans) == 3 + 5
    failed = [one for one in caplog.records if one.name == "windlass.telemetry"]
    steps = [one.getMessage().partition(", continuing")[0] for one in failed]
    assert sorted(steps) == [
        "tracing failed to read the trace context of a job",
        "tracing failed to write the trace context of a job",
    ]
    assert all(one.exc_info is not None for one in failed)


def test_a_broken_exporter_costs_spans_only(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BrokenProcessor())
    instrument(app, tracers)
    with caplog.at_level(logging.WARNING):
        work_through(app)
    assert "broken exporter" in caplog.text


def test_a_broken_sampler_costs_spans_only(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    instrument(app, TracerProvider(BrokenSampler(), shutdown_on_exit=False))
    work_through(app)
    assert "tracing failed to start a span" in caplog.text


def test_a_broken_histogram_costs_durations_only(
    app: Windlass, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    instrument(app, collector.tracers, collector.meters)

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken histogram")

    monkeypatch.setattr("opentelemetry.sdk.metrics.Histogram.record", broken)
    work_through(app)
    assert len(collector.spans) == 3 + 5


class SlowProcessor(SpanProcessor):
    """Takes longer than the time-out of a job, when the span of this name starts or ends."""

    def __init__(self, name: str, *, at_start: bool) -> None:
        self._name = name
        self._at_start = at_start
        self.exported: list[ReadableSpan] = []
        self.is_slow = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._at_start:
            self._take_long(span)

    def on_end(self, span: ReadableSpan) -> None:
        if not self._at_start:
            self._take_long(span)
        self.exported.append(span)

    def _take_long(self, span: ReadableSpan) -> None:
        if span.name == self._name and self.is_slow:
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass


@pytest.mark.parametrize("at_start", [True, False], ids=["start", "end"])
@pytest.mark.parametrize("name", ["run shop.short", "enqueue other"])
def test_a_time_out_does_not_cut_off_the_tracer(
    app: Windlass, collector: Collector, name: str, at_start: bool
) -> None:
    """A tracer that is cut off could leave a lock held, and stop all other jobs. Each span ends."""
    processor = SlowProcessor(name, at_start=at_start)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(processor)
    instrument(app, tracers, collector.meters)

    @app.task(name="shop.short", timeout="100ms")
    def short() -> None:
        other.enqueue()

    @app.task(name="shop.other", queue="other")
    def other() -> None: ...

    with Sandbox(app) as box:
        job = short.enqueue()
        processor.is_slow = True
        box.drain(raise_errors=False)
        error = job.info().error
    assert error is not None
    assert error.type == "windlass.errors.TimedOut"  # tracing is a part of the run
    ended = [span.name for span in processor.exported]
    assert name in ended
    assert ended.count("run shop.short") == 1
    runs = sum(collector.durations("messaging.process.duration").values())
    assert runs == sum(one.startswith("run ") for one in ended)  # each is measured once
    assert not trace.get_current_span().get_span_context().is_valid

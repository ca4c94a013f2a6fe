"""Collect spans and durations in memory, by the SDK of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext


class Collector:
    """Providers for an app, and what they collected."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in this order."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def durations(self, name: str) -> dict[tuple[tuple[str, Any], ...], int]:
        """How many durations a histogram has, by sorted attributes."""
        data = self._reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return {
            tuple(sorted((point.attributes or {}).items())): point.count
            for metric in metrics
            for point in metric.data.data_points
            if isinstance(point, HistogramDataPoint)
        }


def idle() -> None:
    """A task without effect."""


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    return _context(span).span_id


def trace_id(span: ReadableSpan) -> int:
    return _context(span).trace_id


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def linked_ids(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context

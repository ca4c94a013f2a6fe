"""Spans around enqueues.

1. `EnqueueSpan` is the middleware around a single call: a span, whose context is stored with the
   job.
2. `BulkSpan` is one span around many calls. Its jobs store the context of that one span, marked so
   that each run begins a new trace: a bulk may have thousands of jobs.
3. `RequestScope` continues the trace of an HTTP request for one job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer

from windlass.middleware import EnqueueCall
from windlass.telemetry.otel.attributes import (
    BATCH_COUNT,
    JOB_ID,
    OF_ENQUEUES,
    QUEUE,
    TASK,
    set_error,
    type_of,
)
from windlass.telemetry.otel.durations import Durations
from windlass.telemetry.otel.safety import ending, starting
from windlass.telemetry.otel.scope import Scope
from windlass.telemetry.otel.trace_context import extract, inject, is_late, span_of, with_span

#: The key of the `BulkSpan` or `RequestScope` in a context.
SCOPE: Final = contexts.create_key("windlass-enqueue-scope")


class _EnqueueScope(Scope):
    """A scope with a span of an enqueue."""

    __slots__ = ("_durations", "_since", "_span", "_tracer")

    def __init__(self, tracer: Tracer, durations: Durations) -> None:
        super().__init__()
        self._tracer = tracer
        self._durations = durations
        self._span: Span | None = None
        self._since = perf_counter()

    def _start(self, name: str, parent: Context, attributes: Mapping[str, Any]) -> Context:
        """Start the span. Returns its context; that of its parent if the span failed to start."""
        with starting:
            span = self._tracer.start_span(name, parent, SpanKind.PRODUCER, attributes)
            self._span = span
            return with_span(parent, span)
        return parent

    def _stop(
        self, error: BaseException | None, facts: Mapping[str, Any], queue: str | None
    ) -> None:
        error_type = type_of(error)
        if self._span is not None:
            with ending:
                self._span.set_attributes(facts)
                if error is not None and error_type is not None:
                    set_error(self._span, error, error_type)
            with ending:
                self._span.end()
        attributes = OF_ENQUEUES if queue is None else {**OF_ENQUEUES, QUEUE: queue}
        self._durations.record_enqueue(perf_counter() - self._since, attributes, error_type)


class EnqueueSpan(_EnqueueScope):
    """The middleware around one call. In a bulk, the call only joins the span of the bulk."""

    __slots__ = ("_bulk", "_call")

    def __init__(self, tracer: Tracer, durations: Durations, call: EnqueueCall) -> None:
        super().__init__(tracer, durations)
        self._call = call
        self._bulk = False

    def _begin(self) -> None:
        call, parent = self._call, contexts.get_current()
        scope = parent.get(SCOPE)
        if isinstance(scope, BulkSpan):
            self._bulk = True
            scope.join(call)
            return
        if call.headers and not span_of(parent).is_valid:
            parent = extract(call.headers)  # the caller continues a trace by a header
        facts = {**OF_ENQUEUES, QUEUE: call.queue, TASK: call.task}
        context = self._start(f"enqueue {call.queue}", parent, facts)
        call.trace_headers = inject(context, is_linked=is_late(call.run_after))
        self._attach(context)

    def _end(self, error: BaseException | None) -> None:
        if self._bulk:
            return
        job = self._call.job
        self._stop(error, {} if job is None else {JOB_ID: job.id}, self._call.queue)


class BulkSpan(_EnqueueScope):
    """One span around many calls; `count` returns how many jobs were stored."""

    __slots__ = ("_count", "_headers", "_parent", "_queues")

    def __init__(
        self,
        tracer: Tracer,
        durations: Durations,
        count: Callable[[], int],
        parent: Context | None = None,
    ) -> None:
        super().__init__(tracer, durations)
        self._count = count
        self._parent = parent
        self._queues: set[str] = set()
        self._headers: Mapping[str, str] = {}

    def join(self, call: EnqueueCall) -> None:
        """Let a call store the context of this span."""
        self._queues.add(call.queue)
        call.trace_headers = self._headers

    def _begin(self) -> None:
        parent = contexts.get_current() if self._parent is None else self._parent
        context = self._start("enqueue", parent, OF_ENQUEUES)
        self._headers = inject(context, is_linked=True)
        self._attach(contexts.set_value(SCOPE, self, context))

    def _end(self, error: BaseException | None) -> None:
        """Name the span by its queue, if all calls have the same one: only now all are known."""
        queue = next(iter(self._queues)) if len(self._queues) == 1 else None
        facts: dict[str, Any] = {BATCH_COUNT: self._count()}
        if queue is not None and self._span is not None:
            facts[QUEUE] = queue
            with ending:
                self._span.update_name(f"enqueue {queue}")
        self._stop(error, facts, queue)


class RequestScope(Scope):
    """The trace of an HTTP request, around the enqueue of its one job, which has its own span."""

    __slots__ = ("_parent",)

    def __init__(self, parent: Context) -> None:
        super().__init__()
        self._parent = parent

    def _begin(self) -> None:
        self._attach(contexts.set_value(SCOPE, self, self._parent))


def request_parent(headers: Mapping[str, str]) -> Context:
    """The context of an HTTP request: the current span if the server has one, else that of the
    caller by its headers."""
    current = contexts.get_current()
    return current if span_of(current).is_valid else extract(headers)

"""The span around a run of a job.

1. The parent is the span of the enqueue, from the headers of the job. In the mode `links` the run
   begins a new trace instead, with a link to that span. A job of a schedule has no such span.
2. The span is current while the task runs, so that spans and log records of the task belong to it.
3. From the second attempt on, the span has a link to the attempt before, which costs one call of
   the engine (`previous_attempt`). The call must not block an event loop: there the link is added
   when the answer comes. If that is after the run, the span ends then, with the time of the run.
4. A failure gives the span its error. A snooze is no failure.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, time_ns

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, Tracer

from windlass.app import Windlass
from windlass.context import Context
from windlass.core.signals import Interrupted, Interruption, Snooze
from windlass.errors import JobCancelled, TimedOut
from windlass.telemetry.otel.attributes import (
    ATTEMPT,
    JOB_ID,
    OF_RUNS,
    QUEUE,
    TASK,
    set_error,
    type_of,
)
from windlass.telemetry.otel.durations import Durations
from windlass.telemetry.otel.previous_attempt import note_span, read_previous
from windlass.telemetry.otel.safety import ending, linking, starting
from windlass.telemetry.otel.scope import Scope
from windlass.telemetry.otel.trace_context import (
    LINKS,
    MODE_HEADER,
    extract,
    span_of,
    with_span,
)
from windlass.twins import arun, run


class RunSpan(Scope):
    """The middleware around one run."""

    __slots__ = (
        *("_app", "_ctx", "_durations", "_is_linked", "_links", "_origin", "_reading", "_since"),
        *("_span", "_tracer"),
    )

    def __init__(
        self, app: Windlass, tracer: Tracer, durations: Durations, ctx: Context, is_linked: bool
    ) -> None:
        super().__init__()
        self._app = app
        self._tracer = tracer
        self._durations = durations
        self._ctx = ctx
        self._is_linked = is_linked or ctx.headers.get(MODE_HEADER) == LINKS
        self._span: Span | None = None
        self._origin = extract(ctx.headers)
        self._links: list[Link] = []
        self._reading: asyncio.Task[SpanContext | None] | None = None
        self._since = 0.0

    def __enter__(self) -> None:
        """Read the attempt before, which may take a while, and begin the span after that."""
        if self._ctx.attempt > 1:
            self._find_previous()
        super().__enter__()

    # -------------------------------------------------------------------------------- beginning

    def _begin(self) -> None:
        self._since = perf_counter()
        ctx, enqueue, parent = self._ctx, span_of(self._origin), self._origin
        if self._is_linked and enqueue.is_valid:
            self._links.insert(0, Link(enqueue))
            parent = trace.set_span_in_context(INVALID_SPAN, parent)
        attributes: dict[str, str | int] = {
            **OF_RUNS,
            QUEUE: ctx.queue,
            JOB_ID: ctx.job_id,
            TASK: ctx.task,
            ATTEMPT: ctx.attempt,
        }
        with starting:
            span = self._span = self._tracer.start_span(
                f"run {ctx.task}", parent, SpanKind.CONSUMER, attributes, self._links
            )
            self._attach(with_span(parent, span))

    # ----------------------------------------------------------------------- the attempt before

    def _find_previous(self) -> None:
        """Find the link to the attempt before. On an event loop, begin to read it."""
        enqueue = span_of(self._origin)
        if enqueue.is_valid and not enqueue.trace_flags.sampled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            found = self._read_previous()
            self._links = [] if found is None else [Link(found)]
            return
        self._reading = asyncio.Task(self._aread_previous(), loop=loop)
        self._reading.add_done_callback(self._add_link)

    def _read_previous(self) -> SpanContext | None:
        with linking:
            return run(self._app, read_previous(self._app, self._ctx.job_id, self._ctx.attempt))
        return None

    async def _aread_previous(self) -> SpanContext | None:
        with linking:
            steps = read_previous(self._app, self._ctx.job_id, self._ctx.attempt)
            return await arun(self._app, steps)
        return None

    def _add_link(self, reading: asyncio.Task[SpanContext | None]) -> None:
        """Add the link. If the loop ends before the answer, read again, without the loop."""
        found = self._read_previous() if reading.cancelled() else reading.result()
        with linking:
            if found is not None and self._span is not None:
                self._span.add_link(found)
        self._reading = None

    # ----------------------------------------------------------------------------------- ending

    def _end(self, error: BaseException | None) -> None:
        seconds, ctx = perf_counter() - self._since, self._ctx
        error_type = _type_of(ctx, error)
        if self._span is not None:
            if error is not None and error_type is not None:
                with ending:
                    set_error(self._span, error, error_type)
                    note_span(error, self._span.get_span_context())
            with ending:
                self._end_span(self._span)
        facts = {**OF_RUNS, QUEUE: ctx.queue, TASK: ctx.task}
        self._durations.record_run(seconds, facts, error_type)

    def _end_span(self, span: Span) -> None:
        if self._reading is None:
            span.end()
            return
        ended_at_ns = time_ns()

        def end(_: object) -> None:
            with ending:
                span.end(ended_at_ns)

        self._reading.add_done_callback(end)


def _type_of(ctx: Context, error: BaseException | None) -> str | None:
    """The type of the error of a run; None for a snooze. An interrupt is named by its cause."""
    if isinstance(error, Snooze):
        return None
    if isinstance(error, Interrupted | asyncio.CancelledError):
        if ctx.interruption is Interruption.TIMED_OUT:
            return f"{TimedOut.__module__}.{TimedOut.__qualname__}"
        if ctx.interruption is Interruption.CANCELLED:
            return f"{JobCancelled.__module__}.{JobCancelled.__qualname__}"
    return type_of(error)

"""The trace context in the headers of a job.

1. `inject` makes the headers that carry a context, by the propagator of the program: `traceparent`
   and `tracestate` unless it sets another one. `extract` reads them.
2. A header of windlass marks a job whose runs begin new traces: jobs of a bulk, and jobs with a
   long delay. `is_late` says which delay is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext

from windlass.core.headers import read_headers
from windlass.telemetry.otel.safety import extracting, injecting

#: The header of a job whose runs begin new traces, and its value.
MODE_HEADER: Final = "windlass-trace"
LINKS: Final = "links"
#: The runs of jobs with a longer delay begin new traces: a trace of hours is kept by few systems.
LONGEST_DELAY: Final = timedelta(hours=1)


def inject(context: Context, *, is_linked: bool = False) -> dict[str, str]:
    """The headers that carry the current span of a context. Empty if there is none."""
    headers: dict[str, str] = {}
    with injecting:
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context)
        headers = read_headers(carrier)
        if headers and is_linked:
            headers[MODE_HEADER] = LINKS
    return headers


def extract(headers: Mapping[str, str]) -> Context:
    """The context that the headers of a job carry. Empty if there is none."""
    with extracting:
        return propagate.extract(headers, Context())
    return Context()


def with_span(context: Context, span: Span) -> Context:
    """The context with this span as the current one. A tracer without an SDK may make spans without
    an id: then the span of the context stays, so that its trace travels on."""
    is_valid = span.get_span_context().is_valid
    return trace.set_span_in_context(span, context) if is_valid else context


def span_of(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def is_late(run_after: datetime | timedelta | None) -> bool:
    """Whether a job starts so late that its runs begin new traces."""
    if isinstance(run_after, datetime):
        run_after -= datetime.now(UTC)
    return run_after is not None and run_after > LONGEST_DELAY

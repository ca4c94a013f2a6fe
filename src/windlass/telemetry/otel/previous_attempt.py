"""The span of the attempt before: where it is kept, and how the next attempt finds it.

1. A failed attempt leaves its span in a note on its error (`note_span`). The error is stored with
   the job anyway, so this costs nothing more, and readers of a dead letter see which trace it
   belongs to.
2. `read_previous` finds that note in the history of the job, by one call of the engine: only
   attempts after the first make it. An attempt that ended without an error of its own, such as a
   crash, left no span.
"""

from __future__ import annotations

import re
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags, format_span_id, format_trace_id

from windlass.app import Windlass
from windlass.core.failures import FailureText
from windlass.engine.contract import JobRecord
from windlass.job import get
from windlass.twins import Steps, ask

_NOTE: Final = re.compile(r"^Trace ([0-9a-f]{32}), span ([0-9a-f]{16})\.$", re.MULTILINE)


def note_span(error: BaseException, span: SpanContext) -> None:
    """Add a note with the span to an error. It replaces an earlier one: the same object may be
    raised again and again."""
    if not span.is_valid:
        return
    notes: list[str] = getattr(error, "__notes__", [])
    notes[:] = [one for one in notes if not _NOTE.fullmatch(one)]
    error.add_note(f"Trace {format_trace_id(span.trace_id)}, span {format_span_id(span.span_id)}.")


def read_previous(app: Windlass, job_id: str, attempt: int) -> Steps[SpanContext | None]:
    """The span of the attempt before this one; None if it left none."""
    record = yield from ask(get, job_id)
    return None if record is None else _find(app.packing.reveal_failures(record), attempt - 1)


def _find(record: JobRecord, attempt: int) -> SpanContext | None:
    """The span of an attempt. The newest one: after a retry by an operator, attempts are counted
    from one again."""
    for failure in reversed(record.failures):
        if failure.attempt == attempt:
            return _span_in(FailureText.unpack(failure.error).traceback)
    return None


def _span_in(traceback: str) -> SpanContext | None:
    found = _NOTE.findall(traceback)
    if not found:
        return None
    trace_id, span_id = (int(text, 16) for text in found[-1])
    return SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )

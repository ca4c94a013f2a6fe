"""An instrumented app for a real worker. Its spans go to a file: a JSON object in each line.

The spans are exported in batches, and the last ones when the process ends, as users do it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from windlass import Context, Retry, Windlass
from windlass.telemetry.otel import instrument

#: The variable with the path of the file.
TARGET = "TRACED_SPANS"


class FileExporter(SpanExporter):
    """Appends spans to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{span.to_json(indent=None)}\n" for span in spans)
        return SpanExportResult.SUCCESS


app = Windlass(retry=Retry(3, base=0.05, jitter=0))
tracers = TracerProvider()
if TARGET in os.environ:
    tracers.add_span_processor(BatchSpanProcessor(FileExporter(Path(os.environ[TARGET]))))
instrument(app, tracers)
tracer = trace.get_tracer("shop", tracer_provider=tracers)


@app.task(takes_context=True)
def charge(ctx: Context, order: int) -> None:
    with tracer.start_as_current_span("bank"):
        if ctx.attempt == 1:
            raise ConnectionError("the bank is away")
    confirm.enqueue(order)


@app.task(takes_context=True)
async def confirm(ctx: Context, order: int) -> int:
    await asyncio.sleep(0)
    if ctx.attempt == 1:
        raise ConnectionError("the mail server is away")
    return order

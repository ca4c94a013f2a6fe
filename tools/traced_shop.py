"""The app of the picture of a trace: an order is charged, in the second attempt, and confirmed.

`draw_trace.py` starts a worker with this app. Each process appends its spans to the file that
`TRACED_SHOP_SPANS` names, one JSON object per line.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from windlass import Context, Retry, Windlass
from windlass.telemetry.otel import instrument

#: The variable with the path of the file.
TARGET = "TRACED_SHOP_SPANS"


class FileExporter(SpanExporter):
    """Appends spans to a file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ[TARGET]).open("a", encoding="utf-8") as file:
            file.writelines(f"{span.to_json(indent=None)}\n" for span in spans)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
app = Windlass(retry=Retry(base=0.15, jitter=0))
instrument(app, provider)
tracer = trace.get_tracer("shop", tracer_provider=provider)


@app.task(name="shop.charge", queue="payments", takes_context=True)
def charge(ctx: Context, order: int) -> None:
    with tracer.start_as_current_span("call the bank"):
        time.sleep(0.06)
        if ctx.attempt == 1:
            raise ConnectionError("the bank does not answer")
    confirm.enqueue(order)


@app.task(name="shop.confirm", queue="mail")
async def confirm(order: int) -> None:
    with tracer.start_as_current_span("send the mail"):
        await asyncio.sleep(0.05)


def place_order() -> None:
    """The request that begins the trace. A server has opened its engine before."""
    app.stats()
    with tracer.start_as_current_span("POST /orders", kind=trace.SpanKind.SERVER):
        charge.enqueue(7)
        time.sleep(0.02)


if __name__ == "__main__":
    place_order()

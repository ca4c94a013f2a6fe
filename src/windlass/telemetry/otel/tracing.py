"""The tracing of one app: what `instrument` registers.

1. `around_enqueue` and `around_run` are middleware.
2. `bulk` and `request` surround the enqueues of many calls, and of an HTTP request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry import context as contexts
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider, get_tracer

from windlass.app import Windlass
from windlass.context import Context
from windlass.core import installed_version
from windlass.job import Job
from windlass.middleware import EnqueueCall
from windlass.settings import matches
from windlass.telemetry.otel.durations import Durations
from windlass.telemetry.otel.enqueue_spans import (
    SCOPE,
    BulkSpan,
    EnqueueSpan,
    RequestScope,
    request_parent,
)
from windlass.telemetry.otel.run_spans import RunSpan


class AppTracing:
    """Spans and durations of one app. `links` are patterns of the names of tasks."""

    def __init__(
        self,
        app: Windlass,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        links: Sequence[str],
    ) -> None:
        self._app = app
        self._links = links
        self._is_linked: dict[str, bool] = {}
        self._tracer = get_tracer("windlass", installed_version(), tracer_provider)
        self._durations = Durations(meter_provider)

    def register(self) -> None:
        app = self._app
        app.around_enqueue(self.around_enqueue)
        app.around_run(self.around_run)
        app.tracing = self

    def around_enqueue(self, call: EnqueueCall) -> AbstractContextManager[None]:
        return EnqueueSpan(self._tracer, self._durations, call)

    def around_run(self, ctx: Context) -> AbstractContextManager[None]:
        is_linked = self._is_linked.get(ctx.task)
        if is_linked is None:
            is_linked = any(matches(pattern, ctx.task) for pattern in self._links)
            self._is_linked[ctx.task] = is_linked
        return RunSpan(self._app, self._tracer, self._durations, ctx, is_linked)

    def bulk(self, jobs: Sequence[Job[Any]]) -> AbstractContextManager[object]:
        if contexts.get_value(SCOPE) is not None:  # an HTTP request has its own scope
            return nullcontext()
        return BulkSpan(self._tracer, self._durations, jobs.__len__)

    def request(self, headers: Mapping[str, str], count: int) -> AbstractContextManager[object]:
        parent = request_parent(headers)
        if count == 1:
            return RequestScope(parent)
        return BulkSpan(self._tracer, self._durations, lambda: count, parent)

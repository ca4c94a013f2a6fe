"""Metrics for Prometheus."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from windlass.errors import SettingError
from windlass.http.access import PUBLIC
from windlass.http.metrics_feed import MetricsFeed
from windlass.http.problems import Problem, ProblemType
from windlass.http.routes import VIEWERS, ApiRequest, route


@route(
    "GET",
    "/metrics",
    roles=VIEWERS,
    problems=[ProblemType.NOT_FOUND],
    media_types=("text/plain", "application/openmetrics-text"),
    answers_outage=True,
)
async def read_metrics(call: ApiRequest) -> Response:
    """Read metrics in the text format of Prometheus.

    Queues, schedules and the fleet; the engine is asked at most once a second. A caller for some
    queues gets their series alone. While the engine does not answer, the only series is
    `windlass_up 0`, for every caller. Needs the extra `prometheus`."""
    try:
        from windlass.telemetry.exposition import render
    except SettingError as error:
        raise Problem(ProblemType.NOT_FOUND, str(error)) from error

    feed, principal = call.gateway.part(MetricsFeed), call.principal
    # The engine did not say who calls: it is away.
    now = None if principal is PUBLIC else await feed.read()
    families = list(
        feed.metrics.collect(now, may_use=principal.may_use, sees_all=principal.sees_all)
    )
    # In a thread that no call of the engine occupies: thousands of series take some milliseconds.
    accept = call.headers.get("accept", "")
    media_type, text = await asyncio.to_thread(render, families, accept)
    return Response(text, media_type=media_type)

"""The server itself: probes, its own cost, and the OpenAPI document."""

from __future__ import annotations

import time

import msgspec
from starlette.responses import Response

from windlass.core import installed_version
from windlass.http.problems import Problem, ProblemType
from windlass.http.resources.events import MAX_STREAMS, StatsFeed
from windlass.http.routes import EVERYONE, VIEWERS, ApiRequest, route


class Health(msgspec.Struct, frozen=True):
    """The answer of a probe."""

    status: str


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The instance that answers, and what it costs."""

    version: str  # of windlass
    uptime_s: float
    cpu_s: float  # processor time of its process since the start
    streams: int  # open event streams
    max_streams: int
    snapshot_s: float | None  # how long the latest snapshot for the streams took
    requests: int  # that read, in the last minute; at most 2,000 are counted
    request_p50_s: float | None  # half of them took at most this long; null without any
    request_p95_s: float | None


@route("GET", "/healthz", roles=EVERYONE)
async def check_health(_call: ApiRequest) -> Health:
    """Check that the server answers.

    Says nothing about the engine: an orchestrator must not restart a server because its engine is
    away."""
    return Health("ok")


@route("GET", "/readyz", roles=EVERYONE, problems=[ProblemType.DRAINING])
async def check_readiness(call: ApiRequest) -> Health:
    """Check that the server can serve requests now.

    The engine answers, and the server is not shutting down."""
    if call.gateway.is_draining:
        raise Problem(ProblemType.DRAINING, "This instance is shutting down.")
    await call.gateway.readiness.check(call.gateway)
    return Health("ok")


@route("GET", "/v1/server", roles=VIEWERS)
async def read_server(call: ApiRequest) -> ServerAnswer:
    """Read what the instance that answers costs.

    Event streams share one snapshot a second. The engine is not asked. Other instances have their
    own numbers."""
    feed, requests = call.gateway.part(StatsFeed), call.gateway.cost.summary()
    return ServerAnswer(
        version=installed_version(),
        uptime_s=round(call.gateway.cost.uptime_s, 3),
        cpu_s=round(time.process_time(), 3),
        streams=feed.viewers,
        max_streams=MAX_STREAMS,
        snapshot_s=feed.took_s if feed.viewers else None,
        requests=requests.number,
        request_p50_s=requests.p50_s,
        request_p95_s=requests.p95_s,
    )


@route("GET", "/openapi.json", roles=EVERYONE)
async def read_document(call: ApiRequest) -> Response:
    """Read the OpenAPI document of this API."""
    return Response(call.gateway.document, media_type="application/json")  # encoded once

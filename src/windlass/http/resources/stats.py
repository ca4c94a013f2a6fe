"""The number of jobs by queue and state."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.core.states import State
from windlass.http.access import Principal
from windlass.http.resources.fields import seconds_of
from windlass.http.routes import VIEWERS, ApiRequest, route
from windlass.jobs import AppStats


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue."""

    jobs: Mapping[State, int]  # without zeros
    oldest_ready_s: float | None  # how long its next job has been ready


class StatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of all queues that the caller may use, at one instant."""

    queues: Mapping[str, QueueCounts]
    jobs: Mapping[State, int]  # of these queues together
    totals: Mapping[str, int] | None  # what has happened so far; null for a caller of some queues


@route("GET", "/v1/stats", roles=VIEWERS)
async def read_stats(call: ApiRequest) -> StatsAnswer:
    """Count jobs by queue and state.

    The engine keeps these counts: reading them takes the same time with any number of jobs. A
    caller for some queues sees only those."""
    stats = await call.gateway.call(call.gateway.app.stats)
    return describe_stats(stats, call.principal)


def describe_stats(stats: AppStats, principal: Principal) -> StatsAnswer:
    """What a caller may see of the counts."""
    seen = {name: queue for name, queue in stats.queues.items() if principal.may_use(name)}
    visible = AppStats(queues=seen, totals=stats.totals)
    return StatsAnswer(
        queues={
            name: QueueCounts(jobs=queue.jobs, oldest_ready_s=seconds_of(queue.oldest_ready))
            for name, queue in seen.items()
        },
        jobs=visible.jobs,
        totals=stats.totals if principal.sees_all else None,
    )

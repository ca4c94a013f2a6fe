"""The demand of queues for slots, for autoscalers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from windlass.core.queues.load import DRAIN_TARGET_S, QueueLoad
from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.resources.fields import QueueName
from windlass.http.routes import VIEWERS, ApiRequest, route
from windlass.queue_loads import read_loads

#: An engine that takes longer is away, in seconds. Autoscalers wait for some seconds only.
ANSWER_S: Final = 5.0
#: The most queues of one request.
MAX_QUEUES: Final = 100


class ScaleQuery(msgspec.Struct, frozen=True, kw_only=True):
    #: A queue; may be repeated, up to 100 times. Without any, all queues that the caller may use.
    queue: tuple[QueueName, ...] = ()
    #: Ask for the slots that start the ready jobs within this time.
    drain_target_s: Annotated[float, Meta(ge=1, le=86_400)] = DRAIN_TARGET_S


class QueueScale(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a queue."""

    queue: str
    ready: int
    running: int
    scheduled: int  # scheduled and retrying
    dead: int
    oldest_s: float  # how long its next job has been ready; 0 if none is
    in_rate: float  # enqueued jobs per second, in the last 5 minutes
    out_rate: float  # runs that ended, per second
    mean_run_s: float | None  # null if no run has ended
    #: null: never, because it grows, is paused, its jobs are held, or no run has ended
    drain_s: float | None
    demand_slots: int  # how many slots it needs
    paused: bool
    held: bool  # no ready job is next in line: all are held, or must run alone


class ScaleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The load of the queues together, and of each of them."""

    ready: int
    running: int
    oldest_s: float  # the longest of all
    drain_s: float | None  # the longest of all; null if one of them never drains
    demand_slots: int  # of all together
    queues: tuple[QueueScale, ...]


@route("GET", "/v1/scale", roles=VIEWERS)
async def read_scale(call: ApiRequest, query: ScaleQuery) -> ScaleAnswer:
    """Read how many slots queues need.

    The demand is that of the jobs that arrive, or of those that run if these are more, and of the
    ready jobs, so that they start within the drain target. A queue without jobs has none. While the
    engine does not answer, the answer is a problem and never 0. The numbers come from counters and
    from the history: reading them takes the same time with any number of jobs."""
    queues = tuple(dict.fromkeys(query.queue))
    if len(queues) > MAX_QUEUES:
        detail = f"expected at most {MAX_QUEUES} queues, found {len(queues)}. Name none for all"
        raise invalid("query.queue", detail)
    for name in queues:
        call.principal.require_queue(name)
    app = call.gateway.app
    try:
        async with asyncio.timeout(ANSWER_S):
            loads = await call.gateway.call(
                lambda: read_loads(app.engine, queues, drain_target_s=query.drain_target_s)
            )
    except TimeoutError:
        raise Problem(ProblemType.ENGINE_AWAY, "The engine does not answer.") from None
    return describe_scale([load for load in loads if call.principal.may_use(load.queue)])


def describe_scale(loads: Sequence[QueueLoad]) -> ScaleAnswer:
    drains = [load.drain_s for load in loads]
    known = [drain_s for drain_s in drains if drain_s is not None]
    return ScaleAnswer(
        ready=sum(load.ready for load in loads),
        running=sum(load.running for load in loads),
        oldest_s=max((load.oldest_s for load in loads), default=0.0),
        drain_s=_rounded(max(known, default=0.0)) if len(known) == len(drains) else None,
        demand_slots=sum(load.demand_slots for load in loads),
        queues=tuple(_describe(load) for load in loads),
    )


def _describe(load: QueueLoad) -> QueueScale:
    return QueueScale(
        queue=load.queue,
        ready=load.ready,
        running=load.running,
        scheduled=load.scheduled,
        dead=load.dead,
        oldest_s=load.oldest_s,
        in_rate=round(load.in_rate, 3),
        out_rate=round(load.out_rate, 3),
        mean_run_s=_rounded(load.mean_run_s),
        drain_s=_rounded(load.drain_s),
        demand_slots=load.demand_slots,
        paused=load.paused,
        held=load.held,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

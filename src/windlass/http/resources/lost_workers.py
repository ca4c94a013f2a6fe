"""Sessions of workers that were lost, and jobs that are suspected of killing processes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.core.queues.plans import queue_names
from windlass.core.states import Reason, State
from windlass.http.access import Principal
from windlass.http.resources.fields import Instant
from windlass.http.routes import VIEWERS, ApiRequest, route
from windlass.lost_sessions import (
    MAX_KEPT,
    LossKind,
    LostSession,
    SuspectJob,
    read_lost,
    read_suspects,
)


class LostQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_KEPT)] = 20  # of the sessions


class LostJobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a lost session held."""

    id: str
    task: str
    queue: str
    is_suspect: bool  # it ran when the process died
    state: State | None  # what became of it; null if it was removed


class LostSessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A session that its own process did not close."""

    session: str
    kind: LossKind
    cause: str
    at: Instant  # when it was noticed
    worker: str  # host and pid
    app: str
    release: str | None
    job_count: int
    jobs: tuple[LostJobAnswer, ...]  # at most 20, of queues that the caller may use


class SuspectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ran when processes died."""

    id: str
    task: str
    queue: str
    state: State
    reason: Reason | None
    crashes: int
    losses: int
    at: Instant | None  # when it was enqueued or, if it is dead, when it died


class LostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Lost sessions, the latest first, and crash suspects."""

    sessions: tuple[LostSessionAnswer, ...]
    suspects: tuple[SuspectAnswer, ...]  # they wait to run alone
    is_exact: bool  # false: more suspects wait than these
    dead: tuple[SuspectAnswer, ...]  # died of crashes or lost workers; of the latest 200 dead jobs


@route("GET", "/v1/workers/lost", roles=VIEWERS)
async def list_lost(call: ApiRequest, query: LostQuery) -> LostAnswer:
    """List sessions that were lost lately, and crash suspects.

    The engine keeps 100 lost sessions: of workers that sent no heartbeat for a lease (expired),
    that another worker of their machine found dead (died), or whose process crashed. Suspects are
    jobs that ran when a process died, and now run alone. A caller for some queues sees jobs of
    these queues, and sessions of workers that served one of them."""
    engine, principal = call.gateway.app.engine, call.principal
    lost = await call.gateway.call(read_lost, engine, MAX_KEPT)
    suspects = await call.gateway.call(read_suspects, engine)
    visible = [one for one in lost if _may_see(one, principal)][: query.limit]
    return LostAnswer(
        sessions=tuple(_describe(one, principal) for one in visible),
        suspects=_jobs(suspects.waiting, principal),
        is_exact=suspects.is_exact,
        dead=_jobs(suspects.dead, principal),
    )


def _may_see(lost: LostSession, principal: Principal) -> bool:
    names = queue_names(lost.queues)
    return principal.sees_all or not names or any(map(principal.may_use, names))


def _describe(lost: LostSession, principal: Principal) -> LostSessionAnswer:
    return LostSessionAnswer(
        session=lost.session,
        kind=lost.kind,
        cause=lost.cause,
        at=lost.at,
        worker=lost.worker,
        app=lost.app,
        release=lost.release,
        job_count=lost.job_count,
        jobs=tuple(
            LostJobAnswer(**msgspec.structs.asdict(job))
            for job in lost.jobs
            if principal.may_use(job.queue)
        ),
    )


def _jobs(found: tuple[SuspectJob, ...], principal: Principal) -> tuple[SuspectAnswer, ...]:
    return tuple(
        SuspectAnswer(**msgspec.structs.asdict(job))
        for job in found
        if principal.may_use(job.queue)
    )

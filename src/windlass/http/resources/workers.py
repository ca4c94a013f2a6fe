"""Live workers, and the commands that operators give to their sessions."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from windlass.core.queues.plans import queue_names
from windlass.engine.contract import SessionCommand
from windlass.errors import WorkerNotFound
from windlass.fleet import ChildInfo, WorkerInfo, WorkerState
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType
from windlass.http.resources.fields import Instant, PageLimit
from windlass.http.resources.scope import require_all_queues
from windlass.http.routes import OPERATORS, VIEWERS, ApiRequest, route

#: The most sessions of one worker in an answer.
MAX_SESSIONS: Final = 200


class SessionPath(msgspec.Struct, frozen=True, kw_only=True):
    session: Annotated[str, Meta(pattern=r"^[!-.0-~]{1,128}$(?!\n)")]


class WorkerQuery(msgspec.Struct, frozen=True, kw_only=True):
    #: The name of the last worker of the page before.
    after: Annotated[str, Meta(pattern=r"^[^\n]{1,300}:[^:\n]{1,20}$(?!\n)")] | None = None
    limit: PageLimit = 50


class RunningJobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a session runs."""

    id: str
    task: str
    queue: str
    attempt: int
    started_at: Instant | None


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A process in which jobs run, or a worker that uses this API."""

    session: str
    pid: int
    slots: int  # jobs at a time
    jobs: int  # the claimed jobs; a few of them may not have started
    running: tuple[RunningJobAnswer, ...]  # of queues that the caller may use
    command: SessionCommand
    expires_in_s: float  # the rest of its lease
    is_silent: bool  # without a recent heartbeat
    release: str | None  # the version of its code


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker: a supervisor and its processes."""

    name: str  # host and pid
    host: str
    pid: int
    kind: str  # "http" for a worker that uses this API
    state: WorkerState
    app: str
    version: str
    queues: tuple[str, ...]  # every queue when empty
    labels: tuple[str, ...]
    tasks: tuple[str, ...]  # of a worker that uses this API
    started_at: Instant | None  # by the clock of its machine
    slots: int
    jobs: int
    release: str | None  # of its sessions
    least_children: int  # of a worker that scales their number; 0 if it is fixed
    most_children: int
    session_count: int
    sessions: tuple[SessionAnswer, ...]  # at most 200 of them


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """The live workers, by host and pid."""

    workers: tuple[WorkerAnswer, ...]
    after: str | None  # of the next page; null at the end


@route("GET", "/v1/workers", roles=VIEWERS)
async def list_workers(call: ApiRequest, query: WorkerQuery) -> WorkerList:
    """List live workers and their running jobs.

    At most 500 running jobs of all workers are named. A caller for some queues sees workers that
    serve one of them, and running jobs of these queues."""
    found = await call.gateway.call(call.gateway.app.workers)
    last = _place_of(query.after) if query.after else None
    visible = [
        one
        for one in found
        if _serves(one, call.principal) and (last is None or _place_of(one.name) > last)
    ]
    page = visible[: query.limit]
    return WorkerList(
        workers=tuple(_describe(one, call.principal) for one in page),
        after=page[-1].name if len(visible) > len(page) else None,
    )


@route("POST", "/v1/workers/{session}/quiet", roles=OPERATORS, problems=[ProblemType.SESSION_GONE])
async def quiet_worker(call: ApiRequest, path: SessionPath) -> WorkerAnswer:
    """Let a worker finish its running jobs and claim no more.

    The path has a session or the name of a worker. The command is for all processes of the worker,
    which get it with their next heartbeats."""
    return await _command(call, path.session, SessionCommand.QUIET)


@route("POST", "/v1/workers/{session}/stop", roles=OPERATORS, problems=[ProblemType.SESSION_GONE])
async def stop_worker(call: ApiRequest, path: SessionPath) -> WorkerAnswer:
    """Let a worker finish its running jobs within its grace period, and end."""
    return await _command(call, path.session, SessionCommand.STOP)


@route("POST", "/v1/workers/{session}/run", roles=OPERATORS, problems=[ProblemType.SESSION_GONE])
async def run_worker(call: ApiRequest, path: SessionPath) -> WorkerAnswer:
    """Let a quiet worker claim jobs again.

    A worker that stops already continues to stop: `state` says so."""
    return await _command(call, path.session, SessionCommand.RUN)


async def _command(call: ApiRequest, session: str, command: SessionCommand) -> WorkerAnswer:
    """Command the worker of a session: all of its processes."""
    require_all_queues(call.principal, "A command to a worker")
    known: tuple[str, ...] = ()
    try:
        found = await call.gateway.call(call.gateway.app.command_workers, [session], command)
    except WorkerNotFound as error:
        found, known = [], error.known[:5]
    if not found:
        names = f", such as {', '.join(known)}" if known else ""
        raise Problem(
            ProblemType.SESSION_GONE,
            f"There is no worker or session {session}. GET /v1/workers lists the live ones{names}.",
        )
    return _describe(found[0], call.principal)


def _place_of(name: str) -> tuple[str, int, str]:
    """The place of a worker in the list, by its name: host and pid, or host and kind."""
    host, _, place = name.rpartition(":")
    return (host, int(place), "") if place.isdecimal() else (host, 0, place)


def _serves(worker: WorkerInfo, principal: Principal) -> bool:
    """Whether a worker serves a queue that the caller may use."""
    names = queue_names(worker.queues)
    return principal.sees_all or not names or any(map(principal.may_use, names))


def _queues(worker: WorkerInfo, principal: Principal) -> tuple[str, ...]:
    """The tiers of a worker, or the queues of them that the caller may use."""
    if principal.sees_all:
        return worker.queues
    return tuple(filter(principal.may_use, queue_names(worker.queues)))


def _describe(worker: WorkerInfo, principal: Principal) -> WorkerAnswer:
    return WorkerAnswer(
        name=worker.name,
        host=worker.host,
        pid=worker.pid,
        kind=worker.kind,
        state=worker.state,
        app=worker.app,
        version=worker.version,
        queues=_queues(worker, principal),
        labels=worker.labels,
        tasks=worker.tasks,
        started_at=worker.started_at,
        slots=worker.slots,
        jobs=worker.jobs,
        release=worker.release,
        least_children=worker.least_children,
        most_children=worker.most_children,
        session_count=len(worker.children),
        sessions=tuple(
            _describe_session(child, principal) for child in worker.children[:MAX_SESSIONS]
        ),
    )


def _describe_session(child: ChildInfo, principal: Principal) -> SessionAnswer:
    return SessionAnswer(
        session=child.session,
        pid=child.pid,
        slots=child.slots,
        jobs=child.jobs,
        running=tuple(
            RunningJobAnswer(
                id=job.id,
                task=job.task,
                queue=job.queue,
                attempt=job.attempt,
                started_at=job.started_at,
            )
            for job in child.running
            if principal.may_use(job.queue)
        ),
        command=child.command,
        expires_in_s=child.expires_in_ms / 1000,
        is_silent=child.is_silent,
        release=child.release,
    )

"""Schedules: list them, run them now, pause and resume them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.core.queues.labels import queue_of
from windlass.errors import DecodeError, InvalidSchedule, ScheduleNotFound
from windlass.http.problems import Problem, ProblemType
from windlass.http.resources.fields import Instant, PageLimit, PlainName
from windlass.http.resources.scope import visible_page
from windlass.http.routes import OPERATORS, VIEWERS, ApiRequest, route
from windlass.schedules import ScheduleInfo

#: The number of coming runs of a schedule in answers.
UPCOMING = 5


class SchedulePath(msgspec.Struct, frozen=True, kw_only=True):
    name: PlainName


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: PlainName | None = None  # the name of the last schedule of the page before
    limit: PageLimit = 100


class ScheduleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at one instant."""

    name: str
    timing: str  # such as "cron 0 5 * * * in UTC"
    task: str
    queue: str
    state: str  # active, paused, abandoned (no worker declares it any more), over or unreadable
    is_declared: bool  # in code, not saved at run time
    next_at: Instant | None
    upcoming: tuple[Instant, ...]  # the next runs, as if the schedule were not paused
    last_at: Instant | None  # the last occurrence that made a job
    last_late_s: float | None  # how long after its time it made the job; null if not known
    skipped: int  # the number of skipped occurrences
    unfinished: tuple[str, ...]  # unfinished jobs of earlier runs, if overlap needs them


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by name."""

    schedules: tuple[ScheduleAnswer, ...]
    after: str | None  # of the next page; null at the end


class ScheduledJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a run that was started by hand."""

    id: str
    task: str


@route("GET", "/v1/schedules", roles=VIEWERS)
async def list_schedules(call: ApiRequest, query: ScheduleQuery) -> ScheduleList:
    """List schedules with their next runs.

    A caller for some queues sees the schedules of these queues."""

    async def read(after: str, limit: int) -> Sequence[ScheduleInfo]:
        return await call.gateway.call(call.gateway.app.schedules.list, after=after, limit=limit)

    visible, after = await visible_page(
        call.principal,
        read,
        lambda one: one.name,
        lambda one: call.principal.may_use(queue_of(one.queue)),
        after=query.after or "",
        limit=query.limit,
    )
    return ScheduleList(schedules=tuple(map(_describe, visible)), after=after)


@route("GET", "/v1/schedules/{name}", roles=VIEWERS, problems=[ProblemType.CONFLICT])
async def read_schedule(call: ApiRequest, path: SchedulePath) -> ScheduleAnswer:
    """Read one schedule."""
    return _describe(await _find(call, path.name))


@route(
    "POST", "/v1/schedules/{name}/run", roles=OPERATORS, status=201, problems=[ProblemType.CONFLICT]
)
async def run_schedule(call: ApiRequest, path: SchedulePath) -> ScheduledJob:
    """Enqueue an additional run now, even while the schedule is paused."""
    await _find(call, path.name)
    job = await call.gateway.call(call.gateway.app.schedules.run_now, path.name)
    return ScheduledJob(id=job.id, task=job.task or "")


@route("POST", "/v1/schedules/{name}/pause", roles=OPERATORS, problems=[ProblemType.CONFLICT])
async def pause_schedule(call: ApiRequest, path: SchedulePath) -> ScheduleAnswer:
    """Enqueue no more jobs of a schedule until it is resumed."""
    await _find(call, path.name)
    await call.gateway.call(call.gateway.app.schedules.pause, path.name)
    return _describe(await _find(call, path.name))


@route("POST", "/v1/schedules/{name}/resume", roles=OPERATORS, problems=[ProblemType.CONFLICT])
async def resume_schedule(call: ApiRequest, path: SchedulePath) -> ScheduleAnswer:
    """End the pause of a schedule.

    It continues with the next occurrence, and skips those during the pause."""
    await _find(call, path.name)
    try:
        await call.gateway.call(call.gateway.app.schedules.resume, path.name)
    except InvalidSchedule as error:
        raise Problem(ProblemType.CONFLICT, str(error)) from None
    return _describe(await _find(call, path.name))


async def _find(call: ApiRequest, name: str) -> ScheduleInfo:
    """Read a schedule that the caller may see."""
    info: ScheduleInfo | None
    try:
        info = await call.gateway.call(call.gateway.app.schedules.get, name)
    except ScheduleNotFound:
        info = None
    except DecodeError as error:
        raise Problem(
            ProblemType.CONFLICT, f"The schedule {name} cannot be read: {error}."
        ) from None
    if info is None or not call.principal.may_use(queue_of(info.queue)):
        raise Problem(ProblemType.NOT_FOUND, f"There is no schedule {name}.")
    return info


def _describe(info: ScheduleInfo) -> ScheduleAnswer:
    return ScheduleAnswer(
        name=info.name,
        timing="" if info.schedule is None else info.schedule.describe(),
        task=info.task,
        queue=queue_of(info.queue),
        state=info.state,
        is_declared=info.is_declared,
        next_at=info.next_at,
        upcoming=tuple(info.upcoming(UPCOMING)),
        last_at=info.last_at,
        last_late_s=info.last_late_s,
        skipped=info.skipped,
        unfinished=info.unfinished,
    )

"""Queues: their settings and counts; pause, resume and purge them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.app import Windlass
from windlass.core.foreign_words import nearest
from windlass.core.states import State
from windlass.engine.contract import QueueRecord
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType
from windlass.http.resources.fields import QueueName, seconds_of
from windlass.http.resources.operations import OperationAnswer, start_operation
from windlass.http.routes import OPERATORS, VIEWERS, ApiRequest, route
from windlass.jobs import QueueStats
from windlass.operations.pages import OperationAction


class QueuePath(msgspec.Struct, frozen=True, kw_only=True):
    name: QueueName


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant."""

    name: str
    paused: bool
    ageing_s: float | None  # waiting this long is worth one level of priority
    max_waiting: int | None  # the bound: no enqueue while this many jobs wait
    jobs: Mapping[State, int]  # without zeros
    oldest_ready_s: float | None  # how long its next job has been ready


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    """The queues with jobs or settings, by name."""

    queues: tuple[QueueAnswer, ...]


@route("GET", "/v1/queues", roles=VIEWERS)
async def list_queues(call: ApiRequest) -> QueueList:
    """List queues with their settings and counts.

    A queue is listed while it has jobs or settings. A caller for some queues sees only those."""
    found = await call.gateway.call(_read_queues, call.gateway.app)
    visible = (queue for name, queue in found.items() if call.principal.may_use(name))
    return QueueList(queues=tuple(visible))


@route("GET", "/v1/queues/{name}", roles=VIEWERS)
async def read_queue(call: ApiRequest, path: QueuePath) -> QueueAnswer:
    """Read one queue."""
    return await _find(call, path.name)


@route("POST", "/v1/queues/{name}/pause", roles=OPERATORS)
async def pause_queue(call: ApiRequest, path: QueuePath) -> QueueAnswer:
    """Stop all claims from a queue.

    Running jobs continue; waiting jobs keep their place."""
    await _find(call, path.name)
    await call.gateway.call(call.gateway.app.queue(path.name).pause)
    return await _find(call, path.name)


@route("POST", "/v1/queues/{name}/resume", roles=OPERATORS)
async def resume_queue(call: ApiRequest, path: QueuePath) -> QueueAnswer:
    """Allow claims from a queue again."""
    await _find(call, path.name)
    await call.gateway.call(call.gateway.app.queue(path.name).resume)
    return await _find(call, path.name)


@route("POST", "/v1/queues/{name}/purge", roles=OPERATORS, status=202)
async def purge_queue(call: ApiRequest, path: QueuePath) -> OperationAnswer:
    """Remove all waiting jobs of a queue for good: ready, scheduled and retrying ones.

    Running jobs continue. Starts a bulk operation, and answers with it."""
    await _find(call, path.name)
    return await start_operation(call, OperationAction.QUEUE_PURGE, None, {"queue": path.name})


async def _find(call: ApiRequest, name: str) -> QueueAnswer:
    call.principal.require_queue(name)
    return await call.gateway.call(_read_queue, call.gateway.app, call.principal, name)


def _read_queue(app: Windlass, principal: Principal, name: str) -> QueueAnswer:
    """One queue. A queue without jobs and settings exists if a task uses it."""
    found = _read_queues(app)
    if name in found:
        return found[name]
    known = {*found, *(task.queue for task in app.tasks.values())}
    if name in known:
        return _describe(QueueRecord(queue=name), None)
    raise Problem(
        ProblemType.NOT_FOUND,
        f"There is no queue {name}: it has no jobs and no settings, and no known task uses it."
        f"{nearest(name, filter(principal.may_use, known))}",
    )


def _read_queues(app: Windlass) -> dict[str, QueueAnswer]:
    stats = app.stats().queues
    records = {record.queue: record for record in app.engine.queues()}
    return {
        name: _describe(records.get(name) or QueueRecord(queue=name), stats.get(name))
        for name in sorted({*stats, *records})
    }


def _describe(record: QueueRecord, stats: QueueStats | None) -> QueueAnswer:
    return QueueAnswer(
        name=record.queue,
        paused=record.paused,
        ageing_s=record.ageing_ms / 1000 if record.ageing_ms else None,
        max_waiting=record.max_waiting or None,
        jobs={} if stats is None else stats.jobs,
        oldest_ready_s=None if stats is None else seconds_of(stats.oldest_ready),
    )

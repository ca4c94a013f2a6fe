"""Bulk operations: list, read, pause, resume and stop them.

An operation is stored by the engine, and continues when an instance dies: every instance has a
runner, and one of them at a time works on an operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.app import Windlass
from windlass.errors import OperationNotFound
from windlass.http.access import Principal
from windlass.http.gateway import Gateway
from windlass.http.problems import Problem, ProblemType
from windlass.http.resources.fields import Instant, PageLimit
from windlass.http.resources.scope import visible_page
from windlass.http.routes import OPERATORS, VIEWERS, ApiRequest, route
from windlass.operations.operations import Operation
from windlass.operations.pages import OperationAction, OperationState
from windlass.operations.runner import OperationRunner

OperationId = Annotated[str, Meta(pattern=r"^[0-9a-z]{1,64}$(?!\n)")]


class OperationPath(msgspec.Struct, frozen=True, kw_only=True):
    id: OperationId


class OperationQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: OperationId | None = None  # the id of the last operation of the page before
    limit: PageLimit = 50


class OperationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk operation at one instant."""

    id: str
    action: OperationAction
    state: OperationState
    filter: Mapping[str, Any]  # its headers are redacted by name
    actor: str
    rate: float | None  # jobs a second
    total: int | None  # the jobs that matched at the start; null if they were not counted
    done: int
    refused: int  # not changed: no longer as they were, or their unique key is taken
    failed: int  # not changed: unreadable
    stop_after: (
        int  # of a retry: it pauses when this many of the last 100 jobs failed again; 0: never
    )
    failed_again: int  # retried jobs that were seen to fail again
    created_at: Instant
    updated_at: Instant
    reason: str | None  # why it pauses
    error: str | None  # why it failed


class OperationList(msgspec.Struct, frozen=True, kw_only=True):
    """Operations, the newest first."""

    operations: tuple[OperationAnswer, ...]
    after: str | None  # of the next page; null at the end


@route("GET", "/v1/operations", roles=VIEWERS)
async def list_operations(call: ApiRequest, query: OperationQuery) -> OperationList:
    """List bulk operations, the newest first.

    A caller for some queues sees the operations on these queues."""

    async def read(after: str, limit: int) -> Sequence[Operation]:
        return await call.gateway.call(call.gateway.app.operations.list, after=after, limit=limit)

    visible, after = await visible_page(
        call.principal,
        read,
        lambda one: one.id,
        lambda one: _may_see(call.principal, one),
        after=query.after or "",
        limit=query.limit,
    )
    return OperationList(
        operations=tuple(describe_operation(one, call.gateway.app) for one in visible), after=after
    )


@route("GET", "/v1/operations/{id}", roles=VIEWERS)
async def read_operation(call: ApiRequest, path: OperationPath) -> OperationAnswer:
    """Read a bulk operation, with its progress."""
    return describe_operation(await _find(call, path.id), call.gateway.app)


@route("POST", "/v1/operations/{id}/pause", roles=OPERATORS)
async def pause_operation(call: ApiRequest, path: OperationPath) -> OperationAnswer:
    """Pause a bulk operation after its current step.

    An operation that does not run stays as it is. A paused one is kept for 7 days."""
    await _find(call, path.id)
    paused = await call.gateway.call(
        call.gateway.app.operations.pause, path.id, actor=call.principal.name
    )
    return describe_operation(paused, call.gateway.app)


@route("POST", "/v1/operations/{id}/resume", roles=OPERATORS)
async def resume_operation(call: ApiRequest, path: OperationPath) -> OperationAnswer:
    """Continue a paused bulk operation.

    Failures before the pause do not stop it again. An operation that has ended is refused."""
    await _find(call, path.id)
    resumed = await call.gateway.call(call.gateway.app.operations.resume, path.id)
    call.gateway.part(start_runner).wake()
    return describe_operation(resumed, call.gateway.app)


@route("POST", "/v1/operations/{id}/stop", roles=OPERATORS)
async def stop_operation(call: ApiRequest, path: OperationPath) -> OperationAnswer:
    """Stop a bulk operation for good, after its current step.

    Jobs that it has changed stay changed. An operation that has ended stays as it is."""
    await _find(call, path.id)
    stopped = await call.gateway.call(call.gateway.app.operations.stop, path.id)
    return describe_operation(stopped, call.gateway.app)


def start_runner(gateway: Gateway) -> OperationRunner:
    """Start the runner of an instance, as `gateway.part(start_runner)`."""
    runner = OperationRunner(gateway.app)
    runner.start()
    gateway.on_close(runner.stop)
    return runner


async def start_operation(
    call: ApiRequest,
    action: OperationAction,
    rate: float | None,
    choice: Mapping[str, Any],
    stop_after: int | None = None,
) -> OperationAnswer:
    """Store an operation for the jobs that the caller may change, and let it run."""
    started = await call.gateway.call(
        lambda: call.gateway.app.operations.start(
            action,
            actor=call.principal.name,
            rate=rate,
            stop_after=stop_after,
            scopes=call.principal.queues,
            **choice,
        )
    )
    call.gateway.part(start_runner).wake()
    return describe_operation(started, call.gateway.app)


def describe_operation(operation: Operation, app: Windlass) -> OperationAnswer:
    return OperationAnswer(
        id=operation.id,
        action=OperationAction(operation.action),
        state=OperationState(operation.state),
        filter=app.redactor.redact(dict(operation.filter)),
        actor=operation.actor,
        rate=operation.rate,
        total=operation.total,
        done=operation.done,
        refused=operation.refused,
        failed=operation.failed,
        stop_after=operation.stop_after,
        failed_again=operation.failed_again,
        created_at=operation.created_at,
        updated_at=operation.updated_at,
        reason=operation.reason or None,
        error=operation.error or None,
    )


async def _find(call: ApiRequest, id: str) -> Operation:
    try:
        found = await call.gateway.call(call.gateway.app.operations.get, id)
    except OperationNotFound:
        raise _no_such_operation(id) from None
    if not _may_see(call.principal, found):
        raise _no_such_operation(id)
    return found


def _no_such_operation(id: str) -> Problem:
    return Problem(ProblemType.NOT_FOUND, f"There is no operation {id}.")


def _may_see(principal: Principal, operation: Operation) -> bool:
    """Whether an operation changes only jobs of queues that the caller may use."""
    if principal.sees_all:
        return True
    queue, scopes = operation.filter.get("queue"), operation.filter.get("scopes", ())
    if queue is not None:
        return principal.may_use(queue)
    return bool(scopes) and set(scopes) <= set(principal.queues)

"""Cancel many jobs: by id, each with a verdict, or by filter, as a bulk operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from windlass.app import Windlass
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import CancelCode
from windlass.http.access import Principal
from windlass.http.problems import invalid
from windlass.http.resources.fields import Instant, JobId, PlainName, QueueName
from windlass.http.resources.operations import OperationAnswer, start_operation
from windlass.http.routes import OPERATORS, VIEWERS, ApiRequest, Reply, route
from windlass.operations.pages import CANCELLABLE, OperationAction

#: The most ids of one request.
MAX_IDS: Final = 500


class CancelFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs: open ones that match all given parts. `everything` chooses all open jobs."""

    task: PlainName | None = None
    queue: QueueName | None = None
    state: State | None = None  # ready, scheduled, retrying or running
    since: Instant | None = None  # enqueued at this instant or later
    until: Instant | None = None  # enqueued before this instant
    everything: bool = False


class CancelBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to cancel: by id, or by filter."""

    ids: Annotated[tuple[JobId, ...], Meta(min_length=1, max_length=MAX_IDS)] | None = None
    filter: CancelFilter | None = None
    rate: Annotated[float, Meta(gt=0, le=100_000)] | None = None  # jobs a second, by filter


class CancelCountQuery(msgspec.Struct, frozen=True, kw_only=True):
    task: PlainName | None = None
    queue: QueueName | None = None
    state: State | None = None  # ready, scheduled, retrying or running
    since: Instant | None = None  # enqueued at this instant or later
    until: Instant | None = None  # enqueued before this instant


class JobCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of matching jobs: exactly, or at least this many."""

    count: int
    is_exact: bool


class CancelVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job."""

    jobs: Mapping[str, CancelCode]


@route("GET", "/v1/jobs/count", roles=VIEWERS)
async def count_jobs(call: ApiRequest, query: CancelCountQuery) -> JobCount:
    """Count the jobs that a cancellation with this filter would change.

    These are jobs that have not ended. Counts exactly up to 10,000 and for at most two seconds."""
    choice = _choice(call, CancelFilter(**msgspec.structs.asdict(query)), "query")
    operations, scopes = call.gateway.app.operations, call.principal.queues
    found = await call.gateway.call(
        lambda: operations.preview(
            OperationAction.JOBS_CANCEL, scopes=scopes, **(choice or {"everything": True})
        )
    )
    return JobCount(count=found.count, is_exact=found.is_exact)


@route("POST", "/v1/jobs/cancel", roles=OPERATORS, other_answers={202: OperationAnswer})
async def cancel_jobs(call: ApiRequest, body: CancelBody) -> CancelVerdicts | Reply:
    """Keep jobs from running, or from running again.

    Up to 500 `ids` have a verdict each: cancelled, requested (the worker interrupts a running job),
    final (it has ended) or unknown. A `filter` starts a bulk operation, and answers 202 with it."""
    if (body.ids is None) == (body.filter is None):
        raise invalid("body", "expected ids or a filter, found both or neither")
    if body.ids is not None:
        if body.rate is not None:
            raise invalid("body.rate", "expected rate with a filter only, found ids")
        app, principal = call.gateway.app, call.principal
        return await call.gateway.call(_cancel_each, app, principal, body.ids)
    chosen = body.filter or CancelFilter()
    choice = _choice(call, chosen, "body.filter")
    if bool(choice) == chosen.everything:
        raise invalid(
            "body.filter", "expected a part of the filter, or everything for all open jobs"
        )
    started = await start_operation(
        call, OperationAction.JOBS_CANCEL, body.rate, choice or {"everything": True}
    )
    return Reply(202, started)


def _choice(call: ApiRequest, chosen: CancelFilter, place: str) -> dict[str, Any]:
    """The parts of a filter that are given. The caller may use its queue."""
    if chosen.queue is not None:
        call.principal.require_queue(chosen.queue)
    if chosen.state is not None and chosen.state not in CANCELLABLE:
        states = ", ".join(CANCELLABLE)
        raise invalid(f"{place}.state", f"expected one of {states}, found {chosen.state}")
    given = msgspec.structs.asdict(chosen)
    del given["everything"]
    return {name: part for name, part in given.items() if part is not None}


def _cancel_each(app: Windlass, principal: Principal, ids: Sequence[str]) -> CancelVerdicts:
    wanted = list(dict.fromkeys(ids))
    allowed = wanted
    if not principal.sees_all:
        found = zip(wanted, app.engine.get(wanted), strict=True)
        allowed = [id for id, one in found if one and principal.may_use(queue_of(one.queue))]
    codes = dict(zip(allowed, app.engine.cancel(allowed) if allowed else (), strict=True))
    return CancelVerdicts(jobs={id: codes.get(id, CancelCode.UNKNOWN) for id in wanted})

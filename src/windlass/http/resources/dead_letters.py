"""Dead letters: groups of similar failures; retry or discard them by id or by filter.

By id, each job has a verdict. By filter, a bulk operation changes all matching jobs, also those
that no page shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from windlass.app import Windlass
from windlass.calls.redaction import CallRedactor
from windlass.core.durations import instant
from windlass.core.queues.labels import queue_of
from windlass.core.states import Reason, State
from windlass.dead_groups import GroupChoice, read_groups
from windlass.dead_letter import DeadGroup, Unreadable, read_each
from windlass.dead_letters import WHOLE_PAGE, discard_letters
from windlass.engine.contract import ChangeCode, JobRecord, Revival
from windlass.errors import ReleaseNotFound
from windlass.http.access import Principal
from windlass.http.problems import invalid
from windlass.http.resources.fields import (
    Fingerprint,
    Instant,
    JobId,
    PlainName,
    QueueName,
    Release,
    Seconds,
)
from windlass.http.resources.job_view import JobError, describe_error
from windlass.http.resources.operations import OperationAnswer, start_operation
from windlass.http.routes import OPERATORS, VIEWERS, ApiRequest, Reply, route
from windlass.operations.pages import OperationAction
from windlass.operations.replay import WINDOW

#: The most ids of one request.
MAX_IDS: Final = 500


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead jobs: those that match all given parts. `everything` chooses all."""

    task: PlainName | None = None
    queue: QueueName | None = None
    fingerprint: Fingerprint | None = None
    release: Release | None = None
    older_than_s: Seconds | None = None  # dead for longer than this
    newer_than_s: Seconds | None = None
    everything: bool = False


class DeadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead jobs to change: by id, or by filter."""

    ids: Annotated[tuple[JobId, ...], Meta(min_length=1, max_length=MAX_IDS)] | None = None
    filter: DeadFilter | None = None
    rate: Annotated[float, Meta(gt=0, le=100_000)] | None = None  # jobs a second, by filter
    #: A retry by filter pauses when this many of its last 100 jobs failed again: 10; 0: never.
    stop_after: Annotated[int, Meta(ge=0, le=WINDOW)] | None = None


class DeadCountQuery(msgspec.Struct, frozen=True, kw_only=True):
    task: PlainName | None = None
    queue: QueueName | None = None
    fingerprint: Fingerprint | None = None
    release: Release | None = None
    older_than_s: Seconds | None = None
    newer_than_s: Seconds | None = None


class GroupQuery(msgspec.Struct, frozen=True, kw_only=True):
    task: PlainName | None = None
    fingerprint: Fingerprint | None = None
    release: Release | None = None  # only jobs that died in this release
    new_since: Release | None = None  # tell which groups are new since this release


class GroupRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a group that died in one release."""

    release: str | None  # null for workers without one
    count: int
    first_at: Instant
    last_at: Instant


class GroupAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one task with similar failures."""

    fingerprint: (
        str  # empty for jobs that an earlier version ended, until a worker has labelled them
    )
    task: str
    count: int
    first_at: Instant  # when the first of these jobs died
    last_at: Instant
    example: str  # the id of the job that died last
    reason: Reason | None
    error: JobError | None  # of the example
    function: str | None  # in which the error of the example was raised
    queues: Mapping[str, int]  # queue to number of jobs
    releases: tuple[GroupRelease, ...]  # the one with the latest death first
    is_new: bool | None  # since the release of `new_since`; null without it


class KnownRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A release, and when its first worker started."""

    release: str
    began_at: Instant


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, the largest first. `is_exact` is false if small groups are left out."""

    groups: tuple[GroupAnswer, ...]
    is_exact: bool
    releases: tuple[KnownRelease, ...]  # the latest first


class DeadCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of matching dead jobs: exactly, or at least this many."""

    count: int
    is_exact: bool


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job."""

    jobs: Mapping[str, ChangeCode]


@route("GET", "/v1/dead/groups", roles=VIEWERS)
async def list_dead_groups(call: ApiRequest, query: GroupQuery) -> GroupList:
    """Group dead jobs by task and fingerprint, the largest group first.

    The engine has the groups, so the time does not depend on the number of dead jobs. The 500
    largest are returned; `is_exact` tells whether those are all. A group is new since a release if
    none of its jobs died in that release, in one that began before it, or without a release; an
    unknown release is refused. A caller for some queues sees groups of jobs of these queues."""
    app, principal = call.gateway.app, call.principal
    choice = GroupChoice(
        task=query.task,
        fingerprint=query.fingerprint,
        release=query.release,
        new_since=query.new_since,
        may_use=principal.may_use,
    )
    try:
        found = await call.gateway.call(read_groups, app.engine, choice, app.packing)
    except ReleaseNotFound as error:
        error.location = ""  # where the jobs are stored is not for clients
        raise invalid("query.new_since", str(error).rstrip(".")) from None
    return GroupList(
        groups=tuple(map(_describe, found.groups)),
        is_exact=found.is_exact,
        releases=tuple(
            KnownRelease(release=name, began_at=instant(began_ms))
            for name, began_ms in reversed(list(found.releases.items()))
        ),
    )


@route("GET", "/v1/dead/count", roles=VIEWERS)
async def count_dead(call: ApiRequest, query: DeadCountQuery) -> DeadCount:
    """Count the dead jobs that a retry or a discard with this filter would change.

    Exact unless the filter has an age, or there are more than 1,000 groups: then it counts up to
    10,000, for at most two seconds."""
    choice = _choice(DeadFilter(**msgspec.structs.asdict(query)))
    if query.queue is not None:
        call.principal.require_queue(query.queue)
    operations, scopes = call.gateway.app.operations, call.principal.queues
    found = await call.gateway.call(
        lambda: operations.preview(
            OperationAction.DEAD_RETRY, scopes=scopes, **(choice or {"everything": True})
        )
    )
    return DeadCount(count=found.count, is_exact=found.is_exact)


@route("POST", "/v1/dead/retry", roles=OPERATORS, other_answers={202: OperationAnswer})
async def retry_dead(call: ApiRequest, body: DeadBody) -> Verdicts | Reply:
    """Make dead jobs ready again, with fresh attempts.

    Up to 500 `ids` have a verdict each: done, refused (not dead), duplicate (another job holds the
    unique key) or unknown. A `filter` starts a bulk operation, and answers 202 with it. The
    operation pauses by itself when its jobs fail again."""
    return await _change(call, body, OperationAction.DEAD_RETRY, _revive)


@route("POST", "/v1/dead/discard", roles=OPERATORS, other_answers={202: OperationAnswer})
async def discard_dead(call: ApiRequest, body: DeadBody) -> Verdicts | Reply:
    """Remove dead jobs for good.

    Chosen as for a retry. The log has a line about each job."""
    return await _change(call, body, OperationAction.DEAD_DISCARD, _discard)


# ---------------------------------------------------------------------------------------- changing

_Change = Callable[[Windlass, Sequence[JobRecord]], Sequence[ChangeCode]]


async def _change(
    call: ApiRequest, body: DeadBody, action: OperationAction, change: _Change
) -> Verdicts | Reply:
    if (body.ids is None) == (body.filter is None):
        raise invalid("body", "expected ids or a filter, found both or neither")
    if body.ids is not None:
        for name in ("rate", "stop_after"):
            if getattr(body, name) is not None:
                raise invalid(f"body.{name}", f"expected {name} with a filter only, found ids")
        app, principal = call.gateway.app, call.principal
        return await call.gateway.call(_change_each, app, principal, body.ids, change)
    if body.stop_after is not None and action is not OperationAction.DEAD_RETRY:
        raise invalid("body.stop_after", "expected stop_after for a retry only: nothing can fail")
    chosen = body.filter or DeadFilter()
    if chosen.queue is not None:
        call.principal.require_queue(chosen.queue)
    choice = _choice(chosen)
    if bool(choice) == chosen.everything:
        raise invalid(
            "body.filter", "expected a part of the filter, or everything for all dead jobs"
        )
    if chosen.everything:
        choice = {"everything": True}
    started = await start_operation(call, action, body.rate, choice, body.stop_after)
    return Reply(202, started)


def _choice(chosen: DeadFilter) -> dict[str, Any]:
    given = {
        "task": chosen.task,
        "queue": chosen.queue,
        "fingerprint": chosen.fingerprint,
        "release": chosen.release,
        "older_than": chosen.older_than_s,
        "newer_than": chosen.newer_than_s,
    }
    return {name: part for name, part in given.items() if part is not None}


def _change_each(
    app: Windlass, principal: Principal, ids: Sequence[str], change: _Change
) -> Verdicts:
    """Change dead jobs in bounded steps, each only if it is still the death that was read."""
    codes: dict[str, ChangeCode] = {}
    wanted = list(dict.fromkeys(ids))
    for at in range(0, len(wanted), WHOLE_PAGE):
        some = wanted[at : at + WHOLE_PAGE]
        dead: list[JobRecord] = []
        for id, record in zip(some, read_each(app.engine, some), strict=True):
            if isinstance(record, Unreadable):
                codes[id] = ChangeCode.REFUSED
            elif record is None or not principal.may_use(queue_of(record.queue)):
                codes[id] = ChangeCode.UNKNOWN
            elif record.state is not State.DEAD:
                codes[id] = ChangeCode.REFUSED
            else:
                dead.append(record)
        changed = change(app, dead) if dead else ()
        codes.update(zip((one.id for one in dead), changed, strict=True))
    return Verdicts(jobs={id: codes[id] for id in wanted})


def _revive(app: Windlass, records: Sequence[JobRecord]) -> Sequence[ChangeCode]:
    revivals = [Revival(id=one.id, finished_ms=one.finished_ms) for one in records]
    return app.engine.revive(revivals)


def _discard(app: Windlass, records: Sequence[JobRecord]) -> Sequence[ChangeCode]:
    return discard_letters(app.engine, records, CallRedactor.of(app))


# ----------------------------------------------------------------------------------------- looking


def _describe(group: DeadGroup) -> GroupAnswer:
    return GroupAnswer(
        fingerprint=group.fingerprint,
        task=group.task,
        count=group.count,
        first_at=group.first_at,
        last_at=group.last_at,
        example=group.example,
        reason=group.reason,
        error=describe_error(group.error),
        function=None if group.error is None else group.error.place or None,
        queues=group.queues,
        releases=tuple(
            GroupRelease(
                release=one.release or None,
                count=one.count,
                first_at=one.first_at,
                last_at=one.last_at,
            )
            for one in group.releases
        ),
        is_new=group.is_new,
    )

"""Checks of the queues that a caller may use.

A caller for some queues must not learn about jobs of others: such a job is not found. The name of
another queue in a request is refused. What concerns all queues is for callers of all queues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from windlass.core.queues.labels import queue_of
from windlass.engine.contract import JobRecord
from windlass.errors import DuplicateJob
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType
from windlass.http.routes import ApiRequest

T = TypeVar("T")

#: The length of the pages that are read for a caller that sees only a part of them.
_READ_LENGTH: Final = 200


def require_all_queues(principal: Principal, what: str) -> None:
    """Refuse a caller that may use only some queues."""
    if not principal.sees_all:
        raise Problem(
            ProblemType.FORBIDDEN,
            f"{what} needs an access token for all queues. That of {principal.name} is for "
            f"{', '.join(principal.queues)}.",
        )


def require_named_queue(principal: Principal, queue: str | None) -> None:
    """Refuse a list of all queues to a caller that may use only some."""
    if queue is not None:
        principal.require_queue(queue)
    elif not principal.sees_all:
        raise Problem(
            ProblemType.FORBIDDEN,
            f"The access token of {principal.name} is for {', '.join(principal.queues)}: name one "
            "queue, as in ?queue=NAME.",
        )


async def visible_page(
    principal: Principal,
    read: Callable[[str, int], Awaitable[Sequence[T]]],
    key_of: Callable[[T], str],
    may_see: Callable[[T], bool],
    *,
    after: str,
    limit: int,
) -> tuple[Sequence[T], str | None]:
    """A page of what the caller may see, and the key after which the next one begins; None at the
    end. That key is always of something that the caller sees: keys of others tell their names."""
    length = limit if principal.sees_all else max(limit, _READ_LENGTH)
    visible: list[T] = []
    while True:
        found = await read(after, length)
        visible += filter(may_see, found)
        if len(visible) >= limit:
            return visible[:limit], key_of(visible[limit - 1])
        if len(found) < length:
            return visible, None
        after = key_of(found[-1])


async def may_see_job(call: ApiRequest, id: str) -> bool:
    """Whether the caller may know a job that need not exist any more."""
    if call.principal.sees_all:
        return True
    (record,) = await call.gateway.call(call.gateway.app.engine.get, [id])
    return record is not None and call.principal.may_use(queue_of(record.queue))


async def shown_duplicate(call: ApiRequest, error: DuplicateJob) -> Exception:
    """The error about a unique key as the caller may see it: without a job of another queue."""
    return error if await may_see_job(call, error.job_id) else foreign_duplicate()


def foreign_duplicate() -> Problem:
    return Problem(
        ProblemType.DUPLICATE,
        "A job of a queue that the access token is not for holds the unique key, so that nothing "
        "was changed. Wait until that job has ended.",
    )


async def find_job(call: ApiRequest, id: str) -> JobRecord:
    """Read a job that the caller may see."""
    (record,) = await call.gateway.call(call.gateway.app.engine.get, [id])
    if record is None or not call.principal.may_use(queue_of(record.queue)):
        raise no_such_job(id)
    return record


async def check_job(call: ApiRequest, id: str) -> None:
    """Check that the caller may see a job, which need not exist. A caller for all queues may see
    every job, so that nothing is read."""
    if not call.principal.sees_all:
        await find_job(call, id)


def no_such_job(id: str) -> Problem:
    return Problem(
        ProblemType.NOT_FOUND,
        f"There is no job {id}. Ended jobs are removed after their retention time.",
    )

"""Bulk operations, `app.operations`: change all jobs that match a filter, and survive a crash.

1. `OperationChoice` chooses the jobs, and `Operation` describes an operation at one instant.
2. `Operations` starts, lists, reads, pauses, resumes and stops operations, which are documents of
   the engine. It counts in advance how many jobs one would change.

`OperationRunner` does the work, in any process and in bounded steps. It stores the ids of a page
before it changes them, so that another runner can take over. Jobs that die or are enqueued after
the start are left alone.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from windlass.access_tokens import read_scopes
from windlass.client.options import read_queue
from windlass.core.durations import Duration, instant, instant_ms, to_ms
from windlass.core.foreign_words import refuse_unknown_keywords
from windlass.core.headers import read_headers
from windlass.core.ids import random_digits
from windlass.core.quantities import per_second
from windlass.core.states import State
from windlass.dead_groups import GroupChoice, count_jobs
from windlass.dead_letters import PAGE, read_task
from windlass.engine.clock import read_clock
from windlass.engine.contract import Document, DocumentChange, Engine
from windlass.errors import OperationRefused
from windlass.operations.control import (
    pause_operation,
    require_room,
    resume_operation,
    stop_operation,
)
from windlass.operations.documents import (
    KIND,
    decode_record,
    get_operation,
    new_mark,
    operation_id,
    readable_record,
)
from windlass.operations.pages import (
    CANCELLABLE,
    OperationAction,
    OperationFilter,
    OperationRecord,
    OperationState,
    read_page,
)
from windlass.operations.replay import DEFAULT_STOP_AFTER, WINDOW, ReplayWatch
from windlass.settings import matches
from windlass.task import Task
from windlass.twins import Steps, act, twins

if TYPE_CHECKING:
    from windlass.app import Windlass

#: The lowest rate, in jobs per second: a slower operation would hardly ever end.
MIN_RATE: Final = 1 / 3600
#: A preview counts exactly up to this number, and at most for this many seconds.
MAX_PREVIEW: Final = 10_000
PREVIEW_S: Final = 2.0
#: The jobs of an operation that starts are counted for at most this many seconds.
TOTAL_S: Final = 0.5


class OperationChoice(TypedDict, total=False):
    """Filter of the jobs to change: a job must match all given parts."""

    task: str | Task[..., Any] | None
    queue: str | None
    fingerprint: str | None  # of dead jobs
    release: str | None  # of dead jobs: the release in which they died
    older_than: Duration | None  # dead for longer than this
    newer_than: Duration | None
    state: State | str | None  # of jobs to cancel
    since: datetime | Duration | None  # enqueued at this instant or later, or at most this long ago
    until: datetime | Duration | None
    headers: Mapping[str, str] | None
    everything: bool  # all jobs: instead of a filter


_DEAD_KEYWORDS: Final = (
    *("task", "queue", "fingerprint", "release", "older_than", "newer_than", "everything"),
)
_KEYWORDS: Final[Mapping[OperationAction, Sequence[str]]] = {
    OperationAction.DEAD_RETRY: _DEAD_KEYWORDS,
    OperationAction.DEAD_DISCARD: _DEAD_KEYWORDS,
    OperationAction.JOBS_CANCEL: (
        *("task", "queue", "state", "since", "until", "headers", "everything"),
    ),
    OperationAction.QUEUE_PURGE: ("queue",),
}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk operation at one instant."""

    id: str
    action: str
    state: str
    filter: Mapping[str, Any]
    actor: str
    rate: float | None
    total: int | None  # the jobs that matched at the start; None if that was not counted
    done: int
    refused: int
    failed: int
    stop_after: int  # of a retry: it pauses when this many of the last 100 jobs failed again
    failed_again: int  # retried jobs that were seen to fail again
    created_at: datetime
    updated_at: datetime
    cursor: str | None
    owner: str
    owner_until: datetime | None
    reason: str  # why it pauses
    error: str

    @classmethod
    def of(cls, id: str, record: OperationRecord) -> Operation:
        return cls(
            id=id,
            action=str(record.action),
            state=str(record.state),
            filter=msgspec.to_builtins(record.filter),
            actor=record.actor,
            rate=record.rate,
            total=record.total,
            done=record.counts.done,
            refused=record.counts.refused,
            failed=record.counts.failed,
            stop_after=record.replay.stop_after,
            failed_again=record.replay.failed_again,
            created_at=instant(record.created_ms),
            updated_at=instant(record.updated_ms),
            cursor=record.cursor,
            owner=record.owner,
            owner_until=instant(record.owner_until_ms or None),
            reason=record.reason,
            error=record.error,
        )

    @property
    def is_running(self) -> bool:
        return self.state == OperationState.RUNNING

    @property
    def is_paused(self) -> bool:
        return self.state == OperationState.PAUSED


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs an operation would change: exactly, or at least."""

    count: int
    is_exact: bool


# --------------------------------------------------------------------------------------- interface


class Operations:
    """The bulk operations of an engine."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    @twins
    def start(
        self,
        action: OperationAction | str,
        *,
        actor: str,
        rate: str | float | None = None,
        stop_after: int | None = None,
        scopes: Sequence[str] = (),
        **choice: Unpack[OperationChoice],
    ) -> Steps[Operation]:
        """Store an operation. An `OperationRunner` in any process does it.

        `dead.retry` and `dead.discard` choose dead jobs by task, queue, fingerprint, release,
        older_than and newer_than; `jobs.cancel` chooses jobs by task, queue, state, since, until
        and headers; everything=True chooses all. `queue.purge` takes a queue. `scopes` are names or
        patterns of queues: other jobs are left alone. A `rate` such as "100/s" limits the speed;
        the lowest is one per hour. A retry pauses by itself when `stop_after` of the last 100
        retried jobs have failed again: 10 unless given, 0 for never. Raises `TooManyOperations` if
        100 operations are running."""
        kind = _read_action(action)
        per_s = None if rate is None else _read_rate(rate)
        failures = _read_stop_after(kind, stop_after)
        _check(kind, choice, scopes)
        yield from act(require_room)
        record = yield from act(_new_record, kind, choice, read_scopes(scopes), actor)
        counted = yield from self._count(record, choice, TOTAL_S)
        record = msgspec.structs.replace(
            record,
            rate=per_s,
            replay=ReplayWatch(stop_after=failures),
            total=counted.count if counted.is_exact else None,
        )
        return (yield from act(_start, record))

    astart = start.awaited

    @twins
    def preview(
        self,
        action: OperationAction | str,
        *,
        scopes: Sequence[str] = (),
        **choice: Unpack[OperationChoice],
    ) -> Steps[Preview]:
        """Count the jobs that an operation would change now, exactly up to 10,000 and for at most
        two seconds."""
        kind = _read_action(action)
        _check(kind, choice, scopes)
        record = yield from act(_new_record, kind, choice, read_scopes(scopes), "")
        return (yield from self._count(record, choice, PREVIEW_S))

    apreview = preview.awaited

    def _count(
        self, record: OperationRecord, choice: OperationChoice, most_s: float
    ) -> Steps[Preview]:
        if _is_counted(choice):
            return Preview(count=(yield from act(_counted, record)), is_exact=True)
        if _is_grouped(record.action, choice):
            known = yield from act(_counted_in_groups, record)
            if known is not None:
                return Preview(count=known, is_exact=True)
        number, ends_s = 0, time.monotonic() + most_s
        while not record.is_read and record.stage < len(CANCELLABLE):
            if number > MAX_PREVIEW or time.monotonic() > ends_s:
                return Preview(count=min(number, MAX_PREVIEW), is_exact=False)
            page = yield from act(read_page, record, PAGE)
            number += len(page.found)
            record = page.rest
        return Preview(count=min(number, MAX_PREVIEW), is_exact=number <= MAX_PREVIEW)

    @twins
    def get(self, id: str) -> Steps[Operation]:
        """One operation. Raises `OperationNotFound`."""
        document = yield from act(get_operation, id)
        return Operation.of(id, decode_record(document))

    aget = get.awaited

    @twins
    def list(self, *, after: str = "", limit: int = 100) -> Steps[builtins.list[Operation]]:
        """Operations, the newest first; `after` is the id of the last one of the page before."""
        documents = yield from act(_list, after, limit)
        records = ((one.key, readable_record(one)) for one in documents)
        return [Operation.of(id, record) for id, record in records if record is not None]

    alist = list.awaited

    @twins
    def pause(self, id: str, *, actor: str) -> Steps[Operation]:
        """Let a running operation wait, after the step that its runner is in. One that does not run
        stays as it is. A paused operation is kept for 7 days."""
        record = yield from act(pause_operation, id, f"paused by {actor}")
        return Operation.of(id, record)

    apause = pause.awaited

    @twins
    def resume(self, id: str) -> Steps[Operation]:
        """Continue a paused operation where it was. Failures before the pause do not stop it again.
        Raises `OperationRefused` for an operation that has ended."""
        return Operation.of(id, (yield from act(resume_operation, id)))

    aresume = resume.awaited

    @twins
    def stop(self, id: str) -> Steps[Operation]:
        """Stop an operation for good, also a paused one. The jobs that it has changed stay changed;
        a runner finishes the step that it is in. An operation that has ended stays as it is."""
        return Operation.of(id, (yield from act(stop_operation, id)))

    astop = stop.awaited


def _read_action(action: OperationAction | str) -> OperationAction:
    try:
        return OperationAction(action)
    except ValueError:
        names = ", ".join(OperationAction)
        raise ValueError(f"action must be one of {names}, found {action!r}") from None


def _read_rate(rate: str | float) -> float:
    per_s = per_second(rate, name="rate")
    if per_s < MIN_RATE:
        raise OperationRefused(
            f"rate must be at least one job per hour (1/h), found {rate!r}. Raise the rate, or "
            "start the operation without one."
        )
    return per_s


def _read_stop_after(action: OperationAction, given: int | None) -> int:
    is_retry = action is OperationAction.DEAD_RETRY
    if given is None:
        return DEFAULT_STOP_AFTER if is_retry else 0
    if not is_retry:
        raise TypeError(f"An operation {action} takes no stop_after: only a retry can fail again.")
    if isinstance(given, bool) or not 0 <= given <= WINDOW:
        raise OperationRefused(
            f"stop_after must be a number of failures up to {WINDOW}, or 0 for never, found "
            f"{given!r}. It counts failures among the last {WINDOW} retried jobs."
        )
    return given


def _check(action: OperationAction, choice: OperationChoice, scopes: Sequence[str]) -> None:
    """Refuse a choice that the action does not take, or that names no jobs."""
    refuse_unknown_keywords(f"An operation {action}", choice, _KEYWORDS[action])
    given = {name for name, part in choice.items() if part is not None and name != "everything"}
    if action is OperationAction.QUEUE_PURGE:
        queue = choice.get("queue")
        if queue is None:
            raise TypeError("An operation queue.purge needs a queue.")
        if scopes and not any(matches(scope, queue) for scope in scopes):
            raise ValueError(f"queue must be one of {', '.join(scopes)}, found {queue!r}")
    elif bool(given) == bool(choice.get("everything", False)):
        known = ", ".join(name for name in _KEYWORDS[action] if name != "everything")
        raise TypeError(
            f"Expected which jobs are meant: {known}, or everything=True for all of them; found "
            f"{', '.join(sorted(given)) or 'no choice'} and everything="
            f"{choice.get('everything', False)}."
        )


# ------------------------------------------------------------------------------------- the engine


def _start(engine: Engine, record: OperationRecord) -> Operation:
    id = operation_id(record.created_ms)
    body = msgspec.json.encode(record)
    change = DocumentChange(kind=KIND, key=id, expected="", revision=random_digits(26), body=body)
    engine.change_documents([new_mark(id), change])
    return Operation.of(id, record)


def _new_record(
    engine: Engine,
    action: OperationAction,
    choice: OperationChoice,
    scopes: tuple[str, ...],
    actor: str,
) -> OperationRecord:
    now_ms = read_clock(engine)
    return OperationRecord(
        action=action,
        filter=_filter(action, choice, scopes, now_ms),
        actor=actor,
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def _filter(
    action: OperationAction, choice: OperationChoice, scopes: tuple[str, ...], now_ms: int
) -> OperationFilter:
    queue = choice.get("queue")
    chosen = OperationFilter(
        task=read_task(choice.get("task")),
        queue=None if queue is None else read_queue("queue", queue),
        scopes=scopes,
        fingerprint=choice.get("fingerprint"),
        release=choice.get("release"),
        headers=dict(read_headers(choice.get("headers") or {})),
    )
    if action is OperationAction.JOBS_CANCEL:
        until_ms = _moment("until", choice.get("until"), now_ms)
        last_ms = now_ms + 1
        return msgspec.structs.replace(
            chosen,
            state=_cancellable(choice.get("state")),
            since_ms=_moment("since", choice.get("since"), now_ms),
            until_ms=last_ms if until_ms is None else min(until_ms, last_ms),
        )
    if action is OperationAction.QUEUE_PURGE:
        return chosen
    older, newer = choice.get("older_than"), choice.get("newer_than")
    older_ms = 0 if older is None else to_ms(older, name="older_than") + 1
    return msgspec.structs.replace(
        chosen,
        died_since_ms=None if newer is None else now_ms - to_ms(newer, name="newer_than"),
        died_until_ms=now_ms - older_ms,
    )


def _moment(name: str, given: datetime | Duration | None, now_ms: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, datetime):
        return instant_ms(given, name=name)
    return now_ms - to_ms(given, name=name)


def _cancellable(state: State | str | None) -> State | None:
    if state is None:
        return None
    if state in CANCELLABLE:
        return State(state)
    raise ValueError(f"state must be one of {', '.join(CANCELLABLE)}, found {state!r}")


def _list(engine: Engine, after: str, limit: int) -> Sequence[Document]:
    return engine.list_documents(KIND, after, limit)


def _is_counted(choice: OperationChoice) -> bool:
    """Whether the counters of the engine have the number of jobs."""
    given = {name for name, part in choice.items() if part is not None}
    return given <= {"queue", "state", "everything"}


def _is_grouped(action: OperationAction, choice: OperationChoice) -> bool:
    """Whether the groups of dead jobs have the number of jobs."""
    given = {name for name, part in choice.items() if part is not None}
    is_dead = action in (OperationAction.DEAD_RETRY, OperationAction.DEAD_DISCARD)
    return is_dead and given <= {"task", "queue", "fingerprint", "release"}


def _counted_in_groups(engine: Engine, record: OperationRecord) -> int | None:
    filter = record.filter
    choice = GroupChoice(
        task=filter.task,
        fingerprint=filter.fingerprint,
        release=filter.release,
        may_use=filter.has_queue,
    )
    return count_jobs(engine, choice)


def _counted(engine: Engine, record: OperationRecord) -> int:
    states: Iterable[State] = (State.DEAD,)
    if record.action is OperationAction.QUEUE_PURGE:
        states = (State.READY, State.SCHEDULED, State.RETRYING)
    elif record.action is OperationAction.JOBS_CANCEL:
        states = CANCELLABLE if record.filter.state is None else (record.filter.state,)
    lines = engine.stats().queues.items()
    mine = [counts for line, counts in lines if record.filter.has_queue(line)]
    return sum(counts.get(state, 0) for counts in mine for state in states)

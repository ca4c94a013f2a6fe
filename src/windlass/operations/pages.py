"""The stored form of a bulk operation, and the pages of jobs that it changes.

1. `OperationRecord` is the body of the document of an operation: filter, cursor, counts, and the
   page that is being changed.
2. `read_page` reads the next bounded page of jobs that match the filter.
3. `change_page` changes them. A page that is changed again changes no job twice: a retry names the
   death that was read, and so does a discard; a cancelled job stays cancelled, and a purged job is
   gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.calls.redaction import CallRedactor
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.dead_letter import Unreadable, read_each
from windlass.dead_letters import PAGE, WHOLE_PAGE, discard_letters
from windlass.engine.contract import (
    CancelCode,
    ChangeCode,
    Engine,
    Filter,
    JobChange,
    JobEnd,
    JobRecord,
    Revival,
)
from windlass.job import headers_of
from windlass.operations.replay import ReplayWatch
from windlass.settings import matches

if TYPE_CHECKING:
    from windlass.app import Windlass

log: Final = logging.getLogger("windlass.operations")


class OperationAction(StrEnum):
    """What an operation does with each job."""

    DEAD_RETRY = "dead.retry"
    DEAD_DISCARD = "dead.discard"
    JOBS_CANCEL = "jobs.cancel"
    QUEUE_PURGE = "queue.purge"


class OperationState(StrEnum):
    RUNNING = "running"  # or waits for a runner
    PAUSED = "paused"  # by a caller, or because retried jobs fail again
    FINISHED = "finished"
    STOPPED = "stopped"  # for good, by a caller, before all jobs were changed
    FAILED = "failed"  # by an error, which the operation names


#: The states of jobs that can be cancelled, in the order in which they are read: a ready job that
#: starts meanwhile is met as a running one, and a running one that fails as a retrying one.
CANCELLABLE: Final = (State.READY, State.SCHEDULED, State.RETRYING, State.RUNNING)
_CANCEL_STAGES: Final = (*CANCELLABLE, State.RETRYING)
#: The states that a purge reads. Jobs that become due meanwhile are met as ready ones at the end.
_PURGE_STAGES: Final = (State.READY, State.SCHEDULED, State.RETRYING, State.READY)
#: A purge delays its jobs by this time before it cancels them, so that none starts in between.
_PURGE_DELAY_MS: Final = 60_000


# ---------------------------------------------------------------------------------------- records


class OperationFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs of an operation, by instants of the engine's clock."""

    task: str | None = None
    queue: str | None = None
    scopes: tuple[str, ...] = ()  # only jobs of these queues, names or patterns
    fingerprint: str | None = None
    release: str | None = None
    died_since_ms: int | None = None
    died_until_ms: int | None = None
    state: State | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    headers: dict[str, str] = {}

    @property
    def needs_whole(self) -> bool:
        """Whether a record without its call and its history does not tell if it matches."""
        return bool(self.headers)

    def has_queue(self, line: str) -> bool:
        queue = queue_of(line)
        return (self.queue is None or self.queue == queue) and (
            not self.scopes or any(matches(scope, queue) for scope in self.scopes)
        )

    def had_died(self, record: JobRecord) -> bool:
        died_ms = record.finished_ms or 0
        return (self.died_since_ms is None or died_ms >= self.died_since_ms) and (
            self.died_until_ms is None or died_ms <= self.died_until_ms
        )


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """A job that is being changed, and when it ended."""

    id: str
    finished_ms: int | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs of a page."""

    done: int = 0
    refused: int = 0  # not changed: no longer as they were read, or their unique key is taken
    failed: int = 0  # not changed: unreadable

    def plus(self, other: Counts) -> Counts:
        return Counts(
            done=self.done + other.done,
            refused=self.refused + other.refused,
            failed=self.failed + other.failed,
        )


class OperationRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of the document of an operation."""

    action: OperationAction
    filter: OperationFilter
    actor: str
    created_ms: int
    updated_ms: int
    state: OperationState = OperationState.RUNNING
    rate: float | None = None  # jobs per second
    total: int | None = None  # the jobs that matched at the start, if they could be counted
    counts: Counts = Counts()
    replay: ReplayWatch = ReplayWatch()  # of a retry
    stage: int = 0  # of the states that a cancellation reads
    cursor: str | None = None  # of the page after `pending`
    is_read: bool = False  # there is no page after `pending`
    pending: tuple[Pending, ...] = ()
    is_untouched: bool = False  # no job in `pending` was changed yet
    owner: str = ""  # the runner
    owner_until_ms: int = 0  # another runner may take over after this instant
    reason: str = ""  # why it pauses
    error: str = ""


# ------------------------------------------------------------------------------------------- pages


class OperationPage(msgspec.Struct, frozen=True):
    """The next jobs of an operation. `rest` is the record after this page."""

    found: tuple[Pending, ...]
    unreadable: int
    rest: OperationRecord


def read_page(engine: Engine, record: OperationRecord, limit: int) -> OperationPage:
    """Read the next page. More pages may follow an empty page."""
    filter = record.filter
    limit = min(limit, WHOLE_PAGE if filter.needs_whole else PAGE)
    page = engine.find(_engine_filter(record), record.cursor, limit)
    found = [one for one in page.records if _fits(record, one)]
    unreadable = 0
    if filter.needs_whole:
        whole = read_each(engine, [one.id for one in found])
        unreadable = sum(isinstance(one, Unreadable) for one in whole)
        found = [one for one in _records(whole) if _fits_whole(record, one)]
    return OperationPage(
        tuple(Pending(one.id, one.finished_ms) for one in found),
        unreadable,
        _after(record, page.cursor),
    )


def _records(whole: Iterable[JobRecord | Unreadable | None]) -> Iterator[JobRecord]:
    for one in whole:
        if isinstance(one, Unreadable):
            log.error("skipping unreadable job %s: %s", one.id, one.why)
        elif one is not None:
            yield one


def _engine_filter(record: OperationRecord) -> Filter:
    filter = record.filter
    is_purge = record.action is OperationAction.QUEUE_PURGE
    return Filter(
        state=_stages(record)[record.stage],
        task=filter.task,
        queue=filter.queue,
        fingerprint=filter.fingerprint,
        release=filter.release,
        since_ms=filter.since_ms,
        until_ms=record.created_ms + 1 if is_purge else filter.until_ms,
    )


def _stages(record: OperationRecord) -> Sequence[State]:
    if record.action is OperationAction.QUEUE_PURGE:
        return _PURGE_STAGES
    if record.action is not OperationAction.JOBS_CANCEL:
        return (State.DEAD,)
    return _CANCEL_STAGES if record.filter.state is None else (record.filter.state,)


def _after(record: OperationRecord, cursor: str | None) -> OperationRecord:
    stage = record.stage if cursor is not None else record.stage + 1
    is_read = stage == len(_stages(record))
    return msgspec.structs.replace(record, cursor=cursor, stage=stage, is_read=is_read)


def _fits(record: OperationRecord, found: JobRecord) -> bool:
    if not record.filter.has_queue(found.queue):
        return False
    if record.action is OperationAction.JOBS_CANCEL:
        return not found.cancel_requested
    if record.action is OperationAction.QUEUE_PURGE:
        return True
    return record.filter.had_died(found)


def _fits_whole(record: OperationRecord, found: JobRecord) -> bool:
    """Whether a record matches that was read again, with its call."""
    headers = headers_of(found)
    return all(headers.get(name) == value for name, value in record.filter.headers.items())


def change_page(
    app: Windlass, action: OperationAction, pending: Sequence[Pending], *, is_repeat: bool
) -> Counts:
    """Change jobs of a page. With `is_repeat`, a runner may have changed them before: one that is
    no longer as it was read counts as done."""
    engine = app.engine
    match action:
        case OperationAction.DEAD_RETRY:
            revivals = [Revival(id=one.id, finished_ms=one.finished_ms) for one in pending]
            return _count(engine.revive(revivals), is_repeat)
        case OperationAction.DEAD_DISCARD:
            return _discard(app, pending, is_repeat)
        case OperationAction.JOBS_CANCEL:
            return _count(engine.cancel([one.id for one in pending]), is_repeat)
        case OperationAction.QUEUE_PURGE:
            return _purge(engine, [one.id for one in pending], is_repeat)


def _discard(app: Windlass, pending: Sequence[Pending], is_repeat: bool) -> Counts:
    """Log the calls of dead jobs and remove them. An unreadable job is not removed: its call could
    not be logged."""
    seen = {one.id: one.finished_ms for one in pending}
    whole = read_each(app.engine, list(seen))
    unreadable = sum(isinstance(one, Unreadable) for one in whole)
    found = [one for one in _records(whole) if _is_that_death(one, seen)]
    codes = discard_letters(app.engine, found, CallRedactor.of(app)) if found else []
    codes += [ChangeCode.REFUSED] * (len(pending) - len(found) - unreadable)
    return _count(codes, is_repeat).plus(Counts(failed=unreadable))


def _purge(engine: Engine, ids: Sequence[str], is_repeat: bool) -> Counts:
    """Remove jobs that wait, and free their keys.

    `cancel` alone would also stop a job that has started since it was read, so the jobs are delayed
    first: that is refused for a running job, and a delayed job does not start. If the runner dies
    and the operation is stopped, the delay passes and the jobs run."""
    delays = [JobChange(id=id, run_in_ms=_PURGE_DELAY_MS) for id in ids]
    codes = engine.change_jobs(delays)
    own = {id for id, code in zip(ids, codes, strict=True) if code is ChangeCode.DONE}
    if own:
        engine.cancel(list(own))
    if is_repeat:
        own.update(ids)
    ends = dict(zip(ids, engine.ends(ids), strict=True))
    seen = {id: ended_ms for id in own if (ended_ms := _cancelled_ms(ends[id])) is not None}
    removed = engine.discard(list(seen), seen).count(ChangeCode.DONE) if seen else 0
    done = removed + sum(ends[id] is None for id in own)
    return Counts(done=done, refused=len(ids) - done)


def _cancelled_ms(end: JobEnd | None) -> int | None:
    return end.finished_ms if end is not None and end.state is State.CANCELLED else None


def _is_that_death(record: JobRecord, seen: Mapping[str, int | None]) -> bool:
    return record.state is State.DEAD and record.finished_ms == seen[record.id]


def _count(codes: Sequence[ChangeCode] | Sequence[CancelCode], is_repeat: bool) -> Counts:
    done = sum(_is_done(code, is_repeat) for code in codes)
    return Counts(done=done, refused=len(codes) - done)


def _is_done(code: ChangeCode | CancelCode, is_repeat: bool) -> bool:
    if code in (ChangeCode.DONE, CancelCode.CANCELLED, CancelCode.REQUESTED):
        return True
    return is_repeat and code is not ChangeCode.DUPLICATE

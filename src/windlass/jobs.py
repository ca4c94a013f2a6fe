"""The jobs of an app, `app.jobs`, and their numbers, `app.stats()`.

1. `JobChoice` is a filter of jobs. Ages are by the engine's clock.
2. `Jobs` lists jobs state by state, a bounded page at a time, reads many jobs by id, and explains
   why one does not run.
3. `Jobs.editing`, `running_now` and `moving` change one job, for the methods of `Job`; `changing`
   changes many in bounded steps, for the command line.
4. `read_stats` reads the number of jobs by queue and state.

The cursor of a list is a place in an index of jobs. While jobs come and go, a job that stays as it
is is listed once; a job that changes its state meanwhile may be listed twice, or not at all.
"""

from __future__ import annotations

import builtins
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from windlass.calls.edit import edited_payload, require_task
from windlass.client.options import read_queue
from windlass.core.durations import Duration, instant_ms, to_ms
from windlass.core.foreign_words import refuse_unknown_keywords
from windlass.core.headers import read_headers
from windlass.core.ids import check_id
from windlass.core.queues.labels import labels_of, line_of, queue_of
from windlass.core.states import Hold, State
from windlass.dead_letter import read_each
from windlass.dead_letters import Changed, RetryStep, read_task
from windlass.engine.contract import (
    BATCH,
    ChangeCode,
    Engine,
    Filter,
    JobChange,
    JobRecord,
    Revival,
)
from windlass.errors import DuplicateJob, JobNotFound
from windlass.explanation import Explanation, explain, read_surroundings
from windlass.job import Job, JobInfo, get, headers_of, holders, key_of
from windlass.task import Task
from windlass.twins import Steps, act, arun, ask, run, twins, verb

if TYPE_CHECKING:
    from windlass.app import Windlass

#: Records per page, without and with payloads and histories.
PAGE: Final = 200
WHOLE_PAGE: Final = 50
#: The states in which a job waits, and can be changed.
CHANGEABLE: Final = (State.READY, State.SCHEDULED, State.RETRYING)
#: The states from which a job becomes ready again when it is edited.
REVIVABLE: Final = (State.DEAD, State.CANCELLED)

#: Names for other parts of windlass, which `dir(app.jobs)` leaves out.
_INTERNAL: Final = frozenset({"changing", "editing", "moving", "running_now"})

log: Final = logging.getLogger("windlass.jobs")


# ---------------------------------------------------------------------------------------- choosing


class JobChoice(TypedDict, total=False):
    """Filter of jobs: a job must match all given parts."""

    state: State | str | None
    task: str | Task[..., Any] | None  # a name as the jobs have it, never the end of one
    queue: str | None
    since: datetime | Duration | None  # enqueued at this instant or later, or at most this long ago
    until: datetime | Duration | None  # enqueued before this instant, or longer ago
    headers: Mapping[str, str] | None  # each with this value; reads the calls, which takes longer
    limit: int | None  # at most this many, the first of the list


class _Search(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of jobs, and the cursor of the next page."""

    filter: Filter
    since_age_ms: int | None = None
    until_age_ms: int | None = None
    headers: Mapping[str, str] = {}
    left: int | None = None  # at most this many more
    cursor: str | None = None

    def fits(self, record: JobRecord) -> bool:
        """Whether a job matches that was read again, with its call."""
        if self.filter.state not in (None, record.state):
            return False
        headers = headers_of(record)
        return all(headers.get(name) == value for name, value in self.headers.items())


class _JobPage(msgspec.Struct, frozen=True):
    records: tuple[JobRecord, ...]
    rest: _Search | None  # None after the last page


def _search(choice: JobChoice) -> _Search:
    refuse_unknown_keywords("This method of app.jobs", choice, JobChoice.__annotations__)
    state, queue, limit = choice.get("state"), choice.get("queue"), choice.get("limit")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(
            f"limit must be a whole number of at least 1, or None for all jobs, found {limit!r}"
        )
    since_ms, since_age_ms = _moment("since", choice.get("since"))
    until_ms, until_age_ms = _moment("until", choice.get("until"))
    if _is_empty(since_ms, until_ms) or _is_empty(until_age_ms, since_age_ms):
        raise ValueError(
            "since is later than until, and no job can match: swap them. An age counts back from "
            'now, so that "1h" is before "10s"'
        )
    return _Search(
        filter=Filter(
            state=None if state is None else _state(state),
            queue=None if queue is None else read_queue("queue", queue),
            task=read_task(choice.get("task")),
            since_ms=since_ms,
            until_ms=until_ms,
        ),
        since_age_ms=since_age_ms,
        until_age_ms=until_age_ms,
        headers=read_headers(choice.get("headers") or {}),
        left=limit,
    )


def _state(state: str) -> State:
    try:
        return State(state)
    except ValueError:
        raise ValueError(f"state must be one of {', '.join(State)}, found {state!r}") from None


def _moment(name: str, given: datetime | Duration | None) -> tuple[int | None, int | None]:
    """An instant, or an age."""
    if given is None:
        return None, None
    if isinstance(given, datetime):
        return instant_ms(given, name=name), None
    try:
        return None, to_ms(given, name=name)
    except (TypeError, ValueError) as error:
        error.add_note(f"{name} may also be a datetime with a time zone.")
        raise


def _is_empty(begin_ms: int | None, end_ms: int | None) -> bool:
    """Whether nothing is between two known points."""
    return begin_ms is not None and end_ms is not None and begin_ms > end_ms


def _read(engine: Engine, search: _Search) -> _JobPage:
    """Read the next page. An empty page need not be the last one."""
    search = _dated(engine, search)
    size = WHOLE_PAGE if search.headers else PAGE
    if search.left is not None and not search.headers:
        size = min(size, search.left)
    page = engine.find(search.filter, search.cursor, size)
    records: Sequence[JobRecord] = page.records
    if search.headers:
        whole = read_each(engine, [record.id for record in records])
        records = [one for one in whole if isinstance(one, JobRecord) and search.fits(one)]
    records = tuple(records[: search.left])
    left = None if search.left is None else search.left - len(records)
    if page.cursor is None or left == 0:
        return _JobPage(records, None)
    return _JobPage(records, msgspec.structs.replace(search, cursor=page.cursor, left=left))


def _dated(engine: Engine, search: _Search) -> _Search:
    """The search with instants in place of ages."""
    since_age_ms, until_age_ms = search.since_age_ms, search.until_age_ms
    if since_age_ms is None and until_age_ms is None:
        return search
    now_ms, filter = engine.due_schedules(limit=1).now_ms, search.filter
    if since_age_ms is not None:
        filter = msgspec.structs.replace(filter, since_ms=now_ms - since_age_ms)
    if until_age_ms is not None:
        filter = msgspec.structs.replace(filter, until_ms=now_ms - until_age_ms)
    return msgspec.structs.replace(search, filter=filter, since_age_ms=None, until_age_ms=None)


class Jobs:
    """The jobs of an app."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    def __dir__(self) -> Iterable[str]:
        """The public names, for a shell that completes them."""
        return [name for name in super().__dir__() if name[0] != "_" and name not in _INTERNAL]

    def list(self, **choice: Unpack[JobChoice]) -> Iterator[JobInfo]:
        """Jobs, read lazily a page at a time: first running jobs, then ready ones in the order in
        which they start, then scheduled and retrying ones by due time, then dead, cancelled and
        succeeded ones, each the latest first. A job that changes its state meanwhile may be listed
        twice, or not at all.

        `since` and `until` are datetimes or ages such as "1h". Errors are not read, and headers
        only when `headers` is given: `get_many` reads all."""
        return self._list(_search(choice))

    def alist(self, **choice: Unpack[JobChoice]) -> AsyncIterator[JobInfo]:
        """`list`, for coroutines."""
        return self._alist(_search(choice))

    @twins
    def get_many(self, ids: Iterable[str | Job[Any]]) -> Steps[builtins.list[JobInfo | None]]:
        """The jobs with these ids, in this order; None for an unknown one. A `Job` is taken for
        its id."""
        if isinstance(ids, str):
            raise TypeError(f"get_many takes a list of ids, found {ids!r}: write [{ids!r}]")
        wanted = [one.id if isinstance(one, Job) else check_id(one) for one in ids]
        found: builtins.list[JobInfo | None] = []
        for at in range(0, len(wanted), BATCH):
            records = yield from act(_get, wanted[at : at + BATCH])
            found += [None if one is None else self._info(one) for one in records]
        return found

    aget_many = get_many.awaited

    @twins
    def why(self, id: str | Job[Any]) -> Steps[Explanation]:
        """Why a job does not run: what holds it, in the order in which to resolve it, each with a
        sentence and a command. A job that runs or has ended says so.

        The cost does not grow with the number of jobs: the place in line is exact up to 500 jobs
        ahead. Raises `JobNotFound`."""
        record = yield from self._record(id.id if isinstance(id, Job) else check_id(id))
        around = yield from act(read_surroundings, record)
        return explain(self._app.packing.reveal_failures(record), around)

    awhy = why.awaited

    # ------------------------------------------------------------------------------- changing

    def editing(
        self, id: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, unchecked: bool = False
    ) -> Steps[bool]:
        """`Job.edit` as steps; with `unchecked`, for an operator who knows that the call fits."""
        app = self._app
        while True:
            record = yield from self._record(id)
            if record.state not in (*CHANGEABLE, *REVIVABLE):
                return False
            task = None if unchecked else require_task(app, record)
            payload = edited_payload(app, record, task, args, kwargs, log)
            if record.state in REVIVABLE:
                revival = Revival(id=id, finished_ms=record.finished_ms, payload=payload)
                code = yield from ask(_revive, revival)
            else:
                # A worker may accept the new call: let one try before the rest of the hold ends.
                change = JobChange(
                    id=id,
                    seen=record.revision,
                    seen_payload=record.payload,
                    payload=payload,
                    run_in_ms=0 if record.hold is Hold.UNROUTABLE else None,
                )
                code = yield from ask(_change, change)
            if code is ChangeCode.DONE:
                return True
            if code is ChangeCode.DUPLICATE:
                holder = yield from ask(holders, key_of(record))
                raise DuplicateJob(record.task, holder or "that has ended since", id)
            # The job was changed or removed since it was read: read it again.

    def running_now(self, id: str) -> Steps[bool]:
        """`Job.run_now` as steps."""
        code = yield from ask(_change, JobChange(id=id, run_in_ms=0))
        if code is ChangeCode.UNKNOWN:
            raise JobNotFound(id, self._app.engine.location)
        return code is ChangeCode.DONE

    def moving(self, id: str, queue: str) -> Steps[bool]:
        """`Job.move` as steps."""
        queue = read_queue("queue", queue)
        while True:
            record = yield from self._record(id)
            if record.state not in CHANGEABLE:
                return False
            code = yield from ask(_change, to_queue(record, queue))
            if code is ChangeCode.DONE:
                return True

    def changing(
        self, change_of: Callable[[JobRecord], JobChange | None], **choice: Unpack[JobChoice]
    ) -> Iterator[RetryStep]:
        """Change the chosen jobs, a page at a time, for a caller that shows progress or stops in
        between. Jobs for which `change_of` returns None stay as they are."""
        changed = Changed()
        rest: _Search | None = _search(choice)
        while rest is not None:
            page = run(self._app, act(_read, rest))
            found = [change_of(record) for record in page.records if record.state in CHANGEABLE]
            codes = run(self._app, act(_change_all, [one for one in found if one is not None]))
            changed = changed.plus(codes)
            yield RetryStep(pause_s=0, changed=changed)
            rest = page.rest

    # --------------------------------------------------------------------------------- inside

    def _record(self, id: str) -> Steps[JobRecord]:
        record = yield from ask(get, id)
        if record is None:
            raise JobNotFound(id, self._app.engine.location)
        return record

    def _list(self, search: _Search) -> Iterator[JobInfo]:
        rest: _Search | None = search
        while rest is not None:
            page = run(self._app, act(_read, rest))
            yield from map(self._info, page.records)
            rest = page.rest

    async def _alist(self, search: _Search) -> AsyncIterator[JobInfo]:
        rest: _Search | None = search
        while rest is not None:
            page = await arun(self._app, act(_read, rest))
            for record in page.records:
                yield self._info(record)
            rest = page.rest

    def _info(self, record: JobRecord) -> JobInfo:
        return JobInfo.of(self._app.packing.reveal_failures(record))


def now(record: JobRecord) -> JobChange | None:
    """The change that lets a job run now; None for a ready one."""
    return None if record.state is State.READY else JobChange(id=record.id, run_in_ms=0)


def to_queue(record: JobRecord, queue: str) -> JobChange:
    """The change that moves a job to another queue. The job still requires its labels."""
    line = line_of(queue, labels_of(record.queue))
    return JobChange(id=record.id, seen=record.revision, queue=line)


_revive = verb(Engine.revive)
_change = verb(Engine.change_jobs)


def _change_all(engine: Engine, changes: Sequence[JobChange]) -> Sequence[ChangeCode]:
    return engine.change_jobs(changes) if changes else ()


def _get(engine: Engine, ids: Sequence[str]) -> Sequence[JobRecord | None]:
    return engine.get(ids)


# ---------------------------------------------------------------------------------------- counting


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue at one instant."""

    jobs: Mapping[State, int]  # the number of jobs by state, without zeros
    oldest_ready: timedelta | None  # how long its next job has been ready


class AppStats(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of an app at one instant, as the engine counts them."""

    queues: Mapping[str, QueueStats]
    totals: Mapping[str, int]  # what has happened so far, such as "enqueued"

    @property
    def jobs(self) -> Mapping[State, int]:
        """The number of jobs by state in all queues, without zeros."""
        return _sum(queue.jobs for queue in self.queues.values())


def read_stats(engine: Engine) -> AppStats:
    stats = engine.stats()
    lines: dict[str, list[str]] = {}
    for line in sorted(stats.queues):
        lines.setdefault(queue_of(line), []).append(line)
    return AppStats(
        queues={
            queue: QueueStats(
                jobs=_sum(stats.queues[line] for line in own),
                oldest_ready=_longest(
                    [stats.oldest_ready_ms[line] for line in own if line in stats.oldest_ready_ms]
                ),
            )
            for queue, own in lines.items()
        },
        totals=stats.totals,
    )


def _sum(counts: Iterable[Mapping[State, int]]) -> Mapping[State, int]:
    jobs: Counter[State] = Counter()
    for states in counts:
        jobs.update(states)
    return {state: jobs[state] for state in State if jobs[state]}


def _longest(ages_ms: Sequence[int]) -> timedelta | None:
    return timedelta(milliseconds=max(ages_ms)) if ages_ms else None

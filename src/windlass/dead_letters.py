"""The dead letters of an app, `app.dead`: list, group, retry, edit, discard.

1. `Selection` is a filter of dead jobs. Ages are by the engine's clock.
2. `DeadLetters` reads dead jobs latest first, a bounded page at a time, and changes them in bounded
   steps. While other jobs die or are removed, no job that stays dead is skipped or read twice. A
   job that dies again is later than all jobs that are still to be read. A retry applies only to the
   death that was read, so one selection never retries a job twice.

Every method has an async twin, which calls the engine through the app's I/O thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from windlass.calls.edit import edited_payload, require_task
from windlass.calls.redaction import CallRedactor
from windlass.client.payloads import Packing
from windlass.core.durations import Duration, to_ms
from windlass.core.foreign_words import refuse_unknown_keywords
from windlass.core.quantities import Pace, per_second
from windlass.core.states import State
from windlass.dead_groups import (
    GroupChoice,
    LabelPage,
    add_letter,
    count_jobs,
    label_page,
    largest_first,
    read_groups,
)
from windlass.dead_letter import (
    DeadGroup,
    DeadLetter,
    Unreadable,
    log_summary,
    read_each,
)
from windlass.engine.contract import (
    ChangeCode,
    Engine,
    Filter,
    JobRecord,
    Revival,
)
from windlass.errors import DuplicateJob, JobNotFound, NotDead
from windlass.job import get, holders, key_of
from windlass.task import Task
from windlass.twins import Pause, Steps, act, arun, ask, run, twins, verb

if TYPE_CHECKING:
    from windlass.app import Windlass

#: Records per page: without payloads and histories, and with them.
PAGE: Final = 200
WHOLE_PAGE: Final = 50

#: Names for other parts of windlass, which `dir(app.dead)` leaves out.
_INTERNAL: Final = frozenset({"discarding", "replacing_call", "retrying"})

log: Final = logging.getLogger("windlass.dead_letters")


# ---------------------------------------------------------------------------------------- choosing


class Choice(TypedDict, total=False):
    """Filter of dead jobs: a job must match all given parts."""

    task: str | Task[..., Any]  # a name as the jobs have it, never the end of one
    fingerprint: str
    release: str  # of the worker that reported the death; empty for none
    older_than: Duration  # dead for longer than this
    newer_than: Duration


class Target(Choice, total=False):
    """Filter of the dead jobs to change. `everything=True` selects all dead jobs."""

    everything: bool


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of dead jobs, and the cursor of the next page. `ids` selects only these jobs."""

    ids: tuple[str, ...] = ()
    task: str | None = None
    fingerprint: str | None = None
    release: str | None = None
    older_than_ms: int | None = None
    newer_than_ms: int | None = None
    whole: bool = False  # with payloads and histories
    now_ms: int | None = None  # engine time when reading started
    cursor: str | None = None

    @property
    def filter(self) -> Filter:
        """The part of the selection that an index of the engine has."""
        return Filter(
            state=State.DEAD,
            task=self.task,
            fingerprint=self.fingerprint,
            release=self.release,
        )

    @property
    def has_age(self) -> bool:
        return self.older_than_ms is not None or self.newer_than_ms is not None

    def fits_age(self, record: JobRecord, now_ms: int) -> bool:
        age_ms = now_ms - (record.finished_ms or 0)
        return (self.older_than_ms is None or age_ms > self.older_than_ms) and (
            self.newer_than_ms is None or age_ms <= self.newer_than_ms
        )


def target(*ids: str, **choice: Unpack[Target]) -> Selection:
    """Check the choice of jobs to change: ids, a filter, or everything. Returns the selection."""
    everything = choice.pop("everything", False)
    if bool(ids) + bool(choice) + everything != 1:
        raise TypeError(
            "Expected which dead jobs are meant: their ids, or task, fingerprint, release, "
            "older_than or newer_than, or everything=True for all of them; found "
            f"{len(ids)} ids, {', '.join(choice) or 'no choice'} and everything={everything}."
        )
    return msgspec.structs.replace(select(choice), ids=tuple(dict.fromkeys(ids)))


def select(choice: Choice, *, whole: bool = False) -> Selection:
    refuse_unknown_keywords("This method of app.dead", choice, Choice.__annotations__)
    older, newer = choice.get("older_than"), choice.get("newer_than")
    return Selection(
        task=read_task(choice.get("task")),
        fingerprint=choice.get("fingerprint"),
        release=choice.get("release"),
        older_than_ms=None if older is None else to_ms(older, name="older_than"),
        newer_than_ms=None if newer is None else to_ms(newer, name="newer_than"),
        whole=whole,
    )


def read_task(task: object) -> str | None:
    """The name of a task that is given as its name or as the task."""
    if isinstance(task, Task):
        return task.name
    if task is None or isinstance(task, str):
        return task
    raise TypeError(f"task must be a task or its name, found {task!r}")


class _LetterPage(msgspec.Struct, frozen=True):
    records: tuple[JobRecord, ...]
    rest: Selection | None  # None after the last page


def _read(engine: Engine, chosen: Selection) -> _LetterPage:
    """Read the next page. More pages may follow an empty page."""
    if chosen.ids:
        here, later = chosen.ids[:WHOLE_PAGE], chosen.ids[WHOLE_PAGE:]
        others = msgspec.structs.replace(chosen, ids=later) if later else None
        return _LetterPage(tuple(_dead(engine, here)), others)
    now_ms = engine.due_schedules(limit=1).now_ms if chosen.now_ms is None else chosen.now_ms
    limit = WHOLE_PAGE if chosen.whole else PAGE
    page = engine.find(chosen.filter, chosen.cursor, limit)
    found = [record for record in page.records if chosen.fits_age(record, now_ms)]
    if chosen.whole:
        found = _dead(engine, [record.id for record in found])
    if page.cursor is None:
        return _LetterPage(tuple(found), None)
    rest = msgspec.structs.replace(chosen, cursor=page.cursor, now_ms=now_ms)
    return _LetterPage(tuple(found), rest)


def _dead(engine: Engine, ids: Sequence[str]) -> list[JobRecord]:
    """Read the records of those jobs that are still dead and readable."""
    dead = []
    for record in read_each(engine, ids):
        if isinstance(record, Unreadable):
            log.error("skipping unreadable dead job %s: %s", record.id, record.why)
        elif record is not None and record.state is State.DEAD:
            dead.append(record)
    return dead


def _count(engine: Engine) -> int:
    return sum(states.get(State.DEAD, 0) for states in engine.stats().queues.values())


def require_dead(engine: Engine, ids: Sequence[str]) -> None:
    """Raise if an id is not a dead job, before anything is changed."""
    for at in range(0, len(ids), WHOLE_PAGE):
        some = ids[at : at + WHOLE_PAGE]
        for job_id, record in zip(some, engine.get(some), strict=True):
            if record is None:
                raise JobNotFound(job_id, engine.location)
            if record.state is not State.DEAD:
                raise NotDead(job_id, str(record.state))


# ---------------------------------------------------------------------------------------- changing


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a retry or discard changed, and how many it left unchanged."""

    done: int = 0
    duplicates: int = 0  # not changed: another job holds their unique key
    left: int = 0  # not changed: no longer dead, or dead again, since they were read

    def plus(self, codes: Sequence[ChangeCode]) -> Changed:
        done, duplicates = codes.count(ChangeCode.DONE), codes.count(ChangeCode.DUPLICATE)
        return Changed(
            done=self.done + done,
            duplicates=self.duplicates + duplicates,
            left=self.left + len(codes) - done - duplicates,
        )


class RetryStep(Pause, frozen=True, kw_only=True):
    """One step of a retry or discard: the result so far, and the pause before the next step."""

    changed: Changed


def _revive(engine: Engine, records: Sequence[JobRecord]) -> list[ChangeCode]:
    return engine.revive([Revival(id=one.id, finished_ms=one.finished_ms) for one in records])


def discard_letters(
    engine: Engine, records: Sequence[JobRecord], redactor: CallRedactor
) -> list[ChangeCode]:
    """Log dead jobs, then discard them: a crash in between loses no log line."""
    for record in records:
        log.warning("discarding %s %s %s %s", *log_summary(record, redactor.redact_text))
    seen = {record.id: record.finished_ms or 0 for record in records}
    return engine.discard([record.id for record in records], seen)


class DeadLetters:
    """The dead jobs of an app."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    def __dir__(self) -> Iterable[str]:
        """The public names, for a shell that completes them."""
        return [name for name in super().__dir__() if name[0] != "_" and name not in _INTERNAL]

    # -------------------------------------------------------------------------------- looking

    @twins
    def get(self, id: str) -> Steps[DeadLetter]:
        """One dead job. Raises `JobNotFound`, and `NotDead` for a job in another state."""
        return self._letter((yield from self._own(id)))

    aget = get.awaited

    def list(self, **choice: Unpack[Choice]) -> Iterator[DeadLetter]:
        """Dead jobs, latest first, read lazily a page at a time."""
        return self._list(select(choice, whole=True))

    def alist(self, **choice: Unpack[Choice]) -> AsyncIterator[DeadLetter]:
        """`list`, for coroutines."""
        return self._alist(select(choice, whole=True))

    def _list(self, chosen: Selection) -> Iterator[DeadLetter]:
        for records in self._pages(chosen):
            yield from map(self._letter, records)

    async def _alist(self, chosen: Selection) -> AsyncIterator[DeadLetter]:
        rest: Selection | None = chosen
        while rest is not None:
            page = await arun(self._app, self._page(rest))
            for record in page.records:
                yield self._letter(record)
            rest = page.rest

    @twins
    def groups(
        self, *, new_since: str | None = None, **choice: Unpack[Choice]
    ) -> Steps[tuple[DeadGroup, ...]]:
        """Dead jobs grouped by task and fingerprint, the largest group first, at most 500.

        The engine has the groups: many dead jobs take no longer than few, except with older_than or
        newer_than, which read all dead jobs. With `new_since`, only groups without a death in that
        release, in one that began before it, or without a release; raises `ReleaseNotFound` if no
        worker of that release has started."""
        chosen = select(choice, whole=True)
        if not chosen.has_age:
            wanted = GroupChoice(
                task=chosen.task,
                fingerprint=chosen.fingerprint,
                release=chosen.release,
                new_since=new_since,
            )
            found = yield from act(read_groups, wanted, self._app.packing)
            return tuple(one for one in found.groups if one.is_new is not False)
        if new_since is not None:
            raise TypeError(
                "Expected new_since without older_than and newer_than, found both. Newness depends "
                "on all jobs of a group."
            )
        groups: dict[tuple[str, str], DeadGroup] = {}
        rest: Selection | None = chosen
        while rest is not None:
            page = yield from self._page(rest)
            for record in page.records:
                add_letter(groups, self._letter(record))
            rest = page.rest
        return largest_first(groups)

    agroups = groups.awaited

    @twins
    def count(self, **choice: Unpack[Choice]) -> Steps[int]:
        """The number of dead jobs. The engine knows it, except with older_than or newer_than, or if
        it has more than 1,000 groups: then jobs are read and counted."""
        if not choice:
            return (yield from act(_count))
        chosen = select(choice)
        if not chosen.has_age:
            wanted = GroupChoice(
                task=chosen.task, fingerprint=chosen.fingerprint, release=chosen.release
            )
            known = yield from act(count_jobs, wanted)
            if known is not None:
                return known
        number = 0
        rest: Selection | None = chosen
        while rest is not None:
            page = yield from self._page(rest)
            number += len(page.records)
            rest = page.rest
        return number

    acount = count.awaited

    @twins
    def regroup(self, *, everything: bool = False) -> Steps[int]:
        """Compute the fingerprints of dead jobs that have none, or with `everything` of all, and
        return how many have changed. Needed only for jobs that an earlier version ended, if their
        failures are encrypted, and after a change of the rule or of the secret."""
        number, cursor = 0, None
        while True:
            page = yield from act(_label, self._app.packing, cursor, everything)
            number, cursor = number + page.number, page.cursor
            if cursor is None:
                return number

    aregroup = regroup.awaited

    # ------------------------------------------------------------------------------- changing

    @twins
    def retry(
        self, *ids: str, rate: str | float | None = None, **choice: Unpack[Target]
    ) -> Steps[Changed]:
        """Make dead jobs ready again with fresh attempts: by id, by filter, or all of them with
        `everything=True`.

        A `rate` such as "100/s" limits the speed. Raises `JobNotFound` or `NotDead` for an id;
        then nothing was changed."""
        chosen = target(*ids, **choice)
        yield from act(require_dead, ids)
        return (yield from self._change(chosen, _revive, rate))

    aretry = retry.awaited

    def retrying(self, chosen: Selection, rate: str | float | None = None) -> Iterator[RetryStep]:
        """`retry` step by step, for a caller that shows progress or may stop early."""
        return self._step_by_step(self._change(chosen, _revive, rate))

    @twins
    def retry_with(self, id: str, *args: Any, **kwargs: Any) -> Steps[None]:
        """Retry one dead job with other arguments, which are checked as at an enqueue.

        The old call becomes an entry of the history. An unknown task is looked for in the modules
        of `include`. Raises `JobNotFound`, `NotDead`, `DuplicateJob`, and `InvalidTask` when the
        task stays unknown; then the job is unchanged."""
        yield from self.replacing_call(id, args, kwargs)

    aretry_with = retry_with.awaited

    def replacing_call(
        self, id: str, args: Sequence[Any], kwargs: dict[str, Any], *, unchecked: bool = False
    ) -> Steps[None]:
        """`retry_with` as steps; with `unchecked`, for an operator who knows that the call fits."""
        record = yield from self._own(id)
        task = None if unchecked else require_task(self._app, record)
        code = yield from ask(_revive_as, self._revival(record, task, args, kwargs))
        if code is ChangeCode.UNKNOWN:
            raise JobNotFound(id, self._app.engine.location)
        if code is ChangeCode.DUPLICATE:
            holder = yield from ask(holders, key_of(record))
            raise DuplicateJob(record.task, holder or "that has ended since", id)
        if code is ChangeCode.REFUSED:
            raise NotDead(id, "no longer the death that was looked at")

    @twins
    def discard(self, *ids: str, **choice: Unpack[Target]) -> Steps[Changed]:
        """Remove dead jobs, chosen as for `retry`. The logger `windlass.dead_letters` first gets a
        line with the call and the reason of each job."""
        chosen = msgspec.structs.replace(target(*ids, **choice), whole=True)
        yield from act(require_dead, ids)
        return (yield from self._change(chosen, self._discard))

    adiscard = discard.awaited

    def discarding(self, chosen: Selection) -> Iterator[RetryStep]:
        """`discard` step by step."""
        whole = msgspec.structs.replace(chosen, whole=True)
        return self._step_by_step(self._change(whole, self._discard))

    # --------------------------------------------------------------------------------- inside

    def _discard(self, engine: Engine, records: Sequence[JobRecord]) -> Sequence[ChangeCode]:
        return discard_letters(engine, records, CallRedactor.of(self._app))

    def _change(
        self,
        chosen: Selection,
        change: Callable[[Engine, Sequence[JobRecord]], Sequence[ChangeCode]],
        rate: str | float | None = None,
    ) -> Steps[Changed]:
        per_s = None if rate is None else per_second(rate, name="rate")
        changed, pace = Changed(), Pace(per_s, time.monotonic())
        rest: Selection | None = chosen
        while rest is not None:
            page = yield from self._page(rest)
            for at in range(0, len(page.records), pace.size):
                some = page.records[at : at + pace.size]
                codes = yield from act(change, some)
                changed = changed.plus(codes)
                pause_s = pace.pause_s(len(some), time.monotonic())
                yield RetryStep(pause_s=pause_s, changed=changed)
            rest = page.rest
        return changed

    def _step_by_step(self, steps: Steps[Changed]) -> Iterator[RetryStep]:
        """Run the steps, and yield each pause to the caller instead of sleeping."""
        with suppress(StopIteration):
            step = next(steps)
            while True:
                answer = (yield step) if isinstance(step, RetryStep) else step.run(self._app)
                step = steps.send(answer)

    def _letter(self, record: JobRecord) -> DeadLetter:
        return DeadLetter.of(record, self._app.packing)

    def _page(self, chosen: Selection) -> Steps[_LetterPage]:
        return (yield from act(_read, chosen))

    def _pages(self, chosen: Selection) -> Iterator[Sequence[JobRecord]]:
        rest: Selection | None = chosen
        while rest is not None:
            page = run(self._app, self._page(rest))
            yield page.records
            rest = page.rest

    def _own(self, id: str) -> Steps[JobRecord]:
        record = yield from ask(get, id)
        if record is None:
            raise JobNotFound(id, self._app.engine.location)
        if record.state is not State.DEAD:
            raise NotDead(id, str(record.state))
        return record

    def _revival(
        self,
        record: JobRecord,
        task: Task[..., Any] | None,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Revival:
        payload = edited_payload(self._app, record, task, args, kwargs, log)
        return Revival(id=record.id, finished_ms=record.finished_ms, payload=payload)


def _label(engine: Engine, packing: Packing, cursor: str | None, everything: bool) -> LabelPage:
    return label_page(engine, packing, cursor, everything=everything)


_revive_as = verb(Engine.revive)

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

from windlass.call_edit import edited_payload, require_task
from windlass.client.payloads import PLAIN, Packing
from windlass.core.durations import Duration, to_ms
from windlass.core.foreign_words import refuse_unknown_keywords
from windlass.core.quantities import Pace, per_second
from windlass.core.states import State
from windlass.dead_letter import (
    DeadGroup,
    DeadLetter,
    Unreadable,
    fingerprint_of,
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
    older_than_ms: int | None = None
    newer_than_ms: int | None = None
    whole: bool = False  # with payloads and histories
    now_ms: int | None = None  # engine time when reading started
    cursor: str | None = None
    packing: Packing = PLAIN  # reads the failures

    def fits_age(self, record: JobRecord, now_ms: int) -> bool:
        age_ms = now_ms - (record.finished_ms or 0)
        return (self.older_than_ms is None or age_ms > self.older_than_ms) and (
            self.newer_than_ms is None or age_ms <= self.newer_than_ms
        )

    def fits_failure(self, record: JobRecord) -> bool:
        """Whether the failure has the selected fingerprint. Failures that this app cannot decrypt
        never match: their texts are unknown."""
        found = fingerprint_of(self.packing.reveal_failures(record))
        return found != "" and found == self.fingerprint


def target(*ids: str, **choice: Unpack[Target]) -> Selection:
    """Check the choice of jobs to change: ids, a filter, or everything. Returns the selection."""
    everything = choice.pop("everything", False)
    if bool(ids) + bool(choice) + everything != 1:
        raise TypeError(
            "Expected which dead jobs are meant: their ids, or task, fingerprint, older_than or "
            "newer_than, or everything=True for all of them; found "
            f"{len(ids)} ids, {', '.join(choice) or 'no choice'} and everything={everything}."
        )
    return msgspec.structs.replace(select(choice), ids=tuple(dict.fromkeys(ids)))


def select(choice: Choice, *, whole: bool = False) -> Selection:
    refuse_unknown_keywords("This method of app.dead", choice, Choice.__annotations__)
    older, newer = choice.get("older_than"), choice.get("newer_than")
    return Selection(
        task=read_task(choice.get("task")),
        fingerprint=choice.get("fingerprint"),
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
    needs_whole = chosen.whole or chosen.fingerprint is not None
    now_ms = engine.due_schedules(limit=1).now_ms if chosen.now_ms is None else chosen.now_ms
    limit = WHOLE_PAGE if needs_whole else PAGE
    page = engine.find(Filter(state=State.DEAD, task=chosen.task), chosen.cursor, limit)
    found = [record for record in page.records if chosen.fits_age(record, now_ms)]
    if needs_whole:
        found = _dead(engine, [record.id for record in found])
    if chosen.fingerprint is not None:
        found = [one for one in found if chosen.fits_failure(one)]
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


def _discard(engine: Engine, records: Sequence[JobRecord]) -> list[ChangeCode]:
    """Log the jobs, then discard them: a crash in between loses no log line."""
    for record in records:
        log.warning("discarding %s %s %s %s", *log_summary(record))
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
    def groups(self, **choice: Unpack[Choice]) -> Steps[tuple[DeadGroup, ...]]:
        """Dead jobs grouped by task and fingerprint, the largest group first."""
        groups: dict[tuple[str, str], DeadGroup] = {}
        rest: Selection | None = select(choice, whole=True)
        while rest is not None:
            page = yield from self._page(rest)
            for record in page.records:
                _add(groups, self._letter(record))
            rest = page.rest
        return tuple(sorted(groups.values(), key=lambda group: (-group.count, group.task)))

    agroups = groups.awaited

    @twins
    def count(self, **choice: Unpack[Choice]) -> Steps[int]:
        """The number of dead jobs. Without a filter the engine knows it; with one, jobs are read
        and counted."""
        if not choice:
            return (yield from act(_count))
        number = 0
        rest: Selection | None = select(choice)
        while rest is not None:
            page = yield from self._page(rest)
            number += len(page.records)
            rest = page.rest
        return number

    acount = count.awaited

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
        return (yield from self._change(chosen, _discard))

    adiscard = discard.awaited

    def discarding(self, chosen: Selection) -> Iterator[RetryStep]:
        """`discard` step by step."""
        whole = msgspec.structs.replace(chosen, whole=True)
        return self._step_by_step(self._change(whole, _discard))

    # --------------------------------------------------------------------------------- inside

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
        chosen = msgspec.structs.replace(chosen, packing=self._app.packing)
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


def _add(groups: dict[tuple[str, str], DeadGroup], letter: DeadLetter) -> None:
    """Add a letter to its group. Letters come latest first, if they are kept for the same time;
    otherwise in the reverse order of the purge."""
    known = groups.get((letter.task, letter.fingerprint))
    if known is None:
        groups[letter.task, letter.fingerprint] = DeadGroup(
            fingerprint=letter.fingerprint,
            task=letter.task,
            count=1,
            first_at=letter.died_at,
            last_at=letter.died_at,
            example=letter.id,
            reason=letter.reason,
            error=letter.error,
        )
        return
    groups[letter.task, letter.fingerprint] = msgspec.structs.replace(
        known,
        count=known.count + 1,
        first_at=min(known.first_at, letter.died_at),
        last_at=max(known.last_at, letter.died_at),
    )


_revive_as = verb(Engine.revive)

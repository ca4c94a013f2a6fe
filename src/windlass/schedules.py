"""The schedules of an app: declared in code, or saved while workers run.

1. `read_declared` checks `@app.task(schedule=...)`, and names each of its schedules.
2. `Schedules` (`app.schedules`) saves, shows, pauses, resumes, runs and removes schedules.
3. `ScheduleInfo` is a schedule at one instant.

A change reads, modifies and writes the schedule with a version check (optimistic locking). When
another process wrote first, as a worker does with every run, the change is retried.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.core.durations import instant, instant_ms
from windlass.core.foreign_words import nearest_dotted
from windlass.core.schedules import state
from windlass.core.schedules.declarations import REMOVABLE_MS, is_abandoned
from windlass.core.schedules.state import Note, ScheduleEntry
from windlass.core.schedules.triggers import All, Cron, Every, Schedule
from windlass.engine import schedule_changes
from windlass.engine.contract import Engine, ScheduleChange, ScheduleRecord
from windlass.errors import (
    DecodeError,
    EngineUnavailable,
    InvalidSchedule,
    ScheduleNotFound,
)
from windlass.job import Job
from windlass.task import Call, Task
from windlass.twins import Steps, act, twins

if TYPE_CHECKING:
    from windlass.app import Windlass

__all__ = ["All", "Cron", "Every", "ScheduleInfo", "Schedules"]

#: How often a conflicting change is tried.
TRIES: Final = 50
#: Schedules per page.
PAGE: Final = 100

_NAME: Final = re.compile(r"[^\s\x00-\x1f]{1,200}")


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at one instant."""

    name: str
    schedule: Cron | Every | None  # None if this version of windlass cannot read it
    task: str
    queue: str
    state: str  # active, paused, abandoned (no worker declares it any more), over, unreadable
    is_declared: bool  # in code, not saved at run time
    next_at: datetime | None  # the next occurrence
    last_at: datetime | None  # the last occurrence that made a job
    last_late_s: float | None  # how long after its time it made the job; None if not known
    skipped: int  # the number of skipped occurrences
    unfinished: tuple[str, ...]  # unfinished jobs of earlier runs, if overlap needs them

    def upcoming(self, number: int) -> list[datetime]:
        """The next occurrences, ignoring a pause of the schedule."""
        if self.next_at is None or self.schedule is None:
            return []
        first_ms = instant_ms(self.next_at, name="next_at")
        return [instant(at_ms) for at_ms in islice(self.schedule.upcoming(first_ms - 1), number)]


Infos = list[ScheduleInfo]


class Schedules:
    """The schedules of one app: `app.schedules`. Every method has an async twin."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    @twins
    def save(self, name: str, call: Call[Any], schedule: Cron | Every) -> Steps[None]:
        """Enqueue this call periodically: `save("digest-42", digest.bind(42), Every("1h"))`.

        Replaces a schedule of the same name: the new schedule continues from the last occurrence,
        and is paused if the old one was. Saving the same schedule again changes nothing."""
        _check_name(name)
        _check_timing(schedule)
        _check_call(call, self._app)
        _check_options(call.task)
        entry = call.task.entry(call.encoded, in_zone(schedule, self._app))
        yield from act(_save, name, entry)

    @twins
    def list(self, *, after: str = "", limit: int | None = None) -> Steps[Infos]:
        """Schedules, sorted by name: all of them, or the first ones whose names sort after
        `after`."""
        return (yield from act(_list, after, limit))

    @twins
    def get(self, name: str) -> Steps[ScheduleInfo]:
        """One schedule. Raises `ScheduleNotFound`."""
        return (yield from act(_get, name))

    @twins
    def pause(self, name: str) -> Steps[None]:
        """Enqueue no more jobs of this schedule until `resume`. Existing jobs stay."""
        yield from act(_pause, name)

    @twins
    def resume(self, name: str) -> Steps[None]:
        """End a pause: continue with the next occurrence, and skip those during the pause."""
        yield from act(_resume, name)

    @twins
    def run_now(self, name: str) -> Steps[Job[Any]]:
        """Enqueue an additional run now, even while the schedule is paused."""
        job_id, task = yield from act(_run_now, name)
        return Job(self._app, job_id, task, created=True, since=time.monotonic())

    @twins
    def remove(self, name: str) -> Steps[None]:
        """Remove the schedule. Existing jobs stay. Refuses a schedule that running workers declare,
        because they would declare it again."""
        yield from act(_remove, name)

    asave, alist, aget = save.awaited, list.awaited, get.awaited
    apause, aresume = pause.awaited, resume.awaited
    arun_now, aremove = run_now.awaited, remove.awaited


# ------------------------------------------------------------------------------------- declaring


def read_declared(
    task: Task[..., Any], schedule: object
) -> Iterator[tuple[str, tuple[Task[..., Any], Cron | Every]]]:
    """The schedules of a task by name: the task's name, with a number if there are several."""
    timings = [schedule] if isinstance(schedule, Schedule) else schedule
    if not isinstance(timings, list | tuple) or not timings:
        instead = f": write Cron({schedule!r})" if isinstance(schedule, str) else ""
        raise TypeError(
            f"schedule must be a Cron, an Every or a list of them, found {schedule!r}{instead}"
        )
    _refuse_arguments(task)
    _check_options(task)
    for number, timing in enumerate(timings, 1):
        name = task.name if isinstance(schedule, Schedule) else f"{task.name}:{number}"
        yield name, (task, _check_timing(timing))


def in_zone(schedule: Cron | Every, app: Windlass) -> Cron | Every:
    return schedule.in_zone(app.settings.timezone) if isinstance(schedule, Cron) else schedule


def _check_timing(timing: object) -> Cron | Every:
    if isinstance(timing, Cron | Every):
        return timing
    raise TypeError(f"schedule must be a Cron or an Every, found {timing!r}")


def _refuse_arguments(task: Task[..., Any]) -> None:
    parameters = list(inspect.signature(task.function).parameters.values())
    for parameter in parameters[1 if task.takes_context else 0 :]:
        is_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not is_many:
            raise InvalidSchedule(
                f"A task with a schedule must not require arguments, and {task.name} requires "
                f"{parameter.name}. Give it a default, or save the schedule with its arguments: "
                f"app.schedules.save(name, {task.__name__}.bind(...), ...)."
            )


def _check_options(task: Task[..., Any]) -> None:
    unfit = task.unfit_for_schedules()
    if unfit is not None:
        raise InvalidSchedule(f"{task.name} cannot have a schedule: {unfit}.")


def _check_call(call: object, app: Windlass) -> None:
    if not isinstance(call, Call) or call.task.app is not app:
        raise InvalidSchedule(
            f"A schedule is saved with a call of a task of this app, made by task.bind(...), found "
            f"{call!r}."
        )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchedule(
            "The name of a schedule must be text of 1 to 200 characters without spaces, found "
            f"{name!r}."
        )


# ---------------------------------------------------------------------------------- with an engine


def _list(engine: Engine, after: str, limit: int | None) -> list[ScheduleInfo]:
    now_ms, found = _now_ms(engine), list(islice(_records(engine, after), limit))
    return [_to_info_if_readable(record, now_ms) for record in found]


def _records(engine: Engine, after: str = "") -> Iterator[ScheduleRecord]:
    while page := engine.list_schedules(after, PAGE):
        yield from page
        after = page[-1].name


def _get(engine: Engine, name: str) -> ScheduleInfo:
    return _to_info(_read(engine, name), _now_ms(engine))


def _read(engine: Engine, name: str) -> ScheduleRecord:
    (record,) = engine.get_schedules([name])
    if record is None:
        raise ScheduleNotFound(name, engine.location, nearest_dotted(name, schedule_names(engine)))
    return record


def schedule_names(engine: Engine) -> Iterator[str]:
    """The names of the first schedules: for suggestions, and to complete a short name."""
    return (record.name for record in islice(_records(engine), 1_000))


def _save(engine: Engine, name: str, entry: ScheduleEntry) -> None:
    body = entry.pack()

    def change(record: ScheduleRecord | None, now_ms: int) -> ScheduleChange | None:
        if record is None:
            return schedule_changes.enter(name, body, state.made(entry.schedule, now_ms), now_ms)
        note = Note.unpack(record.note)
        if note.declared is not None:
            raise InvalidSchedule(
                f"The schedule {name} is declared in code, by @app.task(schedule=...). Change it "
                "there, or save this one under another name."
            )
        if record.body == body:
            return None
        return schedule_changes.alter(
            record, state.replaced(note, entry.schedule, now_ms), now_ms, body
        )

    _persist(engine, name, change)


def _pause(engine: Engine, name: str) -> None:
    def change(record: ScheduleRecord, now_ms: int) -> ScheduleChange | None:
        note = Note.unpack(record.note)
        is_done = note.paused == "paused"
        return None if is_done else schedule_changes.alter(record, state.paused(note), now_ms)

    _alter(engine, name, change)


def _resume(engine: Engine, name: str) -> None:
    def change(record: ScheduleRecord, now_ms: int) -> ScheduleChange | None:
        entry, note = schedule_changes.read(record)
        if note.declared is not None and is_abandoned(note.declared, now_ms):
            raise InvalidSchedule(
                f"No worker has declared the schedule {name} for a day. Start a worker whose code "
                "declares it, and it continues; or remove it."
            )
        if not note.paused:
            return None
        return schedule_changes.alter(record, state.resumed(note, entry.schedule, now_ms), now_ms)

    _alter(engine, name, change)


def _run_now(engine: Engine, name: str) -> tuple[str, str]:
    """Enqueue a run now. Returns the id of the job and the name of its task."""
    partition = engine.schedule_partition(name)
    made = ("", "")

    def change(record: ScheduleRecord, now_ms: int) -> ScheduleChange:
        nonlocal made
        wanted = schedule_changes.run_now(record, now_ms, partition)
        made = wanted.jobs[0].id, wanted.jobs[0].task
        return wanted

    _alter(engine, name, change)
    return made


def _remove(engine: Engine, name: str) -> None:
    declared_ms, now_ms = _declared_ms(_read(engine, name)), _now_ms(engine)
    age_ms = REMOVABLE_MS if declared_ms is None else now_ms - declared_ms
    if age_ms < REMOVABLE_MS and any(one.expires_in_ms >= 0 for one in engine.sessions()):
        free_at = instant(now_ms - age_ms + REMOVABLE_MS)
        raise InvalidSchedule(
            f"The schedule {name} was declared by a worker {age_ms // 1000} s ago. A worker with "
            "that code declares it again within a minute, so removing it has no effect. Stop the "
            "workers with that code; then remove the schedule after "
            f"{free_at:%H:%M:%S} UTC, or at once when no worker runs at all. Or pause it."
        )
    engine.remove_schedule(name)


def _declared_ms(record: ScheduleRecord) -> int | None:
    """When a worker last declared the schedule. None if never, or if the record is unreadable."""
    try:
        declared = Note.unpack(record.note).declared
    except DecodeError:
        return None
    return None if declared is None else declared.declared_ms


def _alter(
    engine: Engine, name: str, change: Callable[[ScheduleRecord, int], ScheduleChange | None]
) -> None:
    def of_existing(record: ScheduleRecord | None, now_ms: int) -> ScheduleChange | None:
        return change(_read(engine, name) if record is None else record, now_ms)

    _persist(engine, name, of_existing)


def _persist(
    engine: Engine,
    name: str,
    change: Callable[[ScheduleRecord | None, int], ScheduleChange | None],
) -> None:
    """Write the change, and retry it while another process writes first."""
    for _ in range(TRIES):
        (record,) = engine.get_schedules([name])
        wanted = change(record, _now_ms(engine))
        if wanted is None or engine.change_schedules([wanted])[0]:
            return
    raise EngineUnavailable(
        f"The schedule {name} was not changed: {TRIES} tries conflicted with other writers. "
        "Try again."
    )


def _now_ms(engine: Engine) -> int:
    return engine.due_schedules(limit=0).now_ms


def _to_info_if_readable(record: ScheduleRecord, now_ms: int) -> ScheduleInfo:
    """The info of a record. Does not raise for an unreadable record, so that `list` works."""
    try:
        return _to_info(record, now_ms)
    except DecodeError:
        return ScheduleInfo(
            name=record.name,
            schedule=None,
            task="",
            queue="",
            state="unreadable",
            is_declared=False,
            next_at=instant(record.due_ms),
            last_at=None,
            last_late_s=None,
            skipped=0,
            unfinished=record.unfinished,
        )


def _to_info(record: ScheduleRecord, now_ms: int) -> ScheduleInfo:
    entry, note = schedule_changes.read(record)
    late_ms = note.late_ms()
    return ScheduleInfo(
        name=record.name,
        schedule=entry.schedule,
        task=entry.task,
        queue=entry.queue,
        state=_state(note, now_ms),
        is_declared=note.declared is not None,
        next_at=instant(note.next_ms),
        last_at=instant(note.last_ms),
        last_late_s=None if late_ms is None else late_ms / 1000,
        skipped=note.skipped,
        unfinished=record.unfinished,
    )


def _state(note: Note, now_ms: int) -> str:
    if note.declared is not None and is_abandoned(note.declared, now_ms):
        return "abandoned"
    if note.paused:
        return note.paused
    return "over" if note.next_ms is None and note.waiting_ms is None else "active"

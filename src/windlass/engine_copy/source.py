"""Stop the source of a copy: no job starts there any more, and running jobs end before the copy.

1. Queues: all of them are paused, also those that get their first job during the copy.
2. Schedules: all of them are paused in their notes. A worker that declares a schedule keeps its
   note.
3. Workers: `refuse_workers` refuses a copy while workers are alive; with `--drain`,
   `silence_workers` makes them quiet instead.

All changes may be repeated: a copy that was killed makes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.schedules.state import Note
from windlass.core.states import State
from windlass.engine import schedule_changes
from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine, QueueChange, ScheduleRecord, SessionCommand, Stats
from windlass.errors import CopyRefused, DecodeError
from windlass.fleet import read_fleet

_PAGE: Final = 100
#: The note of a schedule that must not run.
_PAUSED: Final = "paused"


# ------------------------------------------------------------------------------------------ queues


def paused_queues(engine: Engine) -> set[str]:
    return {record.queue for record in engine.queues() if record.paused}


def all_queues(engine: Engine) -> set[str]:
    """The queues that have jobs or settings."""
    used = {queue_of(line) for line in engine.stats().queues}
    return used | {record.queue for record in engine.queues()}


def pause_queues(engine: Engine, queues: Iterable[str]) -> None:
    for queue in sorted(set(queues) - paused_queues(engine)):
        engine.change_queue(queue, QueueChange(paused=True))


def resume_queues(engine: Engine, queues: Iterable[str]) -> None:
    for queue in sorted(paused_queues(engine).intersection(queues)):
        engine.change_queue(queue, QueueChange(paused=False))


def count_running(stats: Stats) -> int:
    return sum(numbers.get(State.RUNNING, 0) for numbers in stats.queues.values())


# --------------------------------------------------------------------------------------- schedules


def all_schedules(engine: Engine) -> Iterator[tuple[ScheduleRecord, Note]]:
    """Iterate over all schedules, with their progress. Raises `CopyRefused` for a schedule that
    this version cannot read."""
    after = ""
    while page := engine.list_schedules(after, _PAGE):
        for record in page:
            try:
                _, note = schedule_changes.read(record)
            except DecodeError as error:
                raise CopyRefused(
                    f"The schedule {record.name} cannot be read ({error}). Upgrade windlass here, "
                    f"or remove the schedule: `windlass schedule remove {record.name}`."
                ) from error
            yield record, note
        after = page[-1].name


def paused_schedules(engine: Engine) -> set[str]:
    return {record.name for record, note in all_schedules(engine) if note.paused == _PAUSED}


def pause_schedules(engine: Engine) -> None:
    """Pause all schedules. An occurrence that waits for an earlier run keeps its place."""
    _pause_all(engine, is_paused=True, kept=frozenset())


def resume_schedules(engine: Engine, kept: frozenset[str]) -> None:
    """Let all schedules run again, except those that were paused before."""
    _pause_all(engine, is_paused=False, kept=kept)


def _pause_all(engine: Engine, *, is_paused: bool, kept: frozenset[str]) -> None:
    is_changed = False
    while not is_changed:  # a worker may have changed a schedule first: try again
        now_ms = read_clock(engine)
        changes = [
            schedule_changes.alter(
                record, replace(note, paused=_PAUSED if is_paused else ""), now_ms
            )
            for record, note in all_schedules(engine)
            if (note.paused == _PAUSED) is not is_paused and record.name not in kept
        ]
        done = [
            flag
            for at in range(0, len(changes), _PAGE)
            for flag in engine.change_schedules(changes[at : at + _PAGE])
        ]
        is_changed = all(done)


# ----------------------------------------------------------------------------------------- workers


def refuse_workers(engine: Engine) -> None:
    """Refuse a copy while workers are alive: they would run jobs of the source."""
    names = [worker.name for worker in read_fleet(engine)]
    if names:
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise CopyRefused(
            f"Workers run at {engine.location}: {listed}. Stop them, or give --drain: then they "
            "finish their running jobs and claim no more."
        )


def silence_workers(engine: Engine) -> None:
    """Ask all live workers to be quiet, also those that started meanwhile."""
    loud = [one.session for one in engine.sessions() if one.command is SessionCommand.RUN]
    if loud:
        engine.command(loud, SessionCommand.QUIET)

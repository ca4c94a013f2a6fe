"""Prepare the target of a copy: its queues get their settings, and stay paused until the copy is
complete.

No copied job may start before that. The target purges a job some time after its run. A copy that
was killed and continues would not find the job, and would store it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from windlass.core.schedules.state import Note
from windlass.engine import schedule_changes
from windlass.engine.clock import read_clock
from windlass.engine.contract import (
    Engine,
    QueueChange,
    QueueRecord,
    ScheduleChange,
    ScheduleRecord,
)
from windlass.engine_copy.source import all_schedules, pause_queues

#: One call puts at most this many schedules.
_BATCH: Final = 100


class TargetQueues:
    """The queues of the target: pauses them, and gives them the settings of the source."""

    def __init__(self, source: Engine, target: Engine) -> None:
        self._source = source
        self._target = target
        self._ready: set[str] = set()  # queues whose settings are in the target
        self._ages: dict[str, int] = {}  # queue -> the least age that was set in the target

    def prepare(self, queues: Iterable[str]) -> None:
        """Pause queues on both sides, and give those of the target their settings."""
        new = set(queues) - self._ready
        if not new:
            return
        pause_queues(self._target, new)
        pause_queues(self._source, new)
        wanted = {record.queue: record for record in self._source.queues()}
        found = {record.queue: record for record in self._target.queues()}
        for queue in sorted(new & wanted.keys()):
            if not _has_settings(found.get(queue)) and _has_settings(record := wanted[queue]):
                change = QueueChange(ageing_ms=record.ageing_ms, max_waiting=record.max_waiting)
                self._target.change_queue(queue, change)
        self._ready |= new

    def pause_tasks(self) -> None:
        for task in self._source.paused_tasks():
            self._target.pause_task(task)

    def make_room(self, queue: str, age: int) -> None:
        """Make the queue of the target at least this old. So a copied job keeps its lead over new
        jobs: an age below zero could not be stored."""
        if age > self._ages.get(queue, 0):
            self._target.change_queue(queue, QueueChange(least_age=age))
            self._ages[queue] = age


def _has_settings(record: QueueRecord | None) -> bool:
    """Whether a queue has settings of its own, in addition to a pause."""
    return record is not None and (record.ageing_ms > 0 or record.max_waiting > 0)


# --------------------------------------------------------------------------------------- schedules


def put_schedules(source: Engine, target: Engine, kept: frozenset[str]) -> None:
    """Put all schedules, as they were before the source was paused; those in `kept` stay paused. A
    schedule that the target has already stays as it is there."""
    now_ms = read_clock(target)
    changes = [
        _change_of(
            target, record, note if record.name in kept else replace(note, paused=""), now_ms
        )
        for record, note in all_schedules(source)
    ]
    for at in range(0, len(changes), _BATCH):
        target.change_schedules(changes[at : at + _BATCH])


def move_schedules(source: Engine, target: Engine) -> None:
    """Put the schedules that are not paused, and then pause them. A schedule that was paused by an
    earlier copy is in the target already, or was removed there."""
    now_ms = read_clock(target)
    for record, note in all_schedules(source):
        if note.paused != "paused":
            target.change_schedules([_change_of(target, record, note, now_ms)])
            paused = replace(note, paused="paused")
            source.change_schedules([schedule_changes.alter(record, paused, now_ms)])


def _change_of(target: Engine, record: ScheduleRecord, note: Note, now_ms: int) -> ScheduleChange:
    """The change that creates a schedule with its progress."""
    entry, _ = schedule_changes.read(record)
    watched = (target.copied_id(id, entry.task, None, record.name) for id in record.watched)
    return ScheduleChange(
        name=record.name,
        expected="",
        revision=record.revision,
        due_ms=note.due_ms(now_ms),
        note=note.pack(),
        body=record.body,
        watched=tuple(watched),
    )


def count_schedules(source: Engine, target: Engine) -> int:
    """Count the schedules of the source that the target has."""
    names = [record.name for record, _ in all_schedules(source)]
    return sum(
        record is not None
        for at in range(0, len(names), _BATCH)
        for record in target.get_schedules(names[at : at + _BATCH])
    )


def watched_jobs(source: Engine) -> dict[str, str]:
    """The jobs that schedules of the source watch, each with the name of its schedule."""
    return {id: record.name for record, _ in all_schedules(source) for id in record.watched}

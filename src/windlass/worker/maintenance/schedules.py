"""The scheduler: every worker fires due schedules, so no single process has to.

1. `declare` stores the schedules that the app declares, at the start and every minute.
2. `look` reads the due schedules, decides what to enqueue, and stores the changes. All workers do
   so at about the same time. If several see the same state, one change counts, and the others
   have no effect.

A schedule that this worker cannot read, because a newer worker wrote it or its time zone is unknown
here, is logged once and left to other workers. It does not block other schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from logging import getLogger
from random import uniform
from time import monotonic
from typing import Final

from windlass.app import Windlass
from windlass.core.durations import describe_ms
from windlass.core.quantities import Count
from windlass.core.schedules.declarations import REMOVABLE_MS, RENEWAL_MS, SILENT_MS, Standing
from windlass.core.schedules.state import LeftOut, Note
from windlass.engine import schedule_changes
from windlass.engine.contract import DueSchedules, Engine, ScheduleRecord
from windlass.engine.schedule_changes import Firing
from windlass.errors import DecodeError
from windlass.worker.ipc.channel import AppDeclaration
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: The longest wait before the next look, in seconds, with and without schedules: a schedule that
#: is saved meanwhile waits for that long.
FLOOR_S: Final = 0.5
IDLE_S: Final = 2.0
#: Looks of workers for the same instant are spread over this many seconds, so that later workers
#: find nothing to do.
SPREAD_S: Final = 0.05
#: The wait when one look did not take all due schedules, in seconds.
ON_S: Final = 0.01
#: How soon to declare again after a lost race, in seconds.
AGAIN_S: Final = 1.0
#: The most schedules in one look, and about the most jobs in one change.
MOST_SCHEDULES: Final = 100
MOST_JOBS: Final = 500
#: How long to skip a schedule that cannot be read, in seconds.
UNREADABLE_S: Final = 60.0

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHY: Final = {
    "missed": "their time had passed",
    "overlap": "an earlier run had not ended",
}


def declarations(app: Windlass) -> tuple[AppDeclaration, ...]:
    """Return the schedules that an app declares in code."""
    return tuple(AppDeclaration(name, entry.pack()) for name, entry in app.declared_schedules())


class Scheduler:
    """Declare and fire schedules. Used by the maintenance thread only."""

    def __init__(self, engine: Engine, declarations: Sequence[AppDeclaration] = ()) -> None:
        self._engine = engine
        self._declarations = {one.name: one for one in declarations}
        self._reported: dict[str, str] = {}  # name -> the last problem that was logged
        self._unreadable: dict[str, float] = {}  # name -> until when to skip it

    # ------------------------------------------------------------------------------- declaring

    def declare(self) -> float:
        """Declare all schedules of the app; return the seconds until the next time."""
        if not self._declarations:
            return float("inf")
        names = list(self._declarations)
        chunks = [names[at : at + MOST_SCHEDULES] for at in range(0, len(names), MOST_SCHEDULES)]
        failed = [chunk for chunk in chunks if not self._declare(chunk)]
        return AGAIN_S if failed else RENEWAL_MS / 1000 * uniform(0.9, 1.0)

    def _declare(self, names: Sequence[str]) -> bool:
        """Declare some schedules. Return False if another change came first: a run, or another
        worker."""
        now_ms = self._engine.due_schedules(limit=0).now_ms
        records = self._engine.get_schedules(names)
        changes = []
        for name, record in zip(names, records, strict=True):
            one = self._declarations[name]
            try:
                standing, change = schedule_changes.declare(
                    record, name, one.body, one.version, now_ms
                )
            except DecodeError as error:
                self._log_unreadable(name, error)
                continue
            if standing is Standing.OUTDATED and self._reported.get(name) != "outdated":
                self._reported[name] = "outdated"
                log.warning(LogEvent.DECLARATION_OUTDATED, name, _why_outdated(name, record))
            if change is not None:
                changes.append(change)
        return not changes or all(self._engine.change_schedules(changes))

    # ----------------------------------------------------------------------------------- firing

    def look(self) -> float:
        """Fire due schedules; return the seconds until the next look."""
        due = self._engine.due_schedules(self._left_alone(), MOST_SCHEDULES)
        firings = [firing for record in due.records if (firing := self._decide(record, due.now_ms))]
        for batch in _batches(firings):
            counted = self._engine.change_schedules([one.change for one in batch])
            for one, counts in zip(batch, counted, strict=True):
                if counts:
                    self._log_firing(one)
        return ON_S if due.more else _wait_s(due, firings)

    def _decide(self, record: ScheduleRecord, now_ms: int) -> Firing | None:
        try:
            partition = self._engine.schedule_partition(record.name)
            return schedule_changes.fire(record, now_ms, partition)
        except DecodeError as error:
            self._log_unreadable(record.name, error)
            self._unreadable[record.name] = monotonic() + UNREADABLE_S
            return None

    def _left_alone(self) -> list[str]:
        now = monotonic()
        self._unreadable = {name: due for name, due in self._unreadable.items() if due > now}
        return list(self._unreadable)

    # ---------------------------------------------------------------------------------- logging

    def _log_unreadable(self, name: str, error: DecodeError) -> None:
        if self._reported.get(name) != str(error):
            self._reported[name] = str(error)
            log.error(LogEvent.SCHEDULE_UNREADABLE, name, error)

    def _log_firing(self, one: Firing) -> None:
        name, note = one.change.name, one.step.note
        if note.paused:
            log.warning(LogEvent.SCHEDULE_ABANDONED, name)
        for part in one.step.left_out:
            _log_left_out(name, part)


def _why_outdated(name: str, record: ScheduleRecord | None) -> str:
    """Describe why the stored schedule differs, and when this worker's declaration counts."""
    declared = None if record is None else Note.unpack(record.note).declared
    remove = f"windlass schedule remove {name}"
    if declared is None:
        return f"it was saved at run time. Remove it with {remove}"
    last_ms = declared.declared_ms
    return (
        f"it was declared at {_moment(last_ms)} by a worker with other code. This worker's "
        f"declaration counts when no worker has declared the other one for "
        f"{describe_ms(SILENT_MS)}, from {_moment(last_ms + SILENT_MS)} on if none does again; or "
        f"after {remove}, which is refused until {_moment(last_ms + REMOVABLE_MS)}"
    )


def _log_left_out(name: str, part: LeftOut) -> None:
    log.warning(
        LogEvent.RUNS_LEFT_OUT,
        name,
        Count(part.number, "run"),
        _moment(part.first_ms),
        _moment(part.last_ms),
        _WHY[part.why],
    )


def _moment(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat().replace("+00:00", "Z")


def _batches(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    """Split changes into calls of at most about `MOST_JOBS` jobs."""
    batch: list[Firing] = []
    jobs = 0
    for one in firings:
        jobs += len(one.change.jobs)
        if batch and jobs > MOST_JOBS:
            yield batch
            batch, jobs = [], len(one.change.jobs)
        batch.append(one)
    if batch:
        yield batch


def _wait_s(due: DueSchedules, firings: Sequence[Firing]) -> float:
    """Return the seconds until the next due instant, at most `FLOOR_S`, plus a random spread."""
    instants = [one.change.due_ms - due.now_ms for one in firings if one.change.due_ms is not None]
    if due.next_in_ms is not None:
        instants.append(due.next_in_ms)
    if not instants:
        return IDLE_S
    return min(FLOOR_S, max(0, min(instants)) / 1000) + uniform(0, SPREAD_S)

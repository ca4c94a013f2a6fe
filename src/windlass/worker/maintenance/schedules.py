"""Schedules, as one worker of many looks after them: there is no process that has to.

1. `declare` tells the engine what the app of this worker declares, at the start and every minute.
2. `look` asks which schedules are due, decides what follows, and makes the changes. All workers do
   so at about the same time; of those who see the same one change counts, and the others nothing.

A schedule that this worker cannot read, because a newer one wrote it or a time zone is unknown
here, is told of once and left to others; it stands in nobody's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from logging import getLogger
from random import uniform
from time import monotonic
from typing import Final

from windlass.core.durations import describe_ms
from windlass.core.plurals import Count
from windlass.core.schedules.declarations import REMOVABLE_MS, RENEWAL_MS, SILENT_MS, Standing
from windlass.core.schedules.state import LeftOut, Note
from windlass.engine import schedule_changes
from windlass.engine.contract import DueSchedules, Engine, ScheduleRecord
from windlass.engine.schedule_changes import Firing
from windlass.errors import DecodeError
from windlass.worker.ipc.channel import Declaration

log = getLogger("windlass.worker")

#: How long to wait at most before the next look, in seconds: when there are schedules, and when
#: there are none. One that was saved meanwhile is seen then.
FLOOR_S: Final = 0.5
IDLE_S: Final = 2.0
#: Looks of workers that wait for the same instant are spread over so many seconds: who comes later
#: finds it done.
SPREAD_S: Final = 0.05
#: Before the next look when there was more than one look could take.
ON_S: Final = 0.01
#: How soon to declare again what others were faster with, in seconds.
AGAIN_S: Final = 1.0
#: At most so many schedules in one look, and about so many jobs in one change.
MOST_SCHEDULES: Final = 100
MOST_JOBS: Final = 500
#: How long a schedule that cannot be read is not looked at again, in seconds.
UNREADABLE_S: Final = 60.0

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHY: Final = {
    "missed": "their time had passed",
    "overlap": "an earlier run had not ended",
}


class Scheduler:
    """Used by one thread, that of the upkeep."""

    def __init__(self, engine: Engine, declarations: Sequence[Declaration] = ()) -> None:
        self._engine = engine
        self._declarations = {one.name: one for one in declarations}
        self._reported: dict[str, str] = {}  # name -> what was said of it last
        self._unreadable: dict[str, float] = {}  # name -> until when it is left alone

    # ------------------------------------------------------------------------------- declaring

    def declare(self) -> float:
        """Seconds until it is to be done again."""
        if not self._declarations:
            return float("inf")
        names = list(self._declarations)
        chunks = [names[at : at + MOST_SCHEDULES] for at in range(0, len(names), MOST_SCHEDULES)]
        failed = [chunk for chunk in chunks if not self._declare(chunk)]
        return AGAIN_S if failed else RENEWAL_MS / 1000 * uniform(0.9, 1.0)

    def _declare(self, names: Sequence[str]) -> bool:
        """Whether nobody was faster: a run that was fired meanwhile, or another worker."""
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
                self._tell_unreadable(name, error)
                continue
            if standing is Standing.OUTDATED:
                self._tell_outdated(name, record)
            if change is not None:
                changes.append(change)
        return not changes or all(self._engine.change_schedules(changes))

    def _tell_outdated(self, name: str, record: ScheduleRecord | None) -> None:
        if self._reported.get(name) != "outdated":
            self._reported[name] = "outdated"
            log.warning(
                "schedule %s is another one by now than this worker declares, and stays: %s",
                name,
                _why_outdated(name, record),
            )

    # ---------------------------------------------------------------------------------- looking

    def look(self) -> float:
        """Seconds until the next look."""
        due = self._engine.due_schedules(self._left_alone(), MOST_SCHEDULES)
        firings = [firing for record in due.records if (firing := self._decide(record, due.now_ms))]
        for batch in _batches(firings):
            counted = self._engine.change_schedules([one.change for one in batch])
            for one, counts in zip(batch, counted, strict=True):
                if counts:
                    self._tell(one)
        return ON_S if due.more else _wait_s(due, firings)

    def _decide(self, record: ScheduleRecord, now_ms: int) -> Firing | None:
        try:
            partition = self._engine.schedule_partition(record.name)
            return schedule_changes.fire(record, now_ms, partition)
        except DecodeError as error:
            self._tell_unreadable(record.name, error)
            self._unreadable[record.name] = monotonic() + UNREADABLE_S
            return None

    def _left_alone(self) -> list[str]:
        now = monotonic()
        self._unreadable = {name: due for name, due in self._unreadable.items() if due > now}
        return list(self._unreadable)

    # ---------------------------------------------------------------------------------- telling

    def _tell_unreadable(self, name: str, error: DecodeError) -> None:
        if self._reported.get(name) != str(error):
            self._reported[name] = str(error)
            log.error(
                "schedule %s cannot be read by this worker, and is left to others: %s", name, error
            )

    def _tell(self, one: Firing) -> None:
        name, note = one.change.name, one.step.note
        if note.paused:
            log.warning("schedule %s is paused, because no worker has declared it for a day", name)
        for part in one.step.left_out:
            _tell_left_out(name, part)


def _why_outdated(name: str, record: ScheduleRecord | None) -> str:
    """And when that of this worker counts."""
    declared = None if record is None else Note.unpack(record.note).declared
    remove = f"windlass schedule remove {name}"
    if declared is None:
        return f"it was saved at run time. Remove it with {remove}"
    last_ms = declared.declared_ms
    return (
        f"it was declared at {_moment(last_ms)} by a worker with other code. This worker's counts "
        f"when nobody has declared the other one for {describe_ms(SILENT_MS)}, from "
        f"{_moment(last_ms + SILENT_MS)} on if none does again; or after {remove}, which is "
        f"refused until {_moment(last_ms + REMOVABLE_MS)}"
    )


def _tell_left_out(name: str, part: LeftOut) -> None:
    log.warning(
        "schedule %s left out %s from %s to %s: %s",
        name,
        Count(part.number, "run"),
        _moment(part.first_ms),
        _moment(part.last_ms),
        _WHY[part.why],
    )


def _moment(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat().replace("+00:00", "Z")


def _batches(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    """One call for all, unless they bring too many jobs."""
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
    """Until the next instant that is known of, but not for longer than the floor."""
    instants = [one.change.due_ms - due.now_ms for one in firings if one.change.due_ms is not None]
    if due.next_in_ms is not None:
        instants.append(due.next_in_ms)
    if not instants:
        return IDLE_S
    return min(FLOOR_S, max(0, min(instants)) / 1000) + uniform(0, SPREAD_S)

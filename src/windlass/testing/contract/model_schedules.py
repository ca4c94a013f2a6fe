"""The reference model of schedules, on top of a model of jobs.

The first caller with the current revision changes a schedule (optimistic locking). The
specification is a dict and a comparison of revisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from windlass.engine.contract import (
    CancelCode,
    DueSchedules,
    NewJob,
    ScheduleChange,
    ScheduleRecord,
)
from windlass.testing.contract.model_job import ModelJob


class ScheduleModel(ABC):
    @property
    def schedules(self) -> dict[str, ScheduleRecord]:
        found: dict[str, ScheduleRecord] = self.__dict__.setdefault("_schedules", {})
        return found

    @abstractmethod
    def put_anyway(self, jobs: Sequence[NewJob]) -> None: ...

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> list[CancelCode]: ...

    @abstractmethod
    def clock_ms(self) -> int: ...

    @abstractmethod
    def known_jobs(self) -> Mapping[str, ModelJob]: ...

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        return [self._change_schedule(change) for change in changes]

    def _change_schedule(self, change: ScheduleChange) -> bool:
        known = self.schedules.get(change.name)
        revision = "" if known is None else known.revision
        if revision == change.revision:
            return True
        if revision != change.expected:
            return False
        body = change.body if known is None or change.body is not None else known.body
        assert body is not None
        self.schedules[change.name] = ScheduleRecord(
            name=change.name,
            revision=change.revision,
            due_ms=change.due_ms,
            body=body,
            note=change.note,
            watched=change.watched,
        )
        self.cancel(change.cancelled)
        self.put_anyway(change.jobs)
        return True

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]:
        return [
            self._seen(self.schedules[name]) if name in self.schedules else None for name in names
        ]

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        names = sorted(name for name in self.schedules if name > after)
        return [self._seen(self.schedules[name]) for name in names[:limit]]

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        now_ms = self.clock_ms()
        instants = [
            (record.due_ms, record.name)
            for record in self.schedules.values()
            if record.due_ms is not None
        ]
        due = [name for at_ms, name in sorted(instants) if at_ms <= now_ms and name not in skip]
        later = [at_ms - now_ms for at_ms, _ in instants if at_ms > now_ms]
        return DueSchedules(
            now_ms=now_ms,
            records=tuple(self._seen(self.schedules[name]) for name in due[:limit]),
            more=len(due) > limit,
            next_in_ms=min(later, default=None),
        )

    def remove_schedule(self, name: str) -> bool:
        return self.schedules.pop(name, None) is not None

    def _seen(self, record: ScheduleRecord) -> ScheduleRecord:
        jobs = self.known_jobs()
        unfinished = [
            id for id in record.watched if id in jobs and not jobs[id].record.state.is_final
        ]
        return replace(record, unfinished=tuple(unfinished))

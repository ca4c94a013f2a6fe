"""The operations that all SQL engines hand to the same verbs.

An engine opens transactions, settles their bookkeeping and wakes idle sessions. The verbs in
`verbs/` do the rest, by statements of the engine.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from windlass.core.ids import new_id, new_ids
from windlass.core.queues.settings import paused_tasks, task_key
from windlass.engine.contract import (
    MAX_DEAD_TALLIES,
    AuditEntry,
    Batch,
    Beat,
    CancelCode,
    ChangeCode,
    Closed,
    CopyCode,
    DeadLabel,
    DeadTallies,
    Document,
    DocumentChange,
    DueSchedules,
    Emptied,
    Filter,
    HistoryPage,
    HolderPage,
    Introductions,
    JobChange,
    JobCopy,
    JobEnd,
    JobRecord,
    KeyCopy,
    KeyPage,
    Measure,
    NewStep,
    Page,
    Pulse,
    QueueChange,
    QueueRecord,
    Revival,
    ScheduleChange,
    ScheduleRecord,
    SessionCommand,
    SessionRecord,
    Stats,
    Step,
    StepCode,
    check_audit_entries,
    check_copies,
    check_document_changes,
    check_report,
    check_steps,
)
from windlass.engine.sql.statements import Statements
from windlass.engine.sql.transaction import SqlTransaction, read_settings
from windlass.engine.sql.verbs import (
    admin,
    change,
    copies,
    dead_groups,
    documents,
    history,
    queues,
    read,
    schedules,
    sessions,
    steps,
    unique,
)
from windlass.engine.sql.verbs.sessions import set_command

T = TypeVar("T")
Tx = TypeVar("Tx", bound=SqlTransaction)


class SqlEngine(ABC, Generic[Tx]):
    """An engine whose jobs are in tables. All of them are in one partition."""

    @abstractmethod
    def _read_now(self, work: Callable[[Statements, int], T]) -> T:
        """Read at one instant, in milliseconds on the clock of the engine."""

    @abstractmethod
    def _write(self, work: Callable[[Tx], T]) -> T:
        """Run a write transaction with its bookkeeping."""

    def new_id(
        self, task: str, queue: str, idempotency_key: str | None, unique_key: str | None = None
    ) -> str:
        return new_id(time.time_ns() // 1_000_000)

    def new_ids(self, number: int, task: str, queue: str) -> list[str]:
        return new_ids(number, time.time_ns() // 1_000_000)

    def elsewhere(self, job_id: str) -> list[str]:
        return []

    # -------------------------------------------------------------------------------------- steps

    def put_steps(self, new: Sequence[NewStep]) -> list[StepCode]:
        check_steps([one.step for one in new])
        return self._write(lambda tx: steps.put(tx, new))

    def read_steps(self, id: str, token: str) -> tuple[Step, ...] | None:
        return self._read_now(lambda db, _: steps.read(db, id, token))

    # ----------------------------------------------------------------------------------- sessions

    def release(self, session: str, nonce: str) -> int:
        return self._write(lambda tx: sessions.release(tx, session, nonce))

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        return self._write(lambda tx: sessions.beat(tx, beats))

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        return self._write(lambda tx: sessions.close(tx, session, suspects, cause))

    def lose(self, session: str, cause: str) -> int:
        return self._write(lambda tx: sessions.lose(tx, session, cause))

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        return self._read_now(lambda db, _: read.introductions(db, prefix, cursor))

    def sessions(self) -> list[SessionRecord]:
        return self._read_now(read.sessions)

    def infos(self, sessions: Sequence[str]) -> list[bytes | None]:
        return self._read_now(lambda db, _: read.infos(db, sessions))

    def command(self, sessions: Sequence[str], command: SessionCommand) -> list[bool]:
        return self._write(lambda tx: set_command(tx, sessions, command))

    # ---------------------------------------------------------------------------------- operators

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]:
        return self._write(lambda tx: admin.cancel(tx, ids))

    def change_jobs(self, changes: Sequence[JobChange]) -> list[ChangeCode]:
        return self._write(lambda tx: change.change_jobs(tx, changes))

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        return self._write(lambda tx: admin.revive(tx, revivals))

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        return self._write(lambda tx: admin.discard(tx, ids, seen or {}))

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        return self._read_now(lambda db, now: [unique.find_id(db, *key, now) for key in keys])

    def adopt(self, tasks: Sequence[str]) -> int:
        if not self._read_now(lambda db, _: admin.can_adopt(db, tasks)):
            return 0  # in most cases no job matches: write nothing
        return self._write(lambda tx: admin.adopt(tx, tasks))

    def queues(self) -> list[QueueRecord]:
        return self._read_now(queues.list_queues)

    def change_queue(self, queue: str, change: QueueChange) -> None:
        self._write(lambda tx: queues.change_queue(tx, queue, change))

    def pause_task(self, task: str) -> None:
        self.change_queue(task_key(task), QueueChange(paused=True))

    def resume_task(self, task: str) -> int:
        self.change_queue(task_key(task), QueueChange(paused=False))
        return self.adopt([task])

    def paused_tasks(self) -> list[str]:
        return self._read_now(lambda db, _: paused_tasks(read_settings(db)))

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        return self._write(lambda tx: queues.purge(tx, queue, cursor))

    # ----------------------------------------------------------------------------- groups of dead

    def dead_tallies(
        self, fingerprints: Sequence[str] | None = None, limit: int = MAX_DEAD_TALLIES
    ) -> DeadTallies:
        return self._read_now(lambda db, _: dead_groups.tallies(db, fingerprints, limit))

    def label_dead(self, labels: Sequence[DeadLabel]) -> list[ChangeCode]:
        return self._write(lambda tx: dead_groups.label(tx, labels))

    # ---------------------------------------------------------------------------------- schedules

    def schedule_partition(self, name: str) -> int:
        return 0

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        return self._write(lambda tx: schedules.change(tx, changes))

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]:
        return self._read_now(lambda db, _: schedules.get(db, names))

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        return self._read_now(lambda db, _: schedules.list_by_name(db, after, limit))

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        return self._read_now(lambda db, now: schedules.due(db, skip, limit, now))

    def remove_schedule(self, name: str) -> bool:
        return self._write(lambda tx: schedules.remove(tx, name))

    # ------------------------------------------------------------------------ documents and audit

    def get_documents(self, kind: str, keys: Sequence[str]) -> list[Document | None]:
        return self._read_now(lambda db, _: documents.get(db, kind, keys))

    def list_documents(self, kind: str, after: str = "", limit: int = 100) -> list[Document]:
        return self._read_now(lambda db, _: documents.list_by_key(db, kind, after, limit))

    def change_documents(self, changes: Sequence[DocumentChange]) -> list[bool]:
        check_document_changes(changes)
        return self._write(lambda tx: documents.change(tx, changes))

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        check_audit_entries(entries)
        self._write(lambda tx: documents.add_audit(tx, entries))

    def list_audit(self, before: str = "", limit: int = 100) -> list[AuditEntry]:
        return self._read_now(lambda db, _: documents.list_audit(db, before, limit))

    # ------------------------------------------------------------------------------------ history

    def record(self, reporter: str, number: int, measures: Sequence[Measure]) -> None:
        check_report(number, measures)
        self._write(lambda tx: history.record(tx, reporter, number, measures))

    def history(
        self, begin_ago_ms: int, *, by_hour: bool = False, cursor: str | None = None
    ) -> HistoryPage:
        return self._read_now(
            lambda db, now: history.history(db, now, begin_ago_ms, by_hour, cursor)
        )

    # ------------------------------------------------------------------------------------- copies

    def copied_id(
        self, job_id: str, task: str, unique_key: str | None, schedule: str | None = None
    ) -> str:
        return job_id

    def read_copies(self, ids: Sequence[str]) -> list[JobCopy | None]:
        return self._read_now(lambda db, now: copies.read(db, ids, now))

    def put_copies(self, copied: Sequence[JobCopy]) -> list[CopyCode]:
        check_copies(copied)
        return self._write(lambda tx: copies.put(tx, copied))

    def list_keys(self, cursor: str | None = None) -> KeyPage:
        return self._read_now(lambda db, now: copies.list_keys(db, cursor, now))

    def put_keys(self, keys: Sequence[KeyCopy]) -> list[CopyCode]:
        return self._write(lambda tx: copies.put_keys(tx, keys))

    def list_holders(self, cursor: str | None = None) -> HolderPage:
        return self._read_now(lambda db, now: copies.list_holders(db, cursor, now))

    # ------------------------------------------------------------------------------------ reading

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return self._read_now(lambda db, now: read.get(db, ids, now))

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return self._read_now(lambda db, now: read.ends(db, ids, now))

    def find(self, filter: Filter, cursor: str | None = None, limit: int = 100) -> Page:
        return self._read_now(lambda db, now: read.find(db, filter, cursor, limit, now))

    def stats(self) -> Stats:
        return self._read_now(read.stats)

    # ------------------------------------------------------------------------------------ waiting

    def read_handoff(self, handed: bytes, nonce: str) -> Batch | None:
        return None  # this engine has no hand-off

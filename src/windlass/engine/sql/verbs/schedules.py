"""Schedules: list due schedules, and apply changes if the expected revision is current."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.engine.contract import DueSchedules, ScheduleChange, ScheduleRecord
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import SqlTransaction
from windlass.engine.sql.verbs import admin, put


def change(tx: SqlTransaction, changes: Sequence[ScheduleChange]) -> list[bool]:
    """Apply changes in turn, after their schedules and the keys of their jobs are locked."""
    tx.lock_all(("schedule", wanted.name) for wanted in changes)
    tx.lock_keys(put.keys_of(job for wanted in changes for job in wanted.jobs))
    return [_change(tx, wanted) for wanted in changes]


def _change(tx: SqlTransaction, wanted: ScheduleChange) -> bool:
    found = tx.one("find_schedule", wanted.name)
    revision = "" if found is None else found[1]
    if revision != wanted.expected:
        return bool(revision == wanted.revision)  # applied by an earlier call
    watched = tx.array(wanted.watched)
    values = (wanted.name, wanted.revision, wanted.due_ms, wanted.note, watched)
    ((row,),) = tx.rows("save_schedule", *values)
    if wanted.body is not None:
        tx.run("save_schedule_body", row, wanted.body)
    admin.cancel(tx, wanted.cancelled)
    for job in wanted.jobs:
        put.put(tx, job, is_bounded=False)  # unbounded, because no caller could retry a refused job
    return True


def remove(tx: SqlTransaction, name: str) -> bool:
    found = tx.one("find_schedule", name)
    if found is None:
        return False
    for statement in ("delete_schedule", "delete_schedule_body"):
        tx.run(statement, found[0])
    return True


def get(db: Statements, names: Sequence[str]) -> list[ScheduleRecord | None]:
    found = db.rows("read_schedules", db.array(names))
    records = {record.name: record for record in _to_records(db, found)}
    return [records.get(name) for name in names]


def list_by_name(db: Statements, after: str, limit: int) -> list[ScheduleRecord]:
    return _to_records(db, db.rows("list_schedules", after, limit))


def due(db: Statements, skip: Sequence[str], limit: int, now_ms: int) -> DueSchedules:
    found = db.rows("list_due_schedules", now_ms, db.array(skip), limit + 1)
    next_ms = db.first("next_schedule", now_ms)
    return DueSchedules(
        now_ms=now_ms,
        records=tuple(_to_records(db, found[:limit])),
        more=len(found) > limit,
        next_in_ms=None if next_ms is None else next_ms - now_ms,
    )


def _to_records(db: Statements, found: Sequence[Row]) -> list[ScheduleRecord]:
    return [_to_record(db, *row) for row in found]


def _to_record(
    db: Statements,
    name: str,
    revision: str,
    due_ms: int | None,
    body: bytes,
    note: bytes,
    packed: Any,
) -> ScheduleRecord:
    watched = db.unpack(packed)
    live = {id for (id,) in db.rows("list_unfinished", packed)} if watched else set()
    return ScheduleRecord(
        name=name,
        revision=revision,
        due_ms=due_ms,
        body=body,
        note=note,
        watched=watched,
        unfinished=tuple(id for id in watched if id in live),
    )

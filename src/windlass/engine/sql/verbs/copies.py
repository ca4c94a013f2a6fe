"""Copies: read jobs and idempotency keys completely, and store those of another engine.

1. `read` adds to the record of a job what other engines need.
2. `put` stores copies as they are: place in line, counters, history, steps and unique key.
3. `list_keys`, `put_keys` and `list_holders`: keys, which may outlive their jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from windlass.core.durations import LATEST_MS
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.core.states import Hold, State
from windlass.core.unique import Until
from windlass.engine.contract import (
    MAX_KEYS,
    CopyCode,
    HolderPage,
    JobCopy,
    JobRecord,
    KeyCopy,
    KeyPage,
    LinePlace,
    Step,
)
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import SqlTransaction, read_settings, unpack_settings
from windlass.engine.sql.verbs import unique
from windlass.engine.sql.verbs.read import get

#: The states in which a job may hold its key although it needs no copy otherwise.
_DONE: Final = (State.SUCCEEDED, State.CANCELLED)
_cursor: Final = msgspec.json.Decoder(tuple[str, str])


def read(db: Statements, ids: Sequence[str], now_ms: int) -> list[JobCopy | None]:
    settings = read_settings(db)
    details = {job_id: rest for job_id, *rest in db.rows("read_copies", db.array(ids))}
    done = _read_steps(db, ids)

    def read_one(record: JobRecord | None) -> JobCopy | None:
        if record is None:
            return None
        ready_ms, age, keep_until_ms, until, period_until_ms = details[record.id]
        line = None
        if record.state is State.READY:
            own = settings.get(queue_of(record.queue), USUAL)
            line = LinePlace(ready_ms=ready_ms, age=age, queue_age=own.aged(now_ms).age)
        return JobCopy(
            record=replace(record, result=None, has_result=False),
            line=line,
            keep_until_ms=keep_until_ms,
            until=None if until is None else Until(until),
            period_until_ms=period_until_ms,
            steps=tuple(done.get(record.id, ())),
        )

    return [read_one(record) for record in get(db, ids, now_ms)]


def _read_steps(db: Statements, ids: Sequence[str]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    rows = db.rows("copy_steps", db.array(ids))
    for job_id, name, value in sorted(rows, key=lambda row: row[1].encode()):
        found.setdefault(job_id, []).append(Step(name, value))
    return found


# ---------------------------------------------------------------------------------------- storing


def put(tx: SqlTransaction, copies: Sequence[JobCopy]) -> list[CopyCode]:
    ids = tx.array([copy.record.id for copy in copies])
    tx.lock_keys(key for copy in copies if (key := _held_key(tx, copy)) is not None)
    known = {job_id for job_id, *_ in tx.rows("read_copies", ids)}
    return [_put(tx, copy, known) for copy in copies]


def _held_key(tx: SqlTransaction, copy: JobCopy) -> tuple[str, str] | None:
    """Return the unique key that a copy holds, with its task."""
    record = copy.record
    if record.unique_key is None or not copy.holds_key(tx.now_ms):
        return None
    return record.task, record.unique_key


def _put(tx: SqlTransaction, copy: JobCopy, known: set[str]) -> CopyCode:
    record = copy.record
    if record.id in known:
        return CopyCode.KNOWN
    key = _held_key(tx, copy)
    if key is not None:
        if unique.find(tx, *key, tx.now_ms) is not None:
            return CopyCode.HELD
        tx.run("keep_unique_key", *key, record.id)
    number = tx.insert_copy(_columns_of(tx, copy), record.payload)
    for failure in _failures_of(number, record):
        tx.run("insert_failure", *failure)
    for step in copy.steps:
        tx.run("add_step", number, step.name, step.value)
    _note_stored(tx, record)
    known.add(record.id)
    return CopyCode.STORED


def _columns_of(tx: SqlTransaction, copy: JobCopy) -> Row:
    """Return the values of the statement `insert_copy`, apart from row and payload."""
    record, line = copy.record, copy.line
    age = 0 if line is None else _age_here(tx, record.queue, line)
    ready_ms = None if line is None or line.ready_ms == record.created_ms else line.ready_ms
    return (
        record.id,
        record.task,
        record.queue,
        age - record.priority,
        record.state,
        None if record.hold is Hold.NONE else record.hold,
        record.reason,
        int(record.suspect),
        int(record.cancel_requested),
        *msgspec.structs.astuple(record.counters),
        record.created_ms,
        ready_ms,
        LATEST_MS if record.hold is Hold.PAUSED else record.due_ms,
        record.expires_ms,
        record.started_ms,
        record.finished_ms,
        copy.keep_until_ms,
        record.session,
        record.progress,
        record.unique_key,
        copy.until,
        copy.period_until_ms or None,
        age,
        record.held_because,
    )


def _age_here(tx: SqlTransaction, queue: str, line: LinePlace) -> int:
    """The age of the queue here when the job would have taken its place."""
    own = unpack_settings(tx.queues).get(queue_of(queue), USUAL).aged(tx.now_ms)
    return max(0, own.age - (line.queue_age - line.age))


def _failures_of(number: int, record: JobRecord) -> list[Row]:
    return [
        (number, at, one.at_ms, one.event, one.attempt, one.session, one.started_ms, one.error)
        for at, one in enumerate(record.failures, 1)
    ]


def _note_stored(tx: SqlTransaction, record: JobRecord) -> None:
    """Report a copied job to the bookkeeping."""
    tx.counts[record.queue, record.state] += 1
    if record.state is State.READY and record.hold is Hold.NONE:
        tx.touched.add(record.queue)
        tx.note_ready(record.queue, record.task, suspects=record.suspect)
    elif record.due_ms is not None:
        tx.note_due(record.queue, record.due_ms)
    elif record.state is State.DEAD:
        job = tx.job(record.id)
        assert job is not None, "it was stored in this transaction"
        tx.enter_dead_group(job, record.fingerprint)


# ------------------------------------------------------------------------------------------- keys


def list_keys(db: Statements, cursor: str | None, now_ms: int) -> KeyPage:
    found = db.rows("list_keys", *_after(cursor), now_ms, MAX_KEYS)
    return KeyPage(tuple(_to_key(db, row) for row in found), _cursor_behind(found))


def _to_key(db: Statements, row: Row) -> KeyCopy:
    task, key, job_id, fingerprint, expires_ms = row
    return KeyCopy(
        task=task,
        key=db.read_key(key),
        id=job_id,
        fingerprint=fingerprint,
        expires_ms=expires_ms,
    )


def put_keys(tx: SqlTransaction, keys: Sequence[KeyCopy]) -> list[CopyCode]:
    tx.lock_keys((key.task, key.key) for key in keys)
    return [_put_key(tx, key) for key in keys]


def _put_key(tx: SqlTransaction, key: KeyCopy) -> CopyCode:
    known = tx.one("find_key", key.task, key.key, tx.now_ms)
    if known is not None:
        return CopyCode.KNOWN if known[0] == key.id else CopyCode.HELD
    tx.run("keep_key", key.task, key.key, key.id, key.fingerprint, key.expires_ms)
    return CopyCode.STORED


def list_holders(db: Statements, cursor: str | None, now_ms: int) -> HolderPage:
    found = db.rows("list_unique_keys", *_after(cursor), MAX_KEYS)
    ids = tuple(
        job_id
        for _, _, job_id, state, period_until_ms in found
        if state in _DONE and period_until_ms > now_ms
    )
    return HolderPage(ids, _cursor_behind(found))


def _after(cursor: str | None) -> tuple[str, str]:
    return ("", "") if cursor is None else _cursor.decode(cursor)


def _cursor_behind(found: Sequence[Row]) -> str | None:
    return msgspec.json.encode(found[-1][:2]).decode() if len(found) == MAX_KEYS else None

"""Copies: read jobs and idempotency keys completely, and store those of another engine.

1. `read` adds to the record of a job what other engines need.
2. `put` stores copies as they are: place in line, counters, history and unique key.
3. `list_keys`, `put_keys` and `list_holders`: keys, which may outlive their jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw
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
)
from windlass.engine.sqlite.statements import SQL, Row, rows
from windlass.engine.sqlite.transaction import (
    SMALL_CALL,
    Transaction,
    read_settings,
    unpack_settings,
)
from windlass.engine.sqlite.verbs import unique
from windlass.engine.sqlite.verbs.put import catch_up
from windlass.engine.sqlite.verbs.read import get

#: The states in which a job may hold its key although it needs no copy otherwise.
_DONE: Final = (State.SUCCEEDED, State.CANCELLED)
_cursor: Final = msgspec.json.Decoder(tuple[str, str])


def read(connection: apsw.Connection, ids: Sequence[str], now_ms: int) -> list[JobCopy | None]:
    settings = read_settings(connection)

    def read_one(record: JobRecord | None) -> JobCopy | None:
        if record is None:
            return None
        ((ready_ms, age, keep_until_ms, until, period_until_ms),) = rows(
            connection, "read_copy", record.id
        )
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
        )

    return [read_one(record) for record in get(connection, ids, now_ms)]


# ---------------------------------------------------------------------------------------- storing


def put(tx: Transaction, copies: Sequence[JobCopy]) -> list[CopyCode]:
    catch_up(tx, tx.sequence + 1)
    return [_put(tx, copy) for copy in copies]


def _put(tx: Transaction, copy: JobCopy) -> CopyCode:
    record = copy.record
    if tx.job(record.id) is not None:
        return CopyCode.KNOWN
    if record.unique_key is not None and copy.holds_key(tx.now_ms):
        if unique.find(tx.connection, record.task, record.unique_key, tx.now_ms) is not None:
            return CopyCode.HELD
        tx.run("keep_unique_key", record.task, record.unique_key, record.id)
    number = tx.next_number()
    tx.run("insert_copy", number, *_columns_of(tx, copy))
    if len(record.payload) > SMALL_CALL:
        tx.run("insert_payload", number, record.payload)
    tx.connection.executemany(SQL["insert_failure"], _failures_of(number, record))
    _note_stored(tx, record)
    return CopyCode.STORED


def _columns_of(tx: Transaction, copy: JobCopy) -> Row:
    """Return the values of the statement `insert_copy`, after the row number."""
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
        record.suspect,
        record.cancel_requested,
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
        record.payload if len(record.payload) <= SMALL_CALL else None,
    )


def _age_here(tx: Transaction, queue: str, line: LinePlace) -> int:
    """The age of the queue here when the job would have taken its place."""
    own = unpack_settings(tx.queues).get(queue_of(queue), USUAL).aged(tx.now_ms)
    return max(0, own.age - (line.queue_age - line.age))


def _failures_of(number: int, record: JobRecord) -> list[Row]:
    return [
        (number, at, one.at_ms, one.event, one.attempt, one.session, one.started_ms, one.error)
        for at, one in enumerate(record.failures, 1)
    ]


def _note_stored(tx: Transaction, record: JobRecord) -> None:
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


def list_keys(connection: apsw.Connection, cursor: str | None, now_ms: int) -> KeyPage:
    found = rows(connection, "list_keys", *_after(cursor), now_ms, MAX_KEYS)
    return KeyPage(tuple(map(_to_key, found)), _cursor_behind(found))


def _to_key(row: Row) -> KeyCopy:
    task, key, job_id, fingerprint, expires_ms = row
    return KeyCopy(task=task, key=key, id=job_id, fingerprint=fingerprint, expires_ms=expires_ms)


def put_keys(tx: Transaction, keys: Sequence[KeyCopy]) -> list[CopyCode]:
    return [_put_key(tx, key) for key in keys]


def _put_key(tx: Transaction, key: KeyCopy) -> CopyCode:
    known = tx.one("find_key", key.task, key.key, tx.now_ms)
    if known is not None:
        return CopyCode.KNOWN if known[0] == key.id else CopyCode.HELD
    tx.run("keep_key", key.task, key.key, key.id, key.fingerprint, key.expires_ms)
    return CopyCode.STORED


def list_holders(connection: apsw.Connection, cursor: str | None, now_ms: int) -> HolderPage:
    found = rows(connection, "list_unique_keys", *_after(cursor), MAX_KEYS)
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

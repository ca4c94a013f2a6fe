"""Change jobs that wait: their call, their queue, or when they are due."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.durations import LATEST_MS
from windlass.core.queues.labels import queue_of
from windlass.core.states import Event, Hold, State, is_allowed
from windlass.engine.contract import ChangeCode, JobChange, revision_of
from windlass.engine.sql.transaction import JobRow, SqlTransaction


def change_jobs(tx: SqlTransaction, changes: Sequence[JobChange]) -> list[ChangeCode]:
    return [_change(tx, tx.job(change.id), change) for change in changes]


def _change(tx: SqlTransaction, job: JobRow | None, change: JobChange) -> ChangeCode:
    if job is None:
        return ChangeCode.UNKNOWN
    if not is_allowed(State(job.state), Event.CLEAR) or not _is_as_seen(tx, job, change):
        return ChangeCode.REFUSED
    if change.payload is not None:
        tx.add_failure(job, Event.REVIVE, replace_payload(tx, job.row, change.payload))
    if change.queue is not None or change.run_in_ms is not None:
        _move(tx, job, change.queue or job.queue, change.run_in_ms)
    return ChangeCode.DONE


def _is_as_seen(tx: SqlTransaction, job: JobRow, change: JobChange) -> bool:
    due_ms = None if job.hold == Hold.PAUSED else job.due_ms
    found = revision_of(job.state, job.starts, job.strays, due_ms, job.queue)
    if change.seen not in (None, found):
        return False
    return change.seen_payload is None or (change.seen_payload,) == tx.one("read_payload", job.row)


def replace_payload(tx: SqlTransaction, row: int, payload: bytes) -> bytes:
    """Store a new payload and return the old one."""
    old = tx.one("read_payload", row)
    tx.store_payload(row, payload)
    return bytes(old[0]) if old else b""


def _move(tx: SqlTransaction, job: JobRow, queue: str, run_in_ms: int | None) -> None:
    """Move a job. One that stays in line keeps its place; one that leaves its queue takes the age
    of the new one."""
    source, was_in_line = State(job.state), job.state == State.READY
    keeps_age = was_in_line and queue_of(queue) == queue_of(job.queue)
    if run_in_ms is not None:
        job.hold = None
        job.due_ms = min(tx.now_ms + run_in_ms, LATEST_MS) if run_in_ms > 0 else None
        job.state = _state_after(source, run_in_ms)
    is_in_line = job.state == State.READY
    if is_in_line and not was_in_line:
        job.place, job.ready_ms = tx.next_number(), tx.now_ms
    elif was_in_line and not is_in_line:
        job.ready_ms = None
    keeps_age = keeps_age and is_in_line
    values = (job.place, job.state, job.hold, job.ready_ms, job.due_ms, keeps_age)
    tx.run("change_job", job.row, queue, *values)
    if is_in_line and not keeps_age:
        tx.note_age(job.row, queue)
    tx.touched.update((job.queue, queue))
    tx.counts[job.queue, source] -= 1
    tx.counts[queue, job.state] += 1
    if job.due_ms is None:
        tx.note_ready(queue, job.task, suspects=bool(job.suspect))
    else:
        tx.note_due(queue, job.due_ms)


def _state_after(state: State, run_in_ms: int) -> State:
    if run_in_ms <= 0:
        return State.READY
    return State.SCHEDULED if state is State.READY else state

"""Moves that time causes: due jobs become ready, lost jobs come back, expired jobs end."""

from __future__ import annotations

from typing import Final

from windlass.core.durations import LATEST_MS
from windlass.core.states import Event, Hold, Reason, State
from windlass.engine.contract import BITE, GONE_SESSION_MS
from windlass.engine.sql.transaction import JobRow, SqlTransaction

#: Marks of a dead session: its jobs are being taken back, or all were taken back.
DYING: Final = 1
EMPTY: Final = 2
_WAITING_FOR_INSTANT: Final = frozenset({State.SCHEDULED, State.RETRYING})


def promote(tx: SqlTransaction) -> None:
    """Make due jobs ready, in a bounded number."""
    for job in tx.load("load_due", tx.now_ms, BITE):
        if job.state == State.READY and job.hold is not None:
            offer_again(tx, job)
        elif job.state in _WAITING_FOR_INSTANT:
            tx.move(job, Event.DUE)
        else:
            tx.run("drop_due", job.row)
            tx.totals["orphans"] += 1


def offer_again(tx: SqlTransaction, job: JobRow) -> None:
    """End the hold of an unroutable job, which keeps its old place."""
    job.hold, job.due_ms = None, None
    tx.save(job)
    tx.touched.add(job.queue)
    tx.note_ready(job.queue, job.task, suspects=bool(job.suspect))


def reap(tx: SqlTransaction) -> bool:
    """Take back jobs of expired sessions, in a bounded number; return whether there may be more.

    The first batch declares the session dead in the same commit: no heartbeat can revive it."""
    if tx.now_ms < tx.reap_after_ms:
        return False
    left = BITE
    for session, is_described in tx.rows("list_silent_sessions", tx.now_ms):
        tx.totals["sessions_lost"] += is_described
        jobs = tx.load("load_held", session, left)
        for job in jobs:
            tx.move(job, Event.LOSE, error=b"")
        left -= len(jobs)
        tx.run("end_session", session, tx.now_ms + GONE_SESSION_MS, EMPTY if left else DYING)
        if not left:
            return True
    return False


def expire(tx: SqlTransaction, job_id: str) -> None:
    job = _load_ready(tx, job_id)
    if job is not None:
        tx.move(job, Event.EXPIRE, reason=Reason.EXPIRED)


def hold_paused(tx: SqlTransaction, job_id: str) -> None:
    """Take a job of a paused task out of its line; it keeps its place, and is never due."""
    job = _load_ready(tx, job_id)
    if job is not None:
        job.hold, job.due_ms = Hold.PAUSED, LATEST_MS
        tx.save(job)
        tx.touched.add(job.queue)


def _load_ready(tx: SqlTransaction, job_id: str) -> JobRow | None:
    """Load a job that was just read as ready; None if another transaction has changed it since."""
    job = tx.job(job_id)
    return job if job is not None and job.state == State.READY and job.hold is None else None

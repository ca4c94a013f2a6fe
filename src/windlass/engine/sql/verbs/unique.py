"""Unique keys: find the holder of a key, and decide about a job whose key is held.

1. `meet` replies for a job whose key is held: with the holder, with a refusal, or by giving the new
   call to the holder.
2. `declare` points a key to a new job, `take` to a job that is revived, and `forget` to no job.

The state of the job that a key points to decides whether the job holds the key. So claims and ends
of jobs need not update the key.
"""

from __future__ import annotations

from typing import NamedTuple

from windlass.core.queues.labels import queue_of
from windlass.core.states import Event, Reason, State
from windlass.core.unique import QUEUED, OnConflict, Until, is_held
from windlass.engine.contract import MIN_RECORD_MS, NewJob, Placed, PutCode, UniqueKey
from windlass.engine.sql.statements import Statements
from windlass.engine.sql.transaction import JobRow, SqlTransaction


class Holder(NamedTuple):
    """Columns of the statement `find_holder`."""

    id: str
    state: str
    until: str
    period_until_ms: int
    expires_ms: int | None

    def holds(self, now_ms: int) -> bool:
        return is_held(Until(self.until), State(self.state), self.period_until_ms, now_ms)

    @property
    def is_queued(self) -> bool:
        return State(self.state) in QUEUED

    def is_over(self, now_ms: int) -> bool:
        """Whether the holder waits and has expired, so that it must be cancelled first."""
        return self.is_queued and self.expires_ms is not None and self.expires_ms <= now_ms

    def answer(self, on_conflict: OnConflict) -> Placed | None:
        """The reply for a job whose key is held; None if the holder takes over its call."""
        if on_conflict is OnConflict.RETURN:
            return Placed(self.id, PutCode.EXISTING)
        if on_conflict is OnConflict.RAISE or not self.is_queued:
            return Placed(self.id, PutCode.DUPLICATE)
        return None


def find_latest(db: Statements, task: str, key: str) -> Holder | None:
    """Find the latest job under a key, whether it holds the key or not."""
    found = db.one("find_holder", task, key)
    return None if found is None else Holder(*found)


def find(db: Statements, task: str, key: str, now_ms: int) -> Holder | None:
    """Find the holder of a key."""
    holder = find_latest(db, task, key)
    return holder if holder is not None and holder.holds(now_ms) else None


def find_id(db: Statements, task: str, key: str, now_ms: int) -> str | None:
    holder = find(db, task, key, now_ms)
    return None if holder is None else holder.id


def meet(tx: SqlTransaction, job: NewJob) -> Placed | None:
    """Return the reply for a job that is not stored, because another job holds its key or an
    earlier call gave its call to another job; None if the job must be stored."""
    unique = job.unique
    if unique is None:
        return None
    if unique.on_conflict is OnConflict.REPLACE:
        replaced = tx.one("find_replaced", job.id, tx.now_ms)
        if replaced is not None:
            return Placed(replaced[0], PutCode.REPLACED)
    holder = _find_fresh(tx, job.task, unique.key)
    if holder is None:
        return None
    placed = holder.answer(unique.on_conflict)
    if placed is not None:
        return placed
    queued = _load(tx, holder)
    if State(queued.state) not in QUEUED:  # claimed since it was found
        return Placed(holder.id, PutCode.DUPLICATE)
    _replace(tx, queued, job, unique)
    return Placed(holder.id, PutCode.REPLACED)


def _find_fresh(tx: SqlTransaction, task: str, key: str) -> Holder | None:
    """Find the holder of a key. First cancel a waiting holder that has expired: the new call would
    otherwise be lost with that job."""
    holder = find(tx, task, key, tx.now_ms)
    if holder is None or not holder.is_over(tx.now_ms):
        return holder
    job = _load(tx, holder)
    if State(job.state) not in QUEUED:  # claimed since it was found
        return find(tx, task, key, tx.now_ms)
    if job.state != State.READY:
        tx.move(job, Event.DUE)
    tx.move(job, Event.EXPIRE, reason=Reason.EXPIRED)
    return find(tx, task, key, tx.now_ms)


def _load(tx: SqlTransaction, holder: Holder) -> JobRow:
    job = tx.job(holder.id)
    assert job is not None, "it was read in this transaction"
    return job


def _replace(tx: SqlTransaction, job: JobRow, new: NewJob, unique: UniqueKey) -> None:
    due_ms = new.due_ms(tx.now_ms)
    is_ready = due_ms <= tx.now_ms
    stays_in_line = is_ready and job.state == State.READY
    keeps_age = stays_in_line and queue_of(job.queue) == queue_of(new.queue)
    state = State.READY if is_ready else State.SCHEDULED
    tx.run("keep_replaced_put", job.row, tx.now_ms + MIN_RECORD_MS)
    tx.run(
        "replace_job",
        job.row,
        new.queue,
        -new.priority,
        job.place if stays_in_line or not is_ready else tx.next_number(),
        state,
        job.ready_ms if stays_in_line else tx.now_ms if is_ready else None,
        None if is_ready else due_ms,
        new.expiry_ms(tx.now_ms),
        unique.until,
        _period_until_ms(tx, unique),
        new.id,
        keeps_age,
    )
    if is_ready and not keeps_age:
        tx.note_age(job.row, new.queue)
    tx.store_payload(job.row, new.payload)
    tx.run("delete_steps", job.row)  # they are parts of the old call
    tx.touched.update((job.queue, new.queue))
    tx.counts[job.queue, job.state] -= 1
    tx.counts[new.queue, state] += 1
    tx.totals["replaced"] += 1
    tx.note_due(new.queue, due_ms)


def declare(tx: SqlTransaction, job: NewJob, unique: UniqueKey, row: int) -> None:
    tx.run("declare_unique", row, unique.key, unique.until, _period_until_ms(tx, unique))
    tx.run("keep_unique_key", job.task, unique.key, job.id)


def _period_until_ms(tx: SqlTransaction, unique: UniqueKey) -> int | None:
    return tx.now_ms + unique.period_ms if unique.period_ms else None


def take(tx: SqlTransaction, job: JobRow) -> bool:
    """Point the key to a revived job; return False if another job holds the key."""
    (key,) = tx.one("read_unique_key", job.id) or (None,)
    if key is None:
        return True
    tx.lock_keys([(job.task, key)])
    holder = find(tx, job.task, key, tx.now_ms)
    if holder is not None and holder.id != job.id:
        return False
    tx.run("keep_unique_key", job.task, key, job.id)
    return True


def forget(tx: SqlTransaction, job_id: str) -> None:
    tx.run("forget_unique_key", job_id)

"""Put new jobs, each at most once."""

from __future__ import annotations

import apsw

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.core.states import WAITING, State
from windlass.engine.contract import NewJob, Placed, PutCode, check_times
from windlass.engine.sqlite.statements import SQL
from windlass.engine.sqlite.transaction import SMALL_CALL, Transaction, unpack_settings
from windlass.engine.sqlite.verbs import unique


def put(tx: Transaction, job: NewJob, *, is_bounded: bool = True) -> Placed:
    """Store one job. A known id changes nothing; a known key returns the job that has the key.
    Without `is_bounded`, the job also goes into a full queue."""
    due_ms, expires_ms = tx.now_ms, None
    if job.has_times:
        check_times(job)
        due_ms, expires_ms = job.due_ms(tx.now_ms), job.expiry_ms(tx.now_ms)
    has_key = job.idempotency_key is not None or job.unique is not None
    if has_key and tx.job(job.id) is None:
        placed = _find_key(tx, job) or unique.meet(tx, job)
        if placed is not None:
            return placed
    if is_bounded and tx.queues and _is_full(tx, job) and tx.job(job.id) is None:
        return Placed(job.id, PutCode.FULL)
    is_ready = due_ms <= tx.now_ms
    state = State.READY if is_ready else State.SCHEDULED
    is_small = len(job.payload) <= SMALL_CALL
    row = _insert(
        tx,
        job.id,
        job.task,
        job.queue,
        -job.priority,
        state,
        tx.now_ms,
        None if is_ready else due_ms,
        expires_ms,
        job.payload if is_small else None,
    )
    if not tx.connection.changes():
        return Placed(job.id, PutCode.CREATED)  # an earlier call stored the job
    if not is_small:
        tx.connection.execute(SQL["insert_payload"], (row, job.payload))
    if is_ready:
        tx.arrive(row, job.queue, -job.priority)
    else:
        tx.note_due(job.queue, due_ms)
    if has_key:
        _keep_keys(tx, job, row)
    tx.counts[job.queue, state] += 1
    tx.totals["enqueued"] += 1
    return Placed(job.id, PutCode.CREATED)


def _insert(tx: Transaction, *columns: object) -> int:
    """Store a record and return its row. If the sequence lags behind the rows, it catches up."""
    tx.sequence += 1
    row = tx.sequence
    try:
        tx.connection.execute(SQL["insert_job"], (row, *columns))
    except apsw.ConstraintError:
        last = tx.one("last_row")
        if last is None or last[0] is None or last[0] < row:
            raise
        tx.sequence = last[0]
        tx.totals["orphans"] += 1
        row = tx.next_number()
        tx.run("insert_job", row, *columns)
    return row


def _find_key(tx: Transaction, job: NewJob) -> Placed | None:
    """Return the reply for a job with a known idempotency key."""
    if job.scoped_key is None:
        return None
    known = tx.one("find_key", job.task, job.scoped_key, tx.now_ms)
    if known is None:
        return None
    same = known[1] == job.fingerprint
    return Placed(known[0], PutCode.EXISTING if same else PutCode.CONFLICT)


def _keep_keys(tx: Transaction, job: NewJob, row: int) -> None:
    if job.scoped_key is not None:
        until_ms = tx.now_ms + tx.options.idempotency_ms
        tx.run("keep_key", job.task, job.scoped_key, job.id, job.fingerprint, until_ms)
    if job.unique is not None:
        unique.declare(tx, job, job.unique, row)


def _is_full(tx: Transaction, job: NewJob) -> bool:
    most = unpack_settings(tx.queues).get(queue_of(job.queue), USUAL).max_waiting
    if not most:
        return False
    (stored,) = tx.one("count_waiting", job.queue) or (0,)
    here = sum(tx.counts[job.queue, state] for state in WAITING)
    return bool(stored + here >= most)

"""Put one job of any kind, at most once. Each engine stores plain jobs in groups.

A repeat of a put is found by the insert itself: a known id inserts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.core.states import WAITING, State
from windlass.engine.contract import NewJob, Placed, PutCode, check_times
from windlass.engine.sql.transaction import SqlTransaction, unpack_settings
from windlass.engine.sql.verbs import unique


def put(tx: SqlTransaction, job: NewJob, *, is_bounded: bool = True) -> Placed:
    """Store one job. A known id changes nothing; a known key returns the job that has the key.
    Without `is_bounded`, the job also goes into a full queue."""
    record = make_record(job, tx.now_ms)
    *_, rank, state, _, due_ms, _ = record
    if job.idempotency_key is not None or job.unique is not None:
        tx.lock_keys(keys_of([job]))
        if not tx.knows(job.id):
            placed = _find_key(tx, job) or unique.meet(tx, job)
            if placed is not None:
                return placed
    if is_bounded and tx.queues and _is_full(tx, job) and not tx.knows(job.id):
        return Placed(job.id, PutCode.FULL)
    row = tx.insert_job(record, job.payload)
    if row is None:
        return Placed(job.id, PutCode.CREATED)  # an earlier call stored the job
    if due_ms is None:
        tx.arrive(row, job.task, job.queue, rank)
    else:
        tx.note_due(job.queue, due_ms)
    _keep_keys(tx, job, row)
    tx.counts[job.queue, state] += 1
    pair = (job.queue, job.task)
    tx.enqueued[pair] = tx.enqueued.get(pair, 0) + 1
    return Placed(job.id, PutCode.CREATED)


def make_record(job: NewJob, now_ms: int) -> tuple[Any, ...]:
    """Return the values of the statement `insert_job`, apart from row and payload."""
    if not job.has_times:
        return (job.id, job.task, job.queue, -job.priority, State.READY, now_ms, None, None)
    check_times(job)
    due_ms, expires_ms = job.due_ms(now_ms), job.expiry_ms(now_ms)
    state, due = (State.READY, None) if due_ms <= now_ms else (State.SCHEDULED, due_ms)
    return (job.id, job.task, job.queue, -job.priority, state, now_ms, due, expires_ms)


def keys_of(jobs: Iterable[NewJob]) -> Iterator[tuple[str, str]]:
    """List the unique and idempotency keys of jobs, each with its task."""
    for job in jobs:
        if job.unique is not None:
            yield job.task, job.unique.key
        if job.scoped_key is not None:
            yield job.task, job.scoped_key


def _find_key(tx: SqlTransaction, job: NewJob) -> Placed | None:
    """Return the reply for a job with a known idempotency key."""
    if job.scoped_key is None:
        return None
    known = tx.one("find_key", job.task, job.scoped_key, tx.now_ms)
    if known is None:
        return None
    return reply_for_key(job, known[0], known[1])


def reply_for_key(job: NewJob, known_id: str, fingerprint: str) -> Placed:
    """Return the reply for a job whose idempotency key another job has."""
    is_same = fingerprint == job.fingerprint
    return Placed(known_id, PutCode.EXISTING if is_same else PutCode.CONFLICT)


def _keep_keys(tx: SqlTransaction, job: NewJob, row: int) -> None:
    if job.scoped_key is not None:
        until_ms = tx.now_ms + tx.options.idempotency_ms
        tx.run("keep_key", job.task, job.scoped_key, job.id, job.fingerprint, until_ms)
    if job.unique is not None:
        unique.declare(tx, job, job.unique, row)


def _is_full(tx: SqlTransaction, job: NewJob) -> bool:
    most = most_waiting(unpack_settings(tx.queues), job.queue)
    if not most:
        return False
    tx.lock("line", job.queue)
    stored = int(tx.first("count_waiting", job.queue) or 0)
    return stored + count_moved(tx, job.queue) >= most


def most_waiting(settings: Mapping[str, QueueSettings], line: str) -> int:
    """Return the limit of waiting jobs of a line; 0 if there is none."""
    return settings.get(queue_of(line), USUAL).max_waiting


def count_moved(tx: SqlTransaction, line: str) -> int:
    """Return by how many waiting jobs this transaction has changed a line, which the stored
    counters do not have yet."""
    return sum(tx.counts[line, state] for state in WAITING)

"""Put new jobs, each at most once.

Plain jobs in a row are stored together, by one statement. A job with a key, or in a queue with
settings, is stored alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import NewJob, Placed, PutCode
from windlass.engine.postgres.transaction import Transaction
from windlass.engine.sql.transaction import unpack_settings
from windlass.engine.sql.verbs.put import make_record, put
from windlass.engine.sql.wakeup import ReadyLine


def chunks(jobs: Sequence[NewJob], queues: str) -> Iterator[Sequence[NewJob]]:
    """Split jobs so that a chunk takes a small number of statements: plain jobs in a row, or one
    other job. `queues` are the stored settings of queues."""
    plain: list[NewJob] = []
    for job in jobs:
        if _is_plain(job, queues):
            plain.append(job)
            continue
        if plain:
            yield plain
            plain = []
        yield [job]
    if plain:
        yield plain


def put_all(tx: Transaction, jobs: Sequence[NewJob]) -> list[Placed]:
    """Store jobs in their order."""
    placed: list[Placed] = []
    plain: list[NewJob] = []
    for job in jobs:
        if _is_plain(job, tx.queues):
            plain.append(job)
            continue
        placed += _put_plain(tx, plain)
        placed.append(put(tx, job))
        plain = []
    return placed + _put_plain(tx, plain)


def _is_plain(job: NewJob, queues: str) -> bool:
    if job.idempotency_key is not None or job.unique is not None:
        return False
    return not queues or queue_of(job.queue) not in unpack_settings(queues)


def _put_plain(tx: Transaction, jobs: Sequence[NewJob]) -> list[Placed]:
    """Store jobs without keys, in queues without settings."""
    if not jobs:
        return []
    records = {job.id: (*make_record(job, tx.now_ms), job.payload) for job in reversed(jobs)}
    stored = tx.insert_jobs([*reversed(records.values())])
    kept = [records[job_id] for job_id in stored]
    for _, _, line, _, _, _, due_ms, _, _ in kept:
        if due_ms is not None:
            tx.note_due(line, due_ms)
    for (task, line, state), number in Counter([(row[1], row[2], row[4]) for row in kept]).items():
        tx.counts[line, state] += number
        tx.enqueued[line, task] = tx.enqueued.get((line, task), 0) + number
        if state is State.READY:
            tx.made_ready[ReadyLine(line)] += number
            tx.ready_tasks.append((line, False, task, number))
    return [Placed(job.id, PutCode.CREATED) for job in jobs]

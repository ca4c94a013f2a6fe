"""Put new jobs, each at most once.

Plain jobs in a row are stored together, by one statement that is prepared once. A job with a key,
or in a queue with settings, is stored alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import NewJob, Placed, PutCode
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import unpack_settings
from windlass.engine.sql.verbs.put import make_record, put
from windlass.engine.sqlite.statements import SQL, repeat_values
from windlass.engine.sqlite.transaction import SMALL_CALL, Transaction

#: One statement inserts this many jobs: each run of a statement costs a search in the cache of
#: statements and a release of the GIL. More jobs per statement gain nothing.
_GROUP: Final = 10
_INSERT_GROUP: Final = repeat_values(SQL["insert_job"], _GROUP)


def put_all(tx: Transaction, jobs: Sequence[NewJob]) -> list[Placed]:
    """Store jobs in their order."""
    if len(jobs) == 1:
        return [put(tx, jobs[0])]
    placed: list[Placed] = []
    plain: list[NewJob] = []
    for job in jobs:
        has_key = job.idempotency_key is not None or job.unique is not None
        if has_key or (tx.queues and queue_of(job.queue) in unpack_settings(tx.queues)):
            placed += _put_plain(tx, plain)
            placed.append(put(tx, job))
            plain = []
        else:
            plain.append(job)
    return placed + _put_plain(tx, plain)


def _put_plain(tx: Transaction, jobs: Sequence[NewJob]) -> list[Placed]:
    """Store jobs without keys, in queues without settings."""
    if not jobs:
        return []
    tx.catch_up(tx.sequence + 1)
    begin, now_ms = tx.sequence + 1, tx.now_ms
    rows = [
        (number, *make_record(job, now_ms), job.payload if len(job.payload) <= SMALL_CALL else None)
        for number, job in enumerate(jobs, begin)
    ]
    tx.sequence += len(rows)
    before = tx.connection.total_changes()
    in_groups = len(rows) - len(rows) % _GROUP
    groups = [
        tuple(chain.from_iterable(rows[at : at + _GROUP])) for at in range(0, in_groups, _GROUP)
    ]
    tx.connection.executemany(_INSERT_GROUP, groups)
    tx.connection.executemany(SQL["insert_job"], rows[in_groups:])
    if tx.connection.total_changes() - before < len(rows):  # earlier calls stored some of them
        stored = {number for (number,) in tx.rows("list_rows", begin, tx.sequence)}
        rows = [row for row in rows if row[0] in stored]
    large = [(row[0], jobs[row[0] - begin].payload) for row in rows if row[-1] is None]
    tx.connection.executemany(SQL["insert_payload"], large)
    _note_stored(tx, rows)
    return [Placed(job.id, PutCode.CREATED) for job in jobs]


def _note_stored(tx: Transaction, rows: Sequence[Row]) -> None:
    """Report new jobs to the bookkeeping: once for each line, and for each job that waits."""
    for number, _, _, line, rank, _, _, due_ms, _, _ in rows:
        if due_ms is not None:
            tx.note_due(line, due_ms)
        elif line not in tx.arrived or (rank, number) < tx.arrived[line]:
            tx.arrived[line] = (rank, number)
    for (task, line, state), number in Counter([(row[2], row[3], row[5]) for row in rows]).items():
        tx.counts[line, state] += number
        tx.enqueued[line, task] = tx.enqueued.get((line, task), 0) + number
        if state is State.READY:
            tx.note_ready(line, task, number)

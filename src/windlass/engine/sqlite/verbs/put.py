"""Put new jobs, each at most once.

1. `put_all` splits the jobs of a call: plain jobs in a row are stored together, by one statement
   that is prepared once; a job with a key, or in a queue with settings, is stored alone.
2. `put` stores one job of any kind.

A repeat of a put is found by the insert itself: a known id inserts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

import apsw

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.core.states import WAITING, State
from windlass.engine.contract import NewJob, Placed, PutCode, check_times
from windlass.engine.sqlite.statements import SQL, Row, first, repeat_values
from windlass.engine.sqlite.transaction import SMALL_CALL, Transaction, unpack_settings
from windlass.engine.sqlite.verbs import unique
from windlass.engine.sqlite.wakeup import ReadyLine

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


def put(tx: Transaction, job: NewJob, *, is_bounded: bool = True) -> Placed:
    """Store one job. A known id changes nothing; a known key returns the job that has the key.
    Without `is_bounded`, the job also goes into a full queue."""
    row = _row_of(tx, job)
    *_, rank, state, _, due_ms, _, call = row
    has_key = job.idempotency_key is not None or job.unique is not None
    if has_key and tx.job(job.id) is None:
        placed = _find_key(tx, job) or unique.meet(tx, job)
        if placed is not None:
            return placed
    if is_bounded and tx.queues and _is_full(tx, job) and tx.job(job.id) is None:
        return Placed(job.id, PutCode.FULL)
    number = _insert(tx, row)
    if not tx.connection.changes():
        return Placed(job.id, PutCode.CREATED)  # an earlier call stored the job
    if call is None:
        tx.connection.execute(SQL["insert_payload"], (number, job.payload))
    if due_ms is None:
        tx.arrive(number, job.task, job.queue, rank)
    else:
        tx.note_due(job.queue, due_ms)
    if has_key:
        _keep_keys(tx, job, number)
    tx.counts[job.queue, state] += 1
    pair = (job.queue, job.task)
    tx.enqueued[pair] = tx.enqueued.get(pair, 0) + 1
    return Placed(job.id, PutCode.CREATED)


def _put_plain(tx: Transaction, jobs: Sequence[NewJob]) -> list[Placed]:
    """Store jobs without keys, in queues without settings."""
    if not jobs:
        return []
    catch_up(tx, tx.sequence + 1)
    begin = tx.sequence + 1
    rows = [(number, *_row_of(tx, job)) for number, job in enumerate(jobs, begin)]
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
            tx.made_ready[ReadyLine(line)] += number
            tx.ready_tasks.append((line, False, task, number))


def _row_of(tx: Transaction, job: NewJob) -> Row:
    """Return the values of the statement `insert_job`, after the row number."""
    now_ms, payload = tx.now_ms, job.payload
    call = payload if len(payload) <= SMALL_CALL else None
    if not job.has_times:
        return (job.id, job.task, job.queue, -job.priority, State.READY, now_ms, None, None, call)
    check_times(job)
    due_ms, expires_ms = job.due_ms(now_ms), job.expiry_ms(now_ms)
    state, due = (State.READY, None) if due_ms <= now_ms else (State.SCHEDULED, due_ms)
    return (job.id, job.task, job.queue, -job.priority, state, now_ms, due, expires_ms, call)


def _insert(tx: Transaction, row: Row) -> int:
    """Store a record and return its number."""
    number = tx.next_number()
    try:
        tx.connection.execute(SQL["insert_job"], (number, *row))
    except apsw.ConstraintError:
        if not catch_up(tx, number):
            raise
        number = tx.next_number()
        tx.connection.execute(SQL["insert_job"], (number, *row))
    return number


def catch_up(tx: Transaction, number: int) -> bool:
    """Continue the sequence after the last row if it lags behind; return whether it did."""
    last = first(tx.connection, "last_row")
    if last is None or last < number:
        return False
    tx.sequence = last
    tx.totals["orphans"] += 1
    return True


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

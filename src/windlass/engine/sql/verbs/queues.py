"""Queues: their settings, their lines with jobs, and purging.

A queue has a line of its own name, and more lines for jobs that require labels: see
`core/queues/labels.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.engine.contract import BITE, Emptied, QueueChange, QueueRecord, list_records
from windlass.engine.sql.statements import Statements
from windlass.engine.sql.transaction import SqlTransaction, read_settings
from windlass.engine.sql.verbs import unique
from windlass.engine.sql.wakeup import ReadyLine

#: Cursors of `purge`: first for ready jobs, then due_ms and row of the last job read.
_IN_LINE: Final = "line"
_FROM_THE_FIRST: Final = "-1:0"
#: A text that sorts after every name of a line.
_BEHIND_ALL: Final = "\U0010ffff"


def ready_lines(db: Statements, queue: str | None = None) -> Iterator[str]:
    """Iterate over lines with ready jobs, of all queues or one, by one index seek per line."""
    after, before = ("", _BEHIND_ALL) if queue is None else (f"{queue}+", f"{queue},")
    if queue is not None:
        yield queue
    while (after := db.first("next_ready_line", after, before)) is not None:
        yield after


# --------------------------------------------------------------------------------------- settings


def list_queues(db: Statements, _now_ms: int) -> list[QueueRecord]:
    return list_records(read_settings(db))


def change_queue(tx: SqlTransaction, queue: str, change: QueueChange) -> None:
    settings = tx.lock_settings()
    own = settings.get(queue, USUAL)
    if change.paused is not None:
        own = replace(own, paused=change.paused)
    if change.ageing_ms is not None:
        own = own.with_ageing(change.ageing_ms, tx.now_ms)
    if change.max_waiting is not None:
        own = replace(own, max_waiting=change.max_waiting)
    if change.least_age is not None:
        own = own.aged_to(change.least_age, tx.now_ms)
    tx.write_queues({**settings, queue: own})
    tx.touch_queue(queue)
    if change.paused is False:
        for suspects in (False, True):
            tx.made_ready[ReadyLine(queue, suspects)] = BITE  # wake all waiting sessions


# ----------------------------------------------------------------------------------------- purging


def purge(tx: SqlTransaction, queue: str, cursor: str | None) -> Emptied:
    """Remove ready jobs, then waiting jobs, which are searched across all queues."""
    if cursor is None or cursor == _IN_LINE:
        number = _purge_lines(tx, queue)
        return Emptied(number, _IN_LINE if number == BITE else _FROM_THE_FIRST)
    return _purge_later(tx, queue, *map(int, cursor.split(":")))


def _purge_lines(tx: SqlTransaction, queue: str) -> int:
    number = 0
    for line in ready_lines(tx, queue):
        for row, job_id, _, state in tx.rows("load_ready_in", line, BITE - number):
            _clear(tx, row, job_id, line, state)
            number += 1
    return number


def _purge_later(tx: SqlTransaction, queue: str, due_ms: int, row: int) -> Emptied:
    seen = tx.rows("list_waiting_later", due_ms, row, BITE)
    found = [job for job in seen if queue_of(job[3]) == queue]
    for _, row, job_id, line, state in found:
        _clear(tx, row, job_id, line, state)
    return Emptied(len(found), f"{seen[-1][0]}:{seen[-1][1]}" if len(seen) == BITE else None)


def _clear(tx: SqlTransaction, row: int, job_id: str, line: str, state: str) -> None:
    unique.forget(tx, job_id)
    tx.remove(row, line, state)
    tx.ended.append(job_id)
    tx.run("forget_key", job_id)
    tx.totals["cleared"] += 1

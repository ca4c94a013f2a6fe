"""Queues: their settings, the lines that a plan serves, and purging.

A queue has a line of its own name, and more lines for jobs that require labels: see
`core/queues/labels.py`. An index lists the lines with jobs, so a claim skips the other lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import apsw
from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.engine.contract import BITE, Emptied, Plan, QueueChange, QueueRecord, list_records
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.line_index import Group
from windlass.engine.sqlite.statements import first
from windlass.engine.sqlite.transaction import Transaction, read_settings, unpack_settings
from windlass.engine.sqlite.verbs import unique
from windlass.engine.sqlite.wakeup import ReadyLine

#: Cursors of `purge`: first for ready jobs, then due_ms and row of the last job read.
_IN_LINE: Final = "line"
_FROM_THE_FIRST: Final = "-1:0"


class Lines:
    """Lines that a plan serves."""

    def __init__(
        self, connection: apsw.Connection, settings: Mapping[str, QueueSettings], plan: Plan
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._plan = plan

    def serves(self, line: str) -> bool:
        return self._plan.serves(line) and not self._is_paused(queue_of(line))

    def of_queue(self, queue: str, *, suspects: bool) -> list[str]:
        """List the queue's own line, and its lines with labels that have jobs for this worker."""
        if self._is_paused(queue):
            return []
        if not self._plan.labels:
            return [queue]
        return [queue, *self._between(f"{queue}+", f"{queue},", suspects)]

    def groups(self, *, suspects: bool) -> Iterator[Group]:
        """Iterate over the groups of lines to claim from, for a plan that serves every queue."""
        return line_index.groups(self._connection, suspects=suspects, labels=self._plan.labels)

    def have_some(self, *, suspects: bool) -> bool:
        """Return whether there is anything to claim."""
        if not self._plan.queues:
            return next(self.groups(suspects=suspects), None) is not None
        statement = "any_suspect_in" if suspects else "any_ready_in"
        return any(
            first(self._connection, statement, line)
            for queue in self._plan.queues
            for line in self.of_queue(queue, suspects=suspects)
        )

    def _between(self, after: str, before: str, suspects: bool) -> Iterator[str]:
        statement = "next_suspect_line" if suspects else "next_line"
        while (after := first(self._connection, statement, after, before)) is not None:
            if self.serves(after):
                yield after

    def _is_paused(self, queue: str) -> bool:
        return queue in self._settings and self._settings[queue].paused


# --------------------------------------------------------------------------------------- settings


def list_queues(connection: apsw.Connection, _now_ms: int) -> list[QueueRecord]:
    return list_records(read_settings(connection))


def change_queue(tx: Transaction, queue: str, change: QueueChange) -> None:
    settings = unpack_settings(tx.queues)
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
    tx.touched.update(line_index.ready_lines(tx.connection, queue))
    if change.paused is False:
        for suspects in (False, True):
            tx.made_ready[ReadyLine(queue, suspects)] = BITE  # wake all waiting sessions


# ----------------------------------------------------------------------------------------- purging


def purge(tx: Transaction, queue: str, cursor: str | None) -> Emptied:
    """Remove ready jobs, then waiting jobs, which are searched across all queues."""
    if cursor is None or cursor == _IN_LINE:
        number = _purge_lines(tx, queue)
        return Emptied(number, _IN_LINE if number == BITE else _FROM_THE_FIRST)
    return _purge_later(tx, queue, *map(int, cursor.split(":")))


def _purge_lines(tx: Transaction, queue: str) -> int:
    number = 0
    for line in line_index.ready_lines(tx.connection, queue):
        for row, job_id, _, state in tx.rows("load_ready_in", line, BITE - number):
            _clear(tx, row, job_id, line, state)
            number += 1
    return number


def _purge_later(tx: Transaction, queue: str, due_ms: int, row: int) -> Emptied:
    seen = tx.rows("list_waiting_later", due_ms, row, BITE)
    found = [job for job in seen if queue_of(job[3]) == queue]
    for _, row, job_id, line, state in found:
        _clear(tx, row, job_id, line, state)
    return Emptied(len(found), f"{seen[-1][0]}:{seen[-1][1]}" if len(seen) == BITE else None)


def _clear(tx: Transaction, row: int, job_id: str, line: str, state: str) -> None:
    unique.forget(tx, job_id)
    tx.remove(row, line, state)
    tx.ended.append(job_id)
    tx.run("forget_key", job_id)
    tx.totals["cleared"] += 1

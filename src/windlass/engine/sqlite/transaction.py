"""One write transaction on SQLite: its statements, and the books that it keeps.

`settle` updates the index of lines, then writes sequence, counters and totals once, at the end.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from windlass.core.history import OTHER
from windlass.core.longest_lease import LongestLease
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.engine.contract import MAX_PAIRS, EngineOptions
from windlass.engine.sql.transaction import SqlTransaction, unpack_settings
from windlass.engine.sql.verbs.queues import ready_lines
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.statements import SQL, SQLiteStatements

#: A call of at most this many bytes stands in the record. A claim and an end rewrite the record, so
#: a large call stands in a table of its own.
SMALL_CALL: Final = 100


class Transaction(SQLiteStatements, SqlTransaction):
    """State of one write transaction on SQLite."""

    sequence: int  # the last place in line that was given to a job

    def __init__(self, connection: apsw.Connection, now_ms: int, options: EngineOptions) -> None:
        SQLiteStatements.__init__(self, connection)
        SqlTransaction.__init__(self, now_ms, options)
        #: line -> rank and place of the best job that entered the line
        self.arrived: dict[str, tuple[int, int]] = {}
        ((*self._stored_meta, self.queues),) = connection.execute(SQL["read_meta"])
        self.sequence, self.last_seen_ms, self.reap_after_ms, *longest = self._stored_meta
        self.longest = LongestLease(*longest)

    # ------------------------------------------------------------------------------- records

    def next_number(self) -> int:
        self.sequence += 1
        return self.sequence

    def insert_job(self, record: tuple[Any, ...], payload: bytes) -> int | None:
        return self._insert("insert_job", record, payload)

    def insert_copy(self, record: tuple[Any, ...], payload: bytes) -> int:
        number = self._insert("insert_copy", record, payload)
        assert number is not None, "its id is not known"
        return number

    def _insert(self, name: str, record: tuple[Any, ...], payload: bytes) -> int | None:
        call = payload if len(payload) <= SMALL_CALL else None
        number = self.next_number()
        try:
            self.connection.execute(SQL[name], (number, *record, call))
        except apsw.ConstraintError:
            if not self.catch_up(number):
                raise
            number = self.next_number()
            self.connection.execute(SQL[name], (number, *record, call))
        if not self.connection.changes():
            return None
        if call is None:
            self.connection.execute(SQL["insert_payload"], (number, payload))
        return number

    def catch_up(self, number: int) -> bool:
        """Continue the sequence after the last row if it lags behind; return whether it did."""
        last = self.first("last_row")
        if last is None or last < number:
            return False
        self.sequence = last
        self.totals["orphans"] += 1
        return True

    def store_payload(self, row: int, payload: bytes) -> None:
        is_small = len(payload) <= SMALL_CALL
        self.run("set_call", row, payload if is_small else None)
        if is_small:
            self.run("delete_payload", row)
        else:
            self.run("replace_payload", row, payload)

    def delete_job(self, row: int) -> None:
        for name in ("delete_job", "delete_payload", "delete_failures", "delete_steps"):
            self.run(name, row)

    # --------------------------------------------------------------------------- bookkeeping

    def refresh_lines(self) -> None:
        """Update the index of lines. Called before the index is read, and before the commit."""
        if not self.touched and not self.arrived:
            return
        settings = unpack_settings(self.queues)
        for line in self.touched:
            line_index.refresh(self.connection, line, settings)
        for line, (rank, place) in self.arrived.items():
            if line not in self.touched:
                line_index.add_first(self.connection, line, settings, rank, place)
        self.touched.clear()
        self.arrived.clear()

    def touch_queue(self, queue: str) -> None:
        self.touched.update(ready_lines(self, queue))

    def arrive(self, row: int, task: str, line: str, rank: int) -> None:
        """Note a new ready job, with its row as its place. `rank` does not include its age."""
        if self.queues:
            self.note_age(row, line)
            rank += unpack_settings(self.queues).get(queue_of(line), USUAL).age
        known = self.arrived.get(line)
        if known is None or (rank, row) < known:
            self.arrived[line] = (rank, row)
        self.note_ready(line, task)

    def _count_enqueued(self, queue: str, task: str, by: int) -> None:
        """Count new jobs of a queue and task; those beyond the limit of pairs count together."""
        self.connection.execute(SQL["add_enqueued"], (queue, task, by))
        if self.connection.changes():
            return
        if self.rows("count_pairs", OTHER)[0][0] >= MAX_PAIRS:
            queue = task = OTHER
        self.run("begin_enqueued", queue, task, by, self.now_ms)

    def write_counts(self) -> None:
        """Write the numbers of records. Called before they are read, and before the commit."""
        counts = [(*key, by) for key, by in self.counts.items() if by]
        self.connection.executemany(SQL["add_counter"], counts)
        self.counts.clear()

    def settle(self) -> None:
        """Write the bookkeeping. Called just before the commit."""
        self.refresh_lines()
        meta = [self.sequence, self.last_seen_ms, self.reap_after_ms, *self.longest]
        if meta != self._stored_meta:
            self.run("write_meta", *meta)
        self.write_counts()
        if self.totals:
            totals = [(name, by) for name, by in self.totals.items() if by]
            self.connection.executemany(SQL["add_total"], totals)
        for (line, task), by in self.enqueued.items():
            self._count_enqueued(queue_of(line), task, by)

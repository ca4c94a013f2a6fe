"""One write transaction on PostgreSQL: its statements, its locks, and the books that it keeps.

Several transactions write at once. A move locks the record of its job first. What has no record yet
(a key, a document) is locked by its name. `settle` adds one row for each changed counter, and
writes the row of bookkeeping last, since other transactions wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from windlass.core.ids import blake2b
from windlass.core.longest_lease import LongestLease
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.core.states import State
from windlass.engine.contract import EngineOptions
from windlass.engine.postgres.pipeline import Reply
from windlass.engine.postgres.statements import PostgresStatements, escape, pack_numbers
from windlass.engine.sql.transaction import JobRow, SqlTransaction, unpack_settings

#: A sign of life of a worker is stored when the last one is older than this. Workers write to the
#: same row, so they do so seldom.
SEEN_MS: Final = 500
#: The partition of ended jobs that are kept for longer than the ring is long.
LATER_SLOT: Final = 8
#: Take at most this many places in line from the sequence at once.
_MOST_NUMBERS: Final = 64


def lock_number(*names: str) -> int:
    """The number that stands for a name in locks of the server: 64 bits of its hash."""
    packed = "\0".join(names).encode()
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), signed=True)


def lock_names(db: PostgresStatements, names: Iterable[Sequence[str]]) -> None:
    """Lock names by one statement, in the order of their numbers."""
    numbers = sorted({lock_number(db.schema, *name) for name in names})
    if numbers:
        db.run("lock_names", pack_numbers(numbers))


class Start(msgspec.Struct, frozen=True, array_like=True):
    """The row of the statement `begin`."""

    now_ms: int
    format: int
    identity: str
    queues: str
    last_seen_ms: int | None
    reap_after_ms: int
    longest_lease_ms: int
    longest_until_ms: int
    next_lease_ms: int

    @property
    def longest(self) -> LongestLease:
        return LongestLease(self.longest_lease_ms, self.longest_until_ms, self.next_lease_ms)

    def is_lease_news(self, lease_ms: int, now_ms: int) -> bool:
        """Whether a sign of life of a worker with this lease changes more than its time."""
        return self.longest.heard(lease_ms, now_ms) != self.longest


class Transaction(PostgresStatements, SqlTransaction):
    """State of one write transaction on PostgreSQL."""

    is_callers = False  # whether the transaction is the caller's, and may stay open for long

    def __init__(
        self, db: PostgresStatements, start: Start, options: EngineOptions, clock: str
    ) -> None:
        PostgresStatements.__init__(self, db.pipeline, db.schema, prepare=db.prepare)
        self._begin(start, options, clock)

    def _begin(self, start: Start, options: EngineOptions, clock: str) -> None:
        SqlTransaction.__init__(self, start.now_ms, options)
        self.clock = clock  # what statements that read the clock add to it
        self._start = start
        self.identity = start.identity
        self.queues = start.queues
        self.last_seen_ms = start.last_seen_ms
        self.reap_after_ms = start.reap_after_ms
        self.longest = start.longest
        self._numbers: list[int] = []
        self._most_numbers = 1

    # ---------------------------------------------------------------------------------- locks

    def lock_all(self, names: Iterable[Sequence[str]]) -> None:
        lock_names(self, names)

    def lock_keys(self, keys: Iterable[tuple[str, str]]) -> None:
        found = list(dict.fromkeys(keys))
        self.lock_all(("key", *key) for key in found)
        uniques = [key for key in found if "\0" not in key[1]]  # other keys are no unique keys
        if uniques:
            tasks, names = zip(*uniques, strict=True)
            holders = "lock_waiting_holders" if self.is_callers else "lock_holders"
            self.run(holders, list(tasks), list(names))

    def lock_settings(self) -> Mapping[str, QueueSettings]:
        self.queues = self.first("lock_queues")
        return unpack_settings(self.queues)

    # ------------------------------------------------------------------------------- records

    def start(self, name: str, *values: Any) -> Reply:
        return super().start(name, *plain_values(name, values))

    def job(self, job_id: str) -> JobRow | None:
        found = self.load("load_job", job_id) or self.load("load_ended_job", job_id)
        return found[0] if found else None

    def job_to_end(self, job_id: str) -> JobRow | None:
        if self.is_callers:
            return self.job(job_id)
        found = self.later("load_job", job_id)
        [(now_ms,)] = self.rows("read_clock", self.clock)
        self.now_ms = max(self.now_ms, now_ms)
        rows = found()
        return JobRow(*rows[0]) if rows else self.job(job_id)

    def knows(self, job_id: str) -> bool:
        return bool(self.first("is_known", job_id))

    def next_number(self) -> int:
        if not self._numbers:
            rows = self.rows("next_numbers", self._most_numbers)
            self._numbers = [number for (number,) in reversed(rows)]
            self._most_numbers = min(4 * self._most_numbers, _MOST_NUMBERS)
        return self._numbers.pop()

    def insert_job(self, record: tuple[Any, ...], payload: bytes) -> int | None:
        found = self.insert_jobs([(*record, payload)])
        return found.get(record[0])

    def insert_jobs(self, records: list[tuple[Any, ...]]) -> dict[str, int]:
        """Store new jobs; return the rows of those that were not known, by id."""
        ids, tasks, lines, ranks, states, *instants, payloads = zip(*records, strict=True)
        names = [list(ids), list(tasks), list(lines), pack_numbers(ranks), list(map(str, states))]
        stored = self.rows("insert_jobs", *names, *map(pack_numbers, instants), list(payloads))
        rows = {job_id: row for row, job_id in stored}
        for (row,) in self.rows("delete_repeated", pack_numbers(rows.values())) if rows else ():
            rows = {job_id: known for job_id, known in rows.items() if known != row}
        return rows

    def insert_copy(self, record: tuple[Any, ...], payload: bytes) -> int:
        _, _, _, _, state, *_ = record
        if state == State.SUCCEEDED:
            return int(self.first("insert_ended_copy", *record, payload, LATER_SLOT))
        number = self.next_number()
        self.run("insert_copy", *record, payload, number)
        return number

    def store_payload(self, row: int, payload: bytes) -> None:
        self.run("set_call", row, payload)

    def delete_job(self, row: int) -> None:
        self.run("delete_job", row)

    # --------------------------------------------------------------------------- bookkeeping

    def arrive(self, row: int, task: str, line: str, rank: int) -> None:
        if self.queues:
            self.note_age(row, line)
        self.note_ready(line, task)

    def age_of(self, line: str) -> int:
        """The age of a queue at this instant, to compare jobs of several queues."""
        if not self.queues:
            return 0
        settings = unpack_settings(self.queues)
        return settings.get(queue_of(line), USUAL).aged(self.now_ms).age

    def write_counts(self) -> None:
        self._add_deltas(
            [("jobs", line, str(state), by) for (line, state), by in self.counts.items()]
        )
        self.counts.clear()

    def _add_deltas(self, deltas: list[tuple[str, str, str, int]]) -> None:
        deltas = [delta for delta in deltas if delta[-1]]
        if deltas:
            *names, numbers = zip(*deltas, strict=True)
            self.run("add_deltas", *map(list, names), pack_numbers(numbers))

    def settle(self) -> None:
        """Write the bookkeeping. Called just before the commit."""
        self._add_deltas(
            [
                *(("jobs", line, str(state), by) for (line, state), by in self.counts.items()),
                *(("total", name, "", by) for name, by in self.totals.items()),
                *(
                    ("enqueued", queue_of(line), task, by)
                    for (line, task), by in self.enqueued.items()
                ),
            ]
        )
        start = self._start
        has_seen = self.last_seen_ms is not None and not (
            start.last_seen_ms is not None and 0 <= self.last_seen_ms - start.last_seen_ms < SEEN_MS
        )
        is_new = self.longest != start.longest or self.reap_after_ms != start.reap_after_ms
        if not has_seen and not is_new:
            return
        reap_after_ms = None if self.reap_after_ms == start.reap_after_ms else self.reap_after_ms
        self.run("write_meta", self.last_seen_ms, reap_after_ms, *self.longest)


#: Statements whose second parameter is a key.
_WITH_KEYS: Final = frozenset({"find_key", "keep_key"})


def plain_values(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a statement as PostgreSQL can store them."""
    if name not in _WITH_KEYS:
        return values
    task, key, *others = values
    return (task, escape(key), *others)

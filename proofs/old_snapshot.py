"""Claims on PostgreSQL stay quick while a transaction of minutes keeps the server from removing
dead rows, and tables are small again after its end.

1. A server with autovacuum has many finished jobs. One client puts jobs at a steady rate, another
   claims and finishes them; how long a claim takes is measured first without the transaction.
2. A transaction reads something, and stays open. Each claim then leaves a dead row before the next
   ready jobs.
3. The transaction ends, and the server removes the dead rows, and the end of the file.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from tests.postgres_backlog import add_ended_jobs
from tests.postgres_server import OWNER, Connection, PostgresServer
from tests.worker.yard import until
from windlass.core.ids import new_id
from windlass.engine.contract import Beat, Engine, EngineOptions, NewJob, Plan, Succeeded
from windlass.engine.url import open_engine

RATE: Final = 300
#: Jobs that are put together, and most jobs of a claim.
BATCH: Final = 3
BASELINE_S: Final = 20.0
#: The most by which the transaction may multiply the 99th percentile of claims.
MOST_GROWTH: Final = 5.0
#: Claims below this are always quick enough, in milliseconds.
QUICK_MS: Final = 10.0
#: How long autovacuum may take after the transaction, in seconds; and what it may leave.
VACUUM_S: Final = 60.0
LEFT_ROWS: Final = 10_000
#: How much larger the table may stay than before. Its indexes keep their pages, and use them again.
MORE_BYTES: Final = 1_000_000
LEASE_MS: Final = 60_000
TEND_S: Final = 5.0
_SETTINGS: Final = {
    "autovacuum": "on",
    "autovacuum_naptime": "1s",
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
}
_SIZES: Final = """
SELECT pg_table_size('windlass.jobs'), pg_indexes_size('windlass.jobs'),
       pg_stat_get_dead_tuples('windlass.jobs'::regclass)
"""


class OpenTransaction(NamedTuple):
    """A case of the proof: how long the transaction is open, and the number of finished jobs."""

    seconds: float
    finished: int


SHORT: Final = OpenTransaction(60.0, 1_000_000)
LONG: Final = OpenTransaction(300.0, 10_000_000)


def prove(_folder: Path, hold: OpenTransaction = SHORT) -> Iterator[str]:
    server = PostgresServer(fsync=True, **_SETTINGS)
    try:
        database = server.new_database()
        engine = open_engine(server.url(database, user=OWNER), EngineOptions(lease_ms=LEASE_MS))
        engine.stats()
        with server.connect(database) as connection:
            add_ended_jobs(connection, hold.finished)
            with closing(Load(engine)) as load:
                yield from measure(server, database, connection, load, hold)
        assert engine.check() == []
        engine.shutdown()
    finally:
        server.end()


prove_long: Final = partial(prove, hold=LONG)


def measure(
    server: PostgresServer, database: str, connection: Connection, load: Load, hold: OpenTransaction
) -> Iterator[str]:
    load.start()
    base = load.claims(BASELINE_S)
    most_bytes = sizes(connection).table + MORE_BYTES
    yield (
        f"{hold.finished:,} finished jobs, {RATE} jobs/s: a claim takes {base}; {sizes(connection)}"
    )
    with server.connect(database) as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM windlass.meta")
        held = load.claims(hold.seconds)
        dead = sizes(connection).dead
        yield f"during a transaction of {hold.seconds:g} s: {held}; {sizes(connection)}"
    began = time.monotonic()
    until(lambda: sizes(connection).dead <= LEFT_ROWS, "dead rows removed", VACUUM_S)
    yield f"{time.monotonic() - began:.0f} s after it, under the same load: {sizes(connection)}"
    until(lambda: sizes(connection).table <= most_bytes, "the table small again", VACUUM_S)
    yield f"{time.monotonic() - began:.0f} s after it: {sizes(connection)}"
    after = load.claims(BASELINE_S / 2)
    yield f"then a claim takes {after}"
    assert dead > LEFT_ROWS, f"expected dead rows during the transaction, found {dead}"
    assert held.p99 <= max(QUICK_MS, MOST_GROWTH * base.p99)
    assert after.p99 <= max(QUICK_MS, MOST_GROWTH * base.p99)


class Sizes(NamedTuple):
    """The bytes of the table of waiting and running jobs and of its indexes, and its dead rows."""

    table: int
    indexes: int
    dead: int

    def __str__(self) -> str:
        megabytes = f"table {self.table / 1e6:.1f} MB, its indexes {self.indexes / 1e6:.1f} MB"
        return f"{self.dead:,} dead rows, {megabytes}"


def sizes(connection: Connection) -> Sizes:
    [row] = connection.execute(_SIZES).fetchall()
    return Sizes(*map(int, row))


class ClaimLatencies(NamedTuple):
    """How long claims took, in milliseconds."""

    p50: float
    p99: float
    number: int

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms ({self.number:,} claims)"


class Load:
    """Puts jobs at a steady rate, and claims and finishes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._nonces = count(1)
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._times: list[float] = []
        self._errors: list[str] = []

    def start(self) -> None:
        self._is_over.clear()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (self._produce, self._consume, self._tend)
        ]
        for thread in self._threads:
            thread.start()

    def claims(self, seconds: float) -> ClaimLatencies:
        """Measure the claims of some time."""
        self._times = []
        self._is_over.wait(seconds)
        times, self._times = self._times, []
        assert not self._errors, self._errors
        cuts = statistics.quantiles(times, n=100)
        return ClaimLatencies(statistics.median(times), cuts[98], len(times))

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the proof reports it
            self._errors.append(repr(error))
            self._is_over.set()

    def _produce(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            self._engine.put(
                [
                    NewJob(id=id, task="task", queue="default", payload=b"x")
                    for id in self._engine.new_ids(BATCH, "task", "default")
                ]
            )
            due += BATCH / RATE

    def _tend(self) -> None:
        """Maintenance, as workers do it."""
        while not self._is_over.wait(TEND_S):
            self._engine.tend()

    def _consume(self) -> None:
        session = new_id(time.time_ns() // 1_000_000)
        self._engine.beat([Beat(session=session, info=b"load")])
        beat_at = time.monotonic() + LEASE_MS / 3000
        outcomes: tuple[Succeeded, ...] = ()
        while not self._is_over.is_set():
            nonce = f"{next(self._nonces):016}"
            began = time.monotonic()
            turn = self._engine.turn(session, outcomes, nonce, Plan(), BATCH)
            if turn.batch.claims:
                self._times.append((time.monotonic() - began) * 1000)
            outcomes = tuple(Succeeded(id=one.id, token=one.token) for one in turn.batch.claims)
            if not outcomes:
                time.sleep(BATCH / RATE / 2)
            if time.monotonic() > beat_at:
                self._engine.beat([Beat(session=session)])
                beat_at += LEASE_MS / 3000
        self._engine.finish(outcomes)

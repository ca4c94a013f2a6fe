"""Transactions against workers that are killed: jobs enqueued in transactions, and jobs that end in
transactions.

1. `app` is what workers load. `add` changes a balance, in each way in which a job can end in a
   transaction; a sequence counts the runs, because no rollback takes it back. `note` stores that it
   ran.
2. `keep_enqueuing` commits or rolls back transactions with a job each; `judge_enqueues` compares
   the jobs that ran with the orders that were committed.
3. `Killer` kills workers and ends connections of the server at random; `judge_balance` compares
   the balance with the number of jobs.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from tests.postgres_server import PostgresServer, shared_server
from tests.worker.yard import Worker, Yard, until
from windlass import Context, Retry, State, Windlass

app = Windlass(os.environ.get("WINDLASS_URL", "sqlite:///:memory:"))

#: Enough for any number of broken connections.
PATIENT: Final = Retry(max_attempts=10_000, base=0.05, cap=1)
#: Jobs change these rows of the table `balances` at the same time.
ROWS: Final = 16
ADD: Final = "UPDATE balances SET amount = amount + 1 WHERE id = %s"
RUN: Final = "SELECT nextval('runs')"
TABLES: Final = (
    "CREATE TABLE balances (id integer PRIMARY KEY, amount integer NOT NULL)",
    "INSERT INTO balances SELECT number, 0 FROM generate_series(0, 15) AS number",
    "CREATE SEQUENCE runs",
    "CREATE TABLE orders (id text PRIMARY KEY)",
    "CREATE TABLE ran (id text)",
    "GRANT ALL ON balances, orders, ran, runs TO PUBLIC",
)
_VICTIMS: Final = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'windlass%'"
)


@app.task(name="accounts.plain", transaction=True, takes_context=True, retry=PATIENT)
def plain(ctx: Context, row: int) -> None:
    ctx.connection.execute(RUN)
    ctx.connection.execute(ADD, [row])
    time.sleep(random.random() / 100)


@app.task(name="accounts.coroutine", transaction=True, takes_context=True, retry=PATIENT)
async def coroutine(ctx: Context, row: int) -> None:
    await ctx.connection.execute(RUN)
    await ctx.connection.execute(ADD, [row])
    await asyncio.sleep(random.random() / 100)


@app.task(name="accounts.block", takes_context=True, retry=PATIENT)
def block(ctx: Context, row: int) -> None:
    time.sleep(random.random() / 100)
    with ctx.transaction() as connection:
        connection.execute(RUN)
        connection.execute(ADD, [row])


@app.task(name="accounts.parent", transaction=True, takes_context=True, retry=PATIENT)
def parent(ctx: Context, row: int) -> None:
    """The balance is changed by a job that is enqueued in the same transaction."""
    ctx.connection.execute(RUN)
    plain.using(connection=ctx.connection).enqueue(row)


@app.task(name="accounts.alone", transaction=True, takes_context=True, run_in="process")
def alone(ctx: Context, row: int) -> None:
    ctx.connection.execute(ADD, [row])


@app.task(name="accounts.note", retry=PATIENT)
def note(order: str) -> None:
    with psycopg.connect(app.settings.url) as connection:
        connection.execute("INSERT INTO ran VALUES (%s)", [order])


TASKS: Final[tuple[Any, ...]] = (plain, coroutine, block, parent)
MODULE: Final = "tests.worker.apps.accounts:app"


# --------------------------------------------------------------------------- jobs in transactions


def keep_enqueuing(url: str, name: str, number: int) -> None:
    """Commit this number of transactions, and roll back as many."""
    kept = [True, False] * number
    random.shuffle(kept)
    with Windlass(url) as own:
        task = own.task_named("accounts.note")
        for position, is_kept in enumerate(kept):
            order = f"{name}-{position}"
            with psycopg.connect(url) as connection:
                connection.execute("INSERT INTO orders VALUES (%s)", [order])
                task.using(connection=connection).enqueue(order)
                if not is_kept:
                    connection.close() if position % 3 == 0 else connection.rollback()


def judge_enqueues(yard: Yard, url: str, number: int) -> Iterator[str]:
    yard.await_count(State.SUCCEEDED, number, seconds=120)
    with psycopg.connect(url) as connection:
        orders = {id for (id,) in connection.execute("SELECT id FROM orders").fetchall()}
        ran = [id for (id,) in connection.execute("SELECT id FROM ran").fetchall()]
    lost, ghosts = orders - set(ran), set(ran) - orders
    yield (
        f"{len(orders):,} committed, {number:,} rolled back: {len(ran):,} jobs ran, "
        f"{len(lost)} missing, {len(ghosts)} of a transaction that was rolled back"
    )
    assert len(orders) == number
    assert not lost
    assert not ghosts


def prove_enqueues(yard: Yard, url: str, *, threads: int, number: int) -> Iterator[str]:
    """`number` transactions are committed by each thread, while a worker runs their jobs."""
    yard.start(app=MODULE)
    callers = [
        threading.Thread(target=keep_enqueuing, args=(url, f"thread-{index}", number))
        for index in range(threads)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    yield from judge_enqueues(yard, url, threads * number)


# ---------------------------------------------------------------------------------- exactly once


class Killer:
    """Kills a worker now and then, and ends connections of the server, until the end of its
    block."""

    def __init__(
        self,
        yard: Yard,
        server: PostgresServer,
        database: str,
        *,
        workers: int,
        kill_every_s: float,
        terminate_every_s: float,
    ) -> None:
        self._yard = yard
        self._server, self._database = server, database
        self._workers = [self._start() for _ in range(workers)]
        self._kill_every_s, self._terminate_every_s = kill_every_s, terminate_every_s
        self._over = threading.Event()
        self.killed = self.terminated = 0
        self._threads = [
            threading.Thread(target=self._kill_workers),
            threading.Thread(target=self._terminate_connections),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait(self, seconds: float) -> None:
        self._over.wait(seconds)

    def _start(self) -> Worker:
        return self._yard.start(app=MODULE)

    def _kill_workers(self) -> None:
        while not self._over.wait(self._kill_every_s):
            index = random.randrange(len(self._workers))
            os.killpg(self._workers[index].pid, signal.SIGKILL)
            self._workers[index].wait()
            self._workers[index] = self._start()
            self.killed += 1

    def _terminate_connections(self) -> None:
        with self._server.connect(self._database) as connection:
            while not self._over.wait(self._terminate_every_s * random.uniform(0.5, 1.5)):
                pids = [pid for (pid,) in connection.execute(_VICTIMS).fetchall()]
                if pids:
                    connection.execute("SELECT pg_terminate_backend(%s)", [random.choice(pids)])
                    self.terminated += 1


def prove_exactly_once(
    yard: Yard,
    database: str,
    *,
    jobs: int,
    workers: int,
    seconds: float,
    kill_every_s: float = 1.0,
    terminate_every_s: float = 0.2,
) -> Iterator[str]:
    """Each job adds one to a balance, also if its worker or its connection is killed."""
    server = shared_server()
    url = server.url(database)
    with Windlass(url) as own:
        names = [own.task_named(task.name) for task in TASKS]
        own.enqueue_many(names[n % len(names)].bind(n % ROWS) for n in range(jobs))
    with Killer(
        yard,
        server,
        database,
        workers=workers,
        kill_every_s=kill_every_s,
        terminate_every_s=terminate_every_s,
    ) as killer:
        killer.wait(seconds)
    until(lambda: is_idle(yard), "the end of all jobs", 240)
    with server.connect(database) as connection:
        row = connection.execute("SELECT sum(amount) FROM balances").fetchone()
        runs = connection.execute("SELECT last_value FROM runs").fetchone()
    assert row is not None
    assert runs is not None
    yield (
        f"{killer.killed} workers killed, {killer.terminated} connections ended; {jobs:,} jobs ran "
        f"{runs[0]:,} times and changed the balance by {row[0]:,}"
    )
    assert row[0] == jobs
    children = sum(n % len(TASKS) == TASKS.index(parent) for n in range(jobs))
    assert yard.count(State.SUCCEEDED) == jobs + children


def is_idle(yard: Yard) -> bool:
    """Whether no job waits or runs."""
    counts = yard.app.engine.stats().queues.values()
    return not any(
        number for lines in counts for state, number in lines.items() if not state.is_final
    )

"""Transactions on PostgreSQL: a job is there if its transaction was committed, and the writes of a
job count once, however often its worker and its connection are killed.

1. 4 threads commit 1,000 transactions with a job each, and roll back as many, while a worker runs
   the jobs.
2. 5,000 jobs add one to a balance. Every second a worker is killed with SIGKILL, and several times
   a second the server ends a connection of the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres_databases import borrow_database
from tests.postgres_server import shared_server
from tests.worker.apps import accounts
from tests.worker.yard import Yard


def prove_enqueues(folder: Path) -> Iterator[str]:
    with prepared(folder) as (yard, database):
        url = shared_server().url(database)
        yield from accounts.prove_enqueues(yard, url, threads=4, number=250)


def prove_exactly_once(folder: Path) -> Iterator[str]:
    with prepared(folder) as (yard, database):
        yield from accounts.prove_exactly_once(yard, database, jobs=5_000, workers=3, seconds=30)


@contextmanager
def prepared(folder: Path) -> Iterator[tuple[Yard, str]]:
    """A database with the tables of the app; `windlass check` passes at the end."""
    server, database = shared_server(), borrow_database()
    with server.connect(database) as connection:
        for statement in accounts.TABLES:
            connection.execute(statement.encode())
    yard = Yard(folder, lease="2s", grace="5s", max_crashes=10_000, url=server.url(database))
    try:
        yield yard, database
    finally:
        yard.close()

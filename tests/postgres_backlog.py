"""Jobs that have succeeded, written into the tables of a PostgreSQL engine in seconds."""

from __future__ import annotations

from typing import Final

from tests.postgres_server import Connection
from windlass.engine.contract import EngineOptions
from windlass.engine.url import open_engine

#: Rows of one statement.
_BATCH: Final = 1_000_000
_ADD: Final = """
INSERT INTO windlass.ended (row, created_ms, finished_ms, keep_until_ms, result_until_ms, last_end,
    priority, attempt, starts, crashes, losses, interruptions, snoozes, strays, slot, id, task,
    queue, call)
SELECT -n, 1, 1, at.ms + n, at.ms, 1, 0, 1, 1, 0, 0, 0, 0, 0, 7, 'done-' || n, 'task', 'default',
    'x'::bytea
FROM generate_series(%s, %s) AS n,
    (SELECT (extract(epoch FROM now()) * 1000)::bigint + 86400000 AS ms) AS at
"""


def make_tables(url: str) -> None:
    engine = open_engine(url, EngineOptions())
    try:
        engine.stats()  # the first use makes them
    finally:
        engine.shutdown()


def add_ended_jobs(connection: Connection, number: int) -> None:
    """Add records that are kept for a day."""
    for first in range(1, number + 1, _BATCH):
        connection.execute(_ADD, [first, min(first + _BATCH - 1, number)])
    connection.execute(
        "INSERT INTO windlass.deltas VALUES ('jobs', 'default', 'succeeded', %s)", [number]
    )
    connection.execute("VACUUM ANALYZE")

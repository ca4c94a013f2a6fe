"""The ring of ended jobs: small partitions lose expired records by row, large ones as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from windlass.core.states import State
from windlass.engine.contract import NewStep, Plan, Step, Succeeded, UniqueKey
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.statements import PostgresStatements
from windlass.engine.postgres.verbs.ring import LARGE, RING_MS, SLOT_MS, Slot
from windlass.engine.sql.statements import Row
from windlass.testing.contract.world import claim_jobs

_TTL_MS = 60 * 60 * 1000
#: Nine of these results, which do not compress, make a partition large.
_RESULT = Random(1).randbytes(LARGE // 8)
_numbers = count()


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database) -> PostgresEngine:
    return database.open()


def end_job(
    engine: PostgresEngine, result: bytes = b"1", ttl_ms: int = _TTL_MS, key: str = ""
) -> str:
    """Let a job with a step succeed; return its id."""
    number = next(_numbers)
    unique = UniqueKey(key=key) if key else None
    engine.put([new_job(number, unique=unique)])
    (claim,) = claim_jobs(engine, "session", f"nonce-{number:06d}", Plan(), 1).claims
    engine.put_steps([NewStep(id=claim.id, token=claim.token, step=Step("charge", b"receipt"))])
    ended = Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=ttl_ms)
    engine.finish([ended])
    return claim.id


def number_ended(engine: PostgresEngine) -> int:
    return engine.stats().queues.get("q", {}).get(State.SUCCEEDED, 0)


def files_of(database: Database) -> list[int]:
    """The files of the partitions: a truncation gives a partition another one."""
    names = [f"ended_{number}" for number in range(8)]
    found = database.execute(
        "SELECT relname, relfilenode::bigint FROM pg_class WHERE relname LIKE 'ended\\_%' "
        "AND relkind = 'r'"
    )
    return [file for name, file in sorted(found) if name in names]


def test_a_large_partition_is_emptied_as_a_whole(
    engine: PostgresEngine, database: Database
) -> None:
    ids = [end_job(engine, _RESULT, key=f"key-{number}") for number in range(9)]
    before = files_of(database)
    engine.clock_offset_ms += _TTL_MS + SLOT_MS
    assert engine.tend().purged == len(ids)
    assert len(set(before) - set(files_of(database))) in (1, 2)  # a span may end in between
    assert engine.get(ids) == [None] * len(ids)
    assert number_ended(engine) == 0
    assert engine.holders([("t", "key-0")]) == [None]
    assert database.execute("SELECT count(*) FROM windlass.unique_keys") == [(0,)]
    assert engine.check() == []


def test_a_small_partition_loses_rows(engine: PostgresEngine, database: Database) -> None:
    early, late = end_job(engine), end_job(engine, ttl_ms=_TTL_MS + 5_000)
    before = files_of(database)
    engine.clock_offset_ms += _TTL_MS + 1_000
    assert engine.tend().purged == 1
    assert [record is None for record in engine.get([early, late])] == [True, False]
    assert files_of(database) == before


def test_a_large_partition_waits_for_its_last_record(
    engine: PostgresEngine, database: Database
) -> None:
    for _ in range(10):
        end_job(engine, _RESULT)
    database.execute(
        "UPDATE windlass.ended SET slot = 3",  # all in one partition
        "UPDATE windlass.ended SET keep_until_ms = keep_until_ms + 5000 "
        "WHERE id <> (SELECT min(id) FROM windlass.ended)",
    )
    engine.clock_offset_ms += _TTL_MS + 1_000
    assert engine.tend().purged == 0
    engine.clock_offset_ms += 60_000
    assert engine.tend().purged == 10


def test_records_that_a_large_partition_kept_for_long_are_removed(
    engine: PostgresEngine, database: Database
) -> None:
    for _ in range(9):
        end_job(engine, _RESULT)
    engine.clock_offset_ms += _TTL_MS + RING_MS + SLOT_MS
    end_job(engine)
    database.execute("UPDATE windlass.ended SET slot = 3")
    assert engine.tend().purged == 9
    assert number_ended(engine) == 1


def test_a_partition_in_use_is_emptied_later(engine: PostgresEngine, database: Database) -> None:
    for _ in range(9):
        end_job(engine, _RESULT)
    engine.clock_offset_ms += _TTL_MS + SLOT_MS
    with database.server.connect(database.name) as reader:
        reader.autocommit = False
        reader.execute("SELECT count(*) FROM windlass.ended")
        assert engine.tend().purged == 0
        assert number_ended(engine) == 9
    assert engine.tend().purged == 9


def test_a_record_that_is_kept_for_long_is_outside_of_the_ring(
    engine: PostgresEngine, database: Database
) -> None:
    kept = end_job(engine, ttl_ms=RING_MS + SLOT_MS)
    assert database.execute("SELECT id FROM windlass.ended_later") == [(kept,)]
    engine.clock_offset_ms += RING_MS + SLOT_MS + 1_000
    assert engine.tend().purged == 1


def test_a_partition_that_gets_a_record_while_it_is_emptied(
    engine: PostgresEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new record keeps its history and its unique key."""
    for _ in range(9):
        end_job(engine, _RESULT)
    database.execute("UPDATE windlass.ended SET slot = 3")
    engine.clock_offset_ms += _TTL_MS + SLOT_MS
    other = database.open()
    other.clock_offset_ms = engine.clock_offset_ms
    rows_of_slot = PostgresStatements.rows_of_slot

    def meet(db: PostgresStatements, name: str, slot: int, *values: Any) -> list[Row]:
        if (name, slot) == ("close_slot", 3):
            end_job(other, key="key")
            database.execute(
                "UPDATE windlass.ended SET slot = 3",
                "INSERT INTO windlass.failures (job, number, at_ms, attempt, event, error) "
                "SELECT row, 1, 0, 1, 'retry', '' FROM windlass.ended WHERE unique_key = 'key'",
            )
        return rows_of_slot(db, name, slot, *values)

    monkeypatch.setattr(PostgresStatements, "rows_of_slot", meet)
    assert engine.tend().purged == 0
    assert number_ended(engine) == 10
    assert database.execute("SELECT key FROM windlass.unique_keys") == [("key",)]
    assert database.execute("SELECT event FROM windlass.failures") == [("retry",)]


def test_no_record_enters_a_partition_that_is_counted(
    engine: PostgresEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a transaction that began long ago may be expired when it is stored."""
    for _ in range(9):
        end_job(engine, _RESULT)
    database.execute("UPDATE windlass.ended SET slot = 3")
    engine.clock_offset_ms += _TTL_MS + SLOT_MS
    rows_of_slot = PostgresStatements.rows_of_slot
    late: list[bool] = []

    def meet(db: PostgresStatements, name: str, slot: int, *values: Any) -> list[Row]:
        found = rows_of_slot(db, name, slot, *values)
        if (name, slot) == ("count_slot", 3):
            late.append(store_late(database))
        return found

    monkeypatch.setattr(PostgresStatements, "rows_of_slot", meet)
    assert engine.tend().purged == 9
    assert late == [False]
    assert engine.check() == []


def store_late(database: Database) -> bool:
    """Store one more expired record with its step; return whether the server let it."""
    try:
        database.execute(
            "SET lock_timeout = 20",
            "INSERT INTO windlass.ended SELECT (late).* FROM ("
            'SELECT jsonb_populate_record(ended, \'{"id": "late", "row": 999}\') AS late '
            "FROM windlass.ended LIMIT 1) AS found",
            "INSERT INTO windlass.steps (job, name, value) VALUES (999, 'charge', '')",
            "INSERT INTO windlass.deltas (kind, name, part, number) "
            "VALUES ('jobs', 'q', 'succeeded', 1)",
        )
    except LockNotAvailable:
        return False
    return True


def test_records_that_another_worker_removes_at_this_moment_are_counted_once(
    engine: PostgresEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(9):
        end_job(engine, _RESULT)
    engine.clock_offset_ms += _TTL_MS + RING_MS + SLOT_MS
    other = database.open()
    other.clock_offset_ms = engine.clock_offset_ms
    database.execute("UPDATE windlass.ended SET slot = 3")
    rows_of_slot = PostgresStatements.rows_of_slot
    numbers: list[int] = []

    def meet(db: PostgresStatements, name: str, slot: int, *values: Any) -> list[Row]:
        found = rows_of_slot(db, name, slot, *values)
        if name == "count_slot":
            patch.undo()
            numbers.append(other.tend().purged)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(PostgresStatements, "rows_of_slot", meet)
        numbers.append(engine._empty_slot(Slot(3, LARGE + 1, has_records=False)))
    assert sum(numbers) + engine.tend().purged == 9
    assert number_ended(engine) == 0
    assert engine.check() == []

"""Puts of many jobs take few round trips and statements, and do what single puts do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import psycopg
import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.engine.postgres.round_trips import TripCounter, counted
from windlass.core.durations import LATEST_MS
from windlass.core.unique import OnConflict, Until
from windlass.engine.contract import (
    BATCH,
    NewJob,
    Placed,
    Plan,
    PutCode,
    QueueChange,
    SqlStatement,
    UniqueKey,
)
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.statements import PostgresStatements
from windlass.engine.postgres.verbs import put as batched
from windlass.engine.sql.verbs.put import put as put_one
from windlass.engine.sql.wakeup import ReadyLine
from windlass.engine.wakeup import POLL_FLOOR_MS
from windlass.errors import EngineError
from windlass.testing.contract.world import StandingStill, claim_jobs

HOUR_MS: Final = 3_600_000


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database) -> PostgresEngine:
    return database.open()


def keyed(number: int, **fields: Any) -> NewJob:
    return new_job(number, **{"idempotency_key": f"key-{number}", "fingerprint": "f", **fields})


def unique(number: int, key: str = "", **fields: Any) -> NewJob:
    return new_job(number, unique=UniqueKey(key=key or f"key-{number}", **fields))


def codes(placed: list[Placed]) -> list[PutCode]:
    return [one.code for one in placed]


# ------------------------------------------------------------------------------------ round trips


@pytest.fixture
def trips(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[TripCounter]:
    with counted(database, monkeypatch) as counter:
        yield counter


PUTS: Final = {
    "plain": (1, new_job),
    "scheduled": (1, lambda number: new_job(number, run_in_ms=HOUR_MS)),
    "with an expiry": (1, lambda number: new_job(number, expires_in_ms=HOUR_MS)),
    "with an idempotency key": (2, keyed),
    "unique": (2, unique),
}


@pytest.mark.parametrize(("most", "make"), PUTS.values(), ids=PUTS)
def test_a_put_takes_few_round_trips(
    trips: TripCounter, most: int, make: Callable[[int], NewJob]
) -> None:
    trips.of(lambda engine: engine.put([make(0)]))  # prepares the statements
    assert trips.of(lambda engine: engine.put([make(1)])) == most
    assert trips.of(lambda engine: engine.put([make(1)])) == most


def test_a_put_into_a_bounded_queue_takes_few_round_trips(
    engine: PostgresEngine, trips: TripCounter
) -> None:
    engine.change_queue("q", QueueChange(max_waiting=3))
    trips.of(lambda engine: engine.put([new_job(0)]))
    trips.of(lambda engine: engine.put([new_job(1)]))
    assert trips.of(lambda engine: engine.put([new_job(2)])) == 2
    assert codes(engine.put([new_job(3)])) == [PutCode.FULL]


def test_a_pause_of_a_queue_costs_its_producers_nothing(
    engine: PostgresEngine, trips: TripCounter
) -> None:
    engine.change_queue("q", QueueChange(paused=True))
    trips.of(lambda engine: engine.put([new_job(0)]))
    trips.of(lambda engine: engine.put([new_job(1)]))
    assert trips.of(lambda engine: engine.put([new_job(2)])) == 1


@pytest.mark.parametrize("make", [keyed, unique])
def test_the_number_of_statements_does_not_grow(
    engine: PostgresEngine, make: Callable[[int], NewJob]
) -> None:
    def statements(number: int, first: int) -> int:
        placed, sent = put_within(engine, [make(first + at) for at in range(number)])
        assert codes(placed) == [PutCode.CREATED] * number
        return len(sent)

    few = statements(2, 0)
    assert statements(50, 1_000) == few
    assert few <= 9


def put_within(
    engine: PostgresEngine, jobs: Sequence[NewJob]
) -> tuple[list[Placed], list[SqlStatement]]:
    """Put jobs in a transaction of a caller; return also the statements."""
    statements = engine.put_within(jobs)
    sent: list[SqlStatement] = []
    reply: Any = None
    address = engine._address.conninfo
    with psycopg.connect(address, cursor_factory=psycopg.RawCursor) as connection:
        while True:
            try:
                sent.append(next(statements) if reply is None else statements.send(reply))
            except StopIteration as end:
                return end.value, sent
            cursor = connection.cursor().execute(sent[-1].sql.encode(), sent[-1].values)
            reply = cursor.fetchall() if cursor.description else []


def test_keys_are_locked_in_one_order(engine: PostgresEngine) -> None:
    """So that two puts never wait for each other."""

    def locked(jobs: Sequence[NewJob]) -> list[object]:
        _, sent = put_within(engine, jobs)
        return [one.values for one in sent if "pg_advisory_xact_lock" in one.sql]

    jobs = [*map(keyed, range(5)), *map(unique, range(10, 15))]
    found = locked(jobs)
    assert len(found) == 1
    assert locked(jobs[::-1]) == found


# --------------------------------------------------------------------------------- as single puts


def test_jobs_of_one_put_meet_each_other(engine: PostgresEngine) -> None:
    first, second = keyed(1), keyed(2, idempotency_key="key-1")
    other = keyed(3, idempotency_key="key-1", fingerprint="g")
    assert engine.put([first, second, other, first]) == [
        Placed(first.id, PutCode.CREATED),
        Placed(first.id, PutCode.EXISTING),
        Placed(first.id, PutCode.CONFLICT),
        Placed(first.id, PutCode.CREATED),
    ]
    first, second = unique(4, "a"), unique(5, "a")
    refused = unique(6, "a", on_conflict=OnConflict.RAISE)
    replacing = unique(7, "a", on_conflict=OnConflict.REPLACE)
    assert engine.put([first, second, refused, replacing, replacing]) == [
        Placed(first.id, PutCode.CREATED),
        Placed(first.id, PutCode.EXISTING),
        Placed(first.id, PutCode.DUPLICATE),
        Placed(first.id, PutCode.REPLACED),
        Placed(first.id, PutCode.REPLACED),
    ]
    assert engine.check() == []


def test_a_put_with_a_wrong_time_stores_nothing(engine: PostgresEngine) -> None:
    engine.stats()  # from now on plain jobs are stored in one round trip
    for jobs in (
        [new_job(1), new_job(2, run_after_ms=LATEST_MS + 1)],
        [keyed(1), keyed(2, run_after_ms=LATEST_MS + 1)],
    ):
        with pytest.raises(EngineError, match="run_after_ms"):
            engine.put(jobs)
    assert engine.stats().queues == {}


def random_job(chance: random.Random, number: int) -> NewJob:
    """A job whose keys, ids and lines meet those of others."""
    key = chance.choice([None, None, "a", "b", "c"])
    is_unique = chance.random() < 0.6
    named = UniqueKey(
        key=chance.choice("vwx"),
        until=chance.choice(list(Until)),
        period_ms=chance.choice([0, 0, HOUR_MS]),
        on_conflict=chance.choice(list(OnConflict)),
    )
    return new_job(
        chance.choice([number, number, number, number - 1]),
        task=chance.choice("tu"),
        queue=chance.choice(["q", "q+gpu", "bounded", "aged"]),
        priority=chance.choice([0, 0, 5]),
        payload=str(number).encode(),
        run_in_ms=chance.choice([0, 0, 100, HOUR_MS]),
        run_after_ms=chance.choice([None, None, 1]),
        expires_ms=chance.choice([None, None, 1, 2 * HOUR_MS]),
        expires_in_ms=chance.choice([None, None, HOUR_MS]),
        idempotency_key=key,
        fingerprint=chance.choice("fg") if key else "",
        unique=named if is_unique else None,
    )


@pytest.mark.parametrize("seed", range(15))
def test_a_batch_does_what_single_puts_do(seed: int) -> None:
    """The same jobs in batches, in batches of the caller's transaction, and one by one."""
    chance = random.Random(seed)
    batches = [
        [random_job(chance, number) for number in range(first, first + chance.choice([1, 5, 20]))]
        for first in range(100, 600, 100)
    ]
    with with_tables() as one, with_tables() as other, with_tables() as third:
        engines = one.open(), other.open(), third.open()
        now_ms = HOUR_MS
        for engine in engines:
            engine.clock_offset_ms = StandingStill(now_ms)
            engine.change_queue("bounded", QueueChange(max_waiting=4))
            engine.change_queue("aged", QueueChange(ageing_ms=1_000))
        for jobs in batches:
            now_ms += 2_500
            for engine in engines:
                engine.clock_offset_ms = StandingStill(now_ms)
            expected = engines[0]._write(lambda tx, jobs=jobs: [put_one(tx, job) for job in jobs])  # type: ignore[misc]  # a default binds it
            assert engines[1].put(jobs) == expected
            assert put_within(engines[2], jobs)[0] == expected
            claimed = [claim_jobs(engine, "s", str(now_ms), Plan(), 3) for engine in engines]
            assert claimed == [claimed[0]] * 3
        ids = [job.id for jobs in batches for job in jobs]
        records = [engine.get(ids) for engine in engines]
        stats = [engine.stats() for engine in engines]
        assert records == [records[0]] * 3
        assert stats == [stats[0]] * 3
        assert [engine.check() for engine in engines] == [[], [], []]


def test_more_jobs_than_a_batch(engine: PostgresEngine) -> None:
    jobs = [keyed(number) for number in range(BATCH)]
    assert codes(engine.put(jobs)) == [PutCode.CREATED] * BATCH
    again = [keyed(number + BATCH, idempotency_key=f"key-{number}") for number in range(BATCH)]
    assert [one.id for one in engine.put(again)] == [job.id for job in jobs]


def test_chunks_in_a_transaction_of_a_caller() -> None:
    """Each statement runs the verb for its chunk once more."""
    replacing = unique(7, on_conflict=OnConflict.REPLACE)
    jobs = [new_job(0), unique(1), replacing, replacing, keyed(2), *map(unique, range(10, 120))]
    sizes = [len(chunk) for chunk in batched.chunks(jobs)]
    assert sizes == [2, 1, 2, 50, 50, 10]
    assert [job for chunk in batched.chunks(jobs) for job in chunk] == jobs
    assert [*batched.chunks([])] == []


def test_the_news_of_new_jobs() -> None:
    """A job that falls due before workers poll again wakes one, which learns when it is due."""
    jobs = [
        new_job(0),
        new_job(1, run_in_ms=POLL_FLOOR_MS),
        new_job(2, run_after_ms=HOUR_MS - 1),
        new_job(3, run_in_ms=POLL_FLOOR_MS + 1),
    ]
    ready, tasks = batched.news_of(jobs, HOUR_MS)
    assert ready == {ReadyLine("q"): 3}
    assert tasks == [("q", False, "t", 2)]


# ------------------------------------------------------------------------------------------ races


def test_settings_that_change_during_a_put(
    database: Database, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement that stores plain jobs sees them, although the begin has not seen them."""
    engine.put([new_job(0)])
    other = database.open()
    real = PostgresStatements.later

    def later(db: PostgresStatements, name: str, *values: Any) -> Any:
        if name == "put_jobs":
            db.flush()
            other.change_queue("q", QueueChange(max_waiting=1))
        return real(db, name, *values)

    monkeypatch.setattr(PostgresStatements, "later", later)
    assert codes(engine.put([new_job(1)])) == [PutCode.FULL]

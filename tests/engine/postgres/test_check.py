"""`check` reports what is wrong, nothing else, and disturbs no worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.worker.yard import until
from windlass.core.states import Reason
from windlass.engine.contract import (
    Buried,
    Claim,
    Outcome,
    Plan,
    Retried,
    Revival,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.statements import PostgresStatements
from windlass.engine.postgres.transaction import Start
from windlass.engine.postgres.verbs import check
from windlass.testing.contract.world import claim_jobs

T = TypeVar("T")


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database) -> PostgresEngine:
    return database.open()


class Reader:
    """Reads like an engine, and passes what each transaction returns to a function."""

    def __init__(self, engine: PostgresEngine, then: Callable[[Any], object]) -> None:
        self._read = engine._read
        self._then = then
        self.transactions = 0

    def __call__(self, work: Callable[[PostgresStatements, Start], T], /) -> T:
        value = self._read(work)
        self.transactions += 1
        self._then(value)
        return value


# --------------------------------------------------------------------------- while workers run


def outcome_of(claim: Claim, number: int) -> Outcome:
    match number % 5:
        case 0:
            return Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no")
        case 1:
            return Retried(id=claim.id, token=claim.token, delay_ms=1, error=b"again")
        case 2:
            return Unroutable(id=claim.id, token=claim.token)
        case _:
            return Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=0)


def work(engine: PostgresEngine, name: str, stop: threading.Event) -> None:
    """Change everything that a check compares, until an event."""
    for number in count():
        if stop.is_set():
            return
        first = number * 10
        jobs = [new_job(n, id=f"{name}-{first + n:06}", queue=name) for n in range(8)]
        unique = UniqueKey(key=f"{name}-{number % 3}")
        engine.put([*jobs, new_job(8, id=f"{name}-{first + 8:06}", queue=name, unique=unique)])
        claims = claim_jobs(engine, name, f"{number:032}", Plan(queues=(name,)), 6).claims
        engine.finish([outcome_of(claim, n) for n, claim in enumerate(claims)])
        engine.revive([Revival(id=claims[0].id)] if claims else [])
        engine.cancel([jobs[-1].id])
        engine.discard([jobs[-1].id])
        engine.adopt(["t"])
        engine.tend()


def test_nothing_is_wrong_while_workers_run(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "STRETCH", 50)
    stop = threading.Event()
    engines = {name: database.open() for name in ("one", "two", "three")}
    threads = [
        threading.Thread(target=work, args=(engine, name, stop)) for name, engine in engines.items()
    ]
    for thread in threads:
        thread.start()
    checking = database.open(timeout_ms=10_000)
    found: list[list[str]] = []

    def has_checked_enough() -> bool:
        found.append(checking.check())
        return len(found) >= 8 and _least_number(checking) > 9

    try:
        until(has_checked_enough, "eight checks, and changes of each kind")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not any(found)


def _least_number(engine: PostgresEngine) -> int:
    totals = engine.stats().totals
    return min(totals["succeeded"], totals["dead"], totals["retried"], totals["cancelled"])


def test_every_stretch_is_a_transaction_of_its_own(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one would keep the server from removing old versions of rows."""
    reader = Reader(engine, lambda _: None)
    engine.put([new_job(number) for number in range(40)])
    assert check.check(reader) == []
    few = reader.transactions
    monkeypatch.setattr(check, "STRETCH", 5)
    assert check.check(reader) == []
    assert reader.transactions - 2 * few == 8  # of the jobs; the last stretch is empty


@pytest.mark.parametrize("stretch", [1, 4, 7, 1000])
def test_every_row_is_in_a_stretch(
    database: Database, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(check, "STRETCH", stretch)
    engine.put([new_job(number, unique=UniqueKey(key=str(number))) for number in range(14)])
    claims = claim_jobs(engine, "s", "n", Plan(), 4).claims
    engine.finish([outcome_of(claim, 4) for claim in claims])
    database.execute(
        "UPDATE windlass.jobs SET due_ms = 1",
        "UPDATE windlass.unique_keys SET id = 'ghost'",
        "UPDATE windlass.ended SET starts = 7, keep_until_ms = 5000000000000",  # at one instant
        "INSERT INTO windlass.failures (job, number, at_ms, attempt, event, error)"
        "SELECT 1000 + n % 5, n, 1, 1, 'retry', '' FROM generate_series(1, 20) AS n",
    )
    found = engine.check()
    assert sum("its due time is 1" in text for text in found) == 10
    assert sum("leads to job ghost" in text for text in found) == 14
    assert sum("was started 7 times" in text for text in found) == 4
    assert sum("A failure is stored for row" in text for text in found) == 5
    assert len(found) == 10 + 14 + 10 + 4 + 5  # ten jobs hold a key that does not lead to them


def test_what_is_not_found_again_is_not_reported(
    database: Database, engine: PostgresEngine
) -> None:
    engine.put([new_job()])

    def end_damage(found: Any) -> None:
        if found[1:] and found[1]:  # a stretch, and wrong rows in it
            database.execute("UPDATE windlass.jobs SET due_ms = NULL")

    database.execute("UPDATE windlass.jobs SET due_ms = 1")
    assert len(check.check(Reader(engine, lambda _: None))) == 1
    assert check.check(Reader(engine, end_damage)) == []


# ----------------------------------------------------------------------------- its transactions


def test_the_planner_may_read_whole_tables_for_a_check_only(engine: PostgresEngine) -> None:
    def setting(db: PostgresStatements) -> str:
        [(value,)] = db.fetch(db.start_text("SHOW enable_hashjoin"))
        return str(value)

    def look(db: PostgresStatements, _start: Start) -> tuple[str, str]:
        before = setting(db)
        check.allow_long_reads(db)
        return before, setting(db)

    assert engine._read(look) == ("off", "on")
    assert engine._read(lambda db, _: setting(db)) == "off"


def test_a_check_may_take_longer_than_other_calls(database: Database) -> None:
    engine = database.open(timeout_ms=300)
    engine.put([new_job()])
    found: list[list[str]] = []
    with database.server.connect(database.name) as other:
        other.execute("BEGIN; LOCK TABLE windlass.deaths")
        thread = threading.Thread(target=lambda: found.append(engine.check()))
        thread.start()
        until(
            lambda: other.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND datname = current_database() "
                "AND clock_timestamp() - query_start > interval '600 ms'"
            ).fetchall(),
            "it waits",
        )
        other.execute("COMMIT")
        thread.join()
    assert found == [[]]


def test_a_check_of_another_schema(database: Database) -> None:
    """Its names are in no text that a check sends."""
    database.execute("ALTER SCHEMA windlass RENAME TO shop")
    engine = database.open_url(f"{database.server.url(database.name)}?schema=shop")
    engine.put([new_job(0), new_job(1, unique=UniqueKey(key="k"))])
    database.execute("UPDATE shop.jobs SET due_ms = 1")
    assert len(engine.check()) == 2
    cursor: str | None = None
    while (cursor := engine.repair(cursor, change=True).cursor) is not None:
        pass
    assert engine.check() == []

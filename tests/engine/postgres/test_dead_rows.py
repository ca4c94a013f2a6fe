"""Claims skip dead rows at the beginning of a line, and miss no job for longer than a second."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.worker.yard import until
from windlass.engine.contract import Plan
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.verbs import hot
from windlass.testing.contract.world import claim_jobs


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database, monkeypatch: pytest.MonkeyPatch) -> PostgresEngine:
    """An engine for which any table has many dead rows."""
    monkeypatch.setattr(hot, "MANY_DEAD", 0)
    return database.open()


def begin_in_the_line(engine: PostgresEngine) -> None:
    """Claim jobs until claims do not read the whole line any more."""
    engine.put([new_job(number) for number in range(10)])
    assert ids(engine, "a") == ["job-000000"]  # also makes the session known
    assert ids(engine, "b") == ["job-000001"]
    assert engine._heads.begin("q") != hot.Begin()


def ids(engine: PostgresEngine, nonce: str) -> list[str]:
    return [one.id for one in claim_jobs(engine, "s", nonce, Plan(), 1).claims]


def test_jobs_follow_in_their_order(engine: PostgresEngine) -> None:
    begin_in_the_line(engine)
    assert [ids(engine, nonce) for nonce in "cde"] == [[f"job-{n:06d}"] for n in (2, 3, 4)]


def test_a_job_of_higher_priority_is_found_at_once(engine: PostgresEngine) -> None:
    begin_in_the_line(engine)
    engine.put([new_job(100, priority=5)])
    assert ids(engine, "c") == ["job-000100"]
    assert ids(engine, "d") == ["job-000002"]


def test_a_job_that_returns_to_its_place_is_found_a_second_later(engine: PostgresEngine) -> None:
    begin_in_the_line(engine)
    assert engine.release("s", "a") == 1  # the first job, which is before that begin
    assert ids(engine, "c") == ["job-000002"]
    until(lambda: engine._heads.begin("q") == hot.Begin(), "a claim that reads the whole line")
    assert ids(engine, "d") == ["job-000000"]


def test_a_claim_that_finds_nothing_reads_the_whole_line(engine: PostgresEngine) -> None:
    begin_in_the_line(engine)
    engine.release("s", "a")
    began = time.monotonic()
    claimed = claim_jobs(engine, "s", "c", Plan(), 100).claims
    assert len(claimed) == 8
    assert ids(engine, "d") == ["job-000000"]
    assert time.monotonic() - began < hot.REREAD_S


def test_without_dead_rows_claims_read_the_whole_line(database: Database) -> None:
    engine = database.open()
    engine.put([new_job(number) for number in range(3)])
    for nonce in "ab":
        ids(engine, nonce)
    assert engine._heads.begin("q") == hot.Begin()

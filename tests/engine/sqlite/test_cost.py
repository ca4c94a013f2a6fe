"""Each job costs few Python calls and statements: a put, an end and a claim stay cheap in large
batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import apsw
import pytest

from windlass.engine.contract import EngineOptions, NewJob, Plan, Succeeded
from windlass.engine.sql.statements import Row
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.engine.sqlite.statements import rows

FEW, MANY = 50, 250


@pytest.fixture
def engine(tmp_path: Path) -> SQLiteEngine:
    engine = SQLiteEngine(tmp_path / "jobs.db", EngineOptions())
    engine.migrate()
    return engine


def calls_per_job(work: Callable[[int], object]) -> float:
    """How many more Python calls each further job takes."""
    return (calls(lambda: work(MANY)) - calls(lambda: work(FEW))) / (MANY - FEW)


def calls(work: Callable[[], object]) -> int:
    number = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal number
        number += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return number


def new_jobs(begin: int, number: int) -> list[NewJob]:
    return [
        NewJob(id=f"job-{at:06}", task="task", queue="queue", payload=b"{}")
        for at in range(begin, begin + number)
    ]


def test_a_put(engine: SQLiteEngine) -> None:
    batches = {number: new_jobs(1_000 * number, number) for number in (FEW, MANY)}
    assert calls_per_job(lambda number: engine.put(batches[number])) <= 2.5


def test_a_put_stores_ten_jobs_by_one_statement(engine: SQLiteEngine) -> None:
    engine.put(new_jobs(0, 10))
    taken: list[str] = []
    engine._database._writer().set_profile(lambda text, _ns: taken.append(text))
    engine.put(new_jobs(1_000, MANY))
    assert len([text for text in taken if text.startswith("INSERT INTO jobs")]) == MANY // 10
    assert len(taken) <= MANY // 10 + 10


def test_a_turn_that_ends_and_claims_as_many(engine: SQLiteEngine) -> None:
    engine.put(new_jobs(0, 2 * (FEW + MANY)))

    def claimed(number: int) -> list[Succeeded]:
        batch = engine.turn("session", (), f"1-{number:04}", Plan(), number).batch
        return [
            Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=60_000)
            for claim in batch.claims
        ]

    ends = {number: claimed(number) for number in (FEW, MANY)}
    nonces = {MANY: "2", FEW: "3"}  # `calls_per_job` begins with the many
    work = calls_per_job(
        lambda number: engine.turn("session", ends[number], nonces[number], Plan(), number)
    )
    assert work <= 2


def test_a_claim_reads_its_jobs_once(engine: SQLiteEngine) -> None:
    engine.put(new_jobs(0, 2 * FEW))
    engine.turn("session", (), "1", Plan(), FEW)
    taken: list[str] = []
    engine._database._writer().set_profile(lambda text, _ns: taken.append(text))
    assert len(engine.turn("session", (), "2", Plan(), FEW).batch.claims) == FEW
    reads = [text for text in taken if "FROM jobs" in text and "call" in text]
    assert len(reads) == 1
    assert len(taken) <= 22


def test_a_claim_from_many_lines_reads_few_jobs_of_each(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        NewJob(id=f"job-{at:06}", task="task", queue=f"queue-{at % FEW:02}", payload=b"{}")
        for at in range(10 * FEW)
    ]
    engine.put(jobs)
    read: list[str] = []

    def counted(connection: apsw.Connection, name: str, *values: object) -> list[Row]:
        found = rows(connection, name, *values)
        read.extend([name] * len(found))
        return found

    monkeypatch.setattr(line_index, "rows", counted)
    claims = engine.turn("session", (), "1", Plan(), FEW).batch.claims
    assert [claim.id for claim in claims] == [job.id for job in jobs[:FEW]]
    assert FEW <= read.count("list_ready_after") <= 2 * FEW

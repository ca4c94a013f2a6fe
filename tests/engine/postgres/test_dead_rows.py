"""Claims skip dead rows at the beginning of a line, and miss no job for longer than a second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
import pytest
from psycopg.types.numeric import Int8BinaryDumper

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.postgres_server import WORKER
from tests.worker.yard import until
from windlass.engine.contract import Beat, Plan
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.statements import pack_numbers, statements_for
from windlass.engine.postgres.verbs import hot
from windlass.engine.postgres.verbs.claim import BEHIND_ALL
from windlass.testing.contract.world import claim_jobs

DEAD_ROWS: Final = 10_000
#: More than the heads that a process remembers.
LINES: Final = 300
EVERY: Final = Plan()
TIERS: Final = Plan(queues=("none", "a", "b"))


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
    assert engine._heads.recall(("q",))


def ids(engine: PostgresEngine, nonce: str, plan: Plan = EVERY, limit: int = 1) -> list[str]:
    return [one.id for one in claim_jobs(engine, "s", nonce, plan, limit).claims]


def await_a_whole_read(engine: PostgresEngine, line: str) -> None:
    until(lambda: not engine._heads.recall((line,)), "a claim that reads the whole line")


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
    assert engine.release("s", "a") == 1  # the first job, which is before the head of the line
    assert ids(engine, "c") == ["job-000002"]
    await_a_whole_read(engine, "q")
    assert ids(engine, "d") == ["job-000000"]


def test_many_more_dead_rows_are_read_less_often(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read 90,000 of them each second was slow enough for one claim in a hundred."""
    monkeypatch.setattr(hot, "_DEAD_PER_REREAD", 1)
    begin_in_the_line(engine)
    engine._heads._dead_rows = 3
    assert engine._heads.reread_s == 3 * hot.REREAD_S
    time.sleep(1.1 * hot.REREAD_S)  # the age of a head is on the real clock
    assert engine._heads.recall(("q",))


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
    assert not engine._heads.recall(("q",))


# ---------------------------------------------------------------------------------- several lines


def begin_in_two_lines(engine: PostgresEngine, plan: Plan) -> None:
    """Claim jobs of `a` (even numbers) and `b` (odd ones) until claims skip rows."""
    engine.put([new_job(number, queue="ab"[number % 2]) for number in range(20)])
    engine.put([new_job(100, queue="c", priority=-1)])
    for nonce in "abc":  # the first claim of a session is of the long way
        ids(engine, nonce, plan, 2)
    assert engine._heads.recall(("a",))


def test_several_lines_keep_their_order(engine: PostgresEngine) -> None:
    begin_in_two_lines(engine, EVERY)
    assert set(engine._heads.recall(())) == {"a", "b", "c"}
    assert ids(engine, "d", EVERY, 5) == [f"job-{number:06d}" for number in range(6, 11)]
    assert ids(engine, "e", EVERY, 100)[-2:] == ["job-000019", "job-000100"]


def test_tiers_keep_their_order(engine: PostgresEngine) -> None:
    begin_in_two_lines(engine, TIERS)
    rest = [*range(12, 20, 2), *range(1, 20, 2)]
    assert ids(engine, "d", TIERS, 100) == [f"job-{number:06d}" for number in rest]


@pytest.mark.parametrize("plan", [EVERY, TIERS], ids=["every queue", "tiers"])
def test_what_claims_from_several_lines_find_at_once(engine: PostgresEngine, plan: Plan) -> None:
    begin_in_two_lines(engine, plan)
    engine.put([new_job(200, queue="a", priority=5), new_job(201, queue="aa", priority=9)])
    found = ["job-000200"] if plan is TIERS else ["job-000201", "job-000200"]
    assert ids(engine, "d", plan, len(found)) == found


@pytest.mark.parametrize("plan", [EVERY, TIERS], ids=["every queue", "tiers"])
def test_a_job_that_returns_to_one_of_several_lines(engine: PostgresEngine, plan: Plan) -> None:
    begin_in_two_lines(engine, plan)
    assert engine.release("s", "a") > 0
    assert "job-000000" not in ids(engine, "d", plan)
    await_a_whole_read(engine, "a")
    assert "job-000000" in [*ids(engine, "e", plan), *ids(engine, "f", plan)]


def test_a_line_without_jobs_is_not_read_each_time(engine: PostgresEngine) -> None:
    """Its dead rows are as many as those of others."""
    begin_in_two_lines(engine, EVERY)
    head = engine._heads.recall(("a",))["a"]
    assert engine.cancel([f"job-{number:06d}" for number in range(20)][::2])
    await_a_whole_read(engine, "a")
    ids(engine, "d")
    ids(engine, "e")
    assert engine._heads.recall(("a",)) == {"a": head}


def test_one_line_is_read_as_a_whole_at_a_time(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_in_two_lines(engine, EVERY)
    monkeypatch.setattr(hot, "REREAD_S", 0.0)
    assert [len(engine._heads.recall(())) for _ in range(3)] == [2, 2, 2]
    withheld = {line for line in "abc" if line not in engine._heads.recall(())}
    ids(engine, "d")
    assert withheld.isdisjoint({line for line in "abc" if line not in engine._heads.recall(())})


def test_a_claim_compares_no_line_with_all_known_heads(
    database: Database, engine: PostgresEngine
) -> None:
    """With a thousand queues, that took several times as long as the claim itself."""
    lines = [f"line-{number:04d}" for number in range(LINES)]
    engine.put([new_job(at, queue=line) for at, line in enumerate(lines)])
    engine.beat([Beat(session="s", info=b"here")])
    known = lines[::3]
    first = ["0", "", "s", "n", [], 10, 1_000_000, 30_000, 15_000, [], known]
    heads = [pack_numbers([0] * len(known)), pack_numbers([-1] * len(known))]
    text = (
        b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + statements_for("windlass")["claim_lines"]
    )
    with database.server.connect(database.name) as connection:
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        cursor = psycopg.RawCursor(connection)
        [([found],)] = cursor.execute(text, [*first, *heads, BEHIND_ALL, True]).fetchall()
    nodes = list(walk(found["Plan"]))
    read = {name: rows_of(nodes, name) for node in nodes if (name := node.get("CTE Name"))}
    assert read["walked"] >= LINES
    assert max(read.values()) <= 5 * LINES, read


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from walk(child)


def rows_of(nodes: Sequence[dict[str, Any]], cte: str) -> int:
    """How many rows were read from the result of a part of a statement."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes
        if node.get("CTE Name") == cte
    )


def test_claims_behind_dead_rows_read_few_pages(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = database.open()
    with database.server.connect(database.name) as reader, reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM windlass.meta")
        engine.put([new_job(number, queue="ab"[number % 2]) for number in range(DEAD_ROWS + 300)])
        assert len(ids(engine, "0", EVERY, DEAD_ROWS)) == DEAD_ROWS
        engine.shutdown()
        whole = pages_of_claims(database, "a")
        monkeypatch.setattr(hot, "MANY_DEAD", 0)
        monkeypatch.setattr(hot, "REREAD_S", 60.0)
        skipping = pages_of_claims(database, "b")
    assert skipping < whole / 4, f"expected few of {whole} pages, found {skipping}"


def pages_of_claims(database: Database, prefix: str) -> int:
    """Count the pages of jobs and its indexes that 40 claims of another process read, without its
    first ones."""
    before = pages_read(database)
    first = pages_after_claims(database, f"{prefix}0", 5)
    return pages_after_claims(database, f"{prefix}1", 45) - first - (first - before)


def pages_after_claims(database: Database, prefix: str, number: int) -> int:
    engine = database.open()
    for at in range(number):
        assert ids(engine, f"{prefix}{at:02}")
    engine.shutdown()
    until(lambda: not connections_of_engines(database), "the end of the connections")
    return pages_read(database)


def connections_of_engines(database: Database) -> int:
    with database.server.connect(database.name) as connection:
        [(number,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = %s",
            [WORKER],
        ).fetchall()
    return int(number)


def pages_read(database: Database) -> int:
    [(number,)] = database.execute(
        "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit"
        " FROM pg_statio_user_tables WHERE schemaname = 'windlass' AND relname = 'jobs'"
    )
    return int(number)

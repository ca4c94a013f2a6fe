"""Every statement finds its rows by an index: no hot path grows with the backlog."""

from __future__ import annotations

import re

import apsw
import pytest

from tests.docs.pages import PROJECT
from windlass.engine.sqlite.statements import SQL, migrations

FOLDER = PROJECT / "src" / "windlass" / "engine" / "sqlite" / "sql"
STATEMENTS = sorted(SQL)
#: Statements that read a whole small table, or a whole partial index that is almost always empty.
WHOLE = {
    "count_pairs",
    "list_counters",
    "list_first_counters",  # to its limit
    "list_enqueued",
    "list_growth",
    "list_unused_pairs",
    "note_growth",
    "note_sample",
    "sampled_minute",
    "forget_empty_counters",
    "list_totals",
    "read_meta",
    "reap_after",
    "write_meta",
    "write_queues",
}


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    database = apsw.Connection(":memory:")
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # as the engine does
    for _, text in migrations():
        database.execute(text)
    return database


def bindings_of(text: str) -> int:
    numbered = {int(number) for number in re.findall(r"\?(\d+)", text)}
    return max(numbered) if numbered else text.count("?")


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans(connection: apsw.Connection, name: str) -> None:
    text = SQL[name]
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", (None,) * bindings_of(text))
    steps = [row[3] for row in plan]
    scans = [step for step in steps if isinstance(step, str) and step.startswith("SCAN ")]
    harmless = (
        "SCAN CONSTANT ROW",
        "SCAN found",
        # Arrays that are passed as a parameter.
        "SCAN given VIRTUAL TABLE",
        "SCAN json_each VIRTUAL TABLE",
    )
    assert name in WHOLE or not [scan for scan in scans if not scan.startswith(harmless)], steps


@pytest.mark.parametrize(
    "name",
    [
        *("list_ready", "load_due", "list_kept_too_long", "next_line", "next_suspect_line"),
        *("list_lines", "list_ready_after", "next_group", "next_ready_line", "line_heads"),
        *("find_running", "find_ready", "find_suspect", "find_parked", "find_due", "find_ended"),
        *("find_deaths", "largest_dead_groups"),
    ],
)
def test_no_statement_on_a_hot_path_sorts(connection: apsw.Connection, name: str) -> None:
    text = SQL[name]
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", (None,) * bindings_of(text))
    assert not any("TEMP B-TREE" in str(row[3]) for row in plan)


def test_every_statement_says_what_it_is_for() -> None:
    for file in FOLDER.glob("*.sql"):
        text = file.read_text()
        assert text.startswith("-- ")
        assert text.count("-- name: ") == len(
            re.findall(r"^-- name: \w+\n-- \w", text, re.MULTILINE)
        )

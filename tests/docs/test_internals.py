"""The pages about internals match the code: diagram, budgets, tables, log lines."""

from __future__ import annotations

import re

import apsw

from tests.docs.pages import DOCS, PROJECT, blocks, code_in, table_rows
from tests.engine.conftest import new_job, repair_all
from tests.engine.postgres.databases import with_tables, without_tables
from tests.postgres_server import OWNER, WORKER, shared_server
from windlass.core.states import MAX_INTERRUPTIONS, MAX_LOSSES, TABLE, Counters, Reason
from windlass.engine.redis.keys import KINDS
from windlass.engine.sqlite.statements import migrations
from windlass.worker.logs.events import LogEvent

SOURCE = PROJECT / "src" / "windlass"
LIFE = DOCS / "internals" / "life-of-a-job.md"
SQLITE = DOCS / "internals" / "sqlite.md"
REDIS = DOCS / "internals" / "redis.md"
POSTGRES = DOCS / "internals" / "postgres.md"
OPERATIONS = DOCS / "operations.md"
FAILURES = DOCS / "guides" / "failures.md"
EVENTS = {event.name.lower(): event for event in LogEvent}


def test_the_diagram_is_the_table() -> None:
    diagram = next(block.text for block in blocks(LIFE) if "stateDiagram" in block.text)
    arrows = re.findall(r"^ +(\S+) --> (\S+): (.+)$", diagram, re.MULTILINE)
    drawn = {(source, target, event) for source, target, event in arrows if source != "[*]"}
    assert drawn == {
        (str(source), str(target or "[*]"), str(event)) for (source, event), target in TABLE.items()
    }


def test_every_counter_has_its_budget() -> None:
    rows = {code_in(row[0])[0]: row for row in table_rows(LIFE) if len(row) == 4}
    assert set(rows) == set(Counters.__struct_fields__)
    assert rows["losses"][2] == str(MAX_LOSSES)
    assert rows["interruptions"][2] == str(MAX_INTERRUPTIONS)


def test_every_table_and_index_is_told_of() -> None:
    database = apsw.Connection(":memory:")
    for _, text in migrations():
        database.execute(text)
    stored = database.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
    names = {name for (name,) in stored}
    rows = [row for row in table_rows(SQLITE) if len(row) == 2]
    told = {code for row in rows for code in code_in(row[0])}
    assert {name for name in told if re.fullmatch(r"[a-z_]+", name)} == names


def test_every_column_of_a_record_is_told_of() -> None:
    database = apsw.Connection(":memory:")
    for _, text in migrations():
        database.execute(text)
    columns = [name for _, name, *_ in database.execute("PRAGMA table_info(jobs)")]
    rows = [row for row in table_rows(SQLITE) if len(row) == 3]
    told = [code for row in rows for code in code_in(row[0]) if re.fullmatch(r"[a-z_]+", code)]
    assert sorted(told) == sorted(map(str, columns))


def test_every_table_and_index_of_postgresql_is_documented() -> None:
    with with_tables() as database:
        found = database.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'windlass'::regnamespace "
            "AND relname !~ '_(pkey|key|seq)$|^ended_([0-9]|later)_'"
        )
    rows = [row for row in table_rows(POSTGRES) if len(row) == 2]
    told = {code for row in rows for code in code_in(row[0]) if re.fullmatch(r"[a-z0-9_]+", code)}
    assert told - {"schema="} == {name for (name,) in found}


def test_every_column_of_a_job_on_postgresql_is_documented() -> None:
    with with_tables() as database:
        found = database.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'windlass'"
        )
    jobs, ended = ({name for of, name in found if of == table} for table in ("jobs", "ended"))
    rows = [row for row in table_rows(POSTGRES) if len(row) == 3]
    told = [code for row in rows for code in code_in(row[0]) if re.fullmatch(r"[a-z_]+", code)]
    assert sorted(told) == sorted(jobs)
    assert ended - jobs == {"result_until_ms", "priority", "slot"}


def test_the_rights_on_postgresql_are_enough() -> None:
    """Those of the page; the doctor of this engine knows what is needed."""
    rights, later = (
        block.text.replace("TO shop", f"TO {WORKER}")
        for block in blocks(POSTGRES)
        if block.language == "sql"
    )
    with without_tables(shared_server()) as database:
        database.open(OWNER).migrate()
        engine = database.open()
        assert {finding.subject: finding for finding in engine.examine()}[
            "rights"
        ].grade == "problem"
        database.execute(rights, f"SET ROLE {OWNER}", later, "CREATE TABLE windlass.next ()")
        findings = {finding.subject: finding for finding in engine.examine()}
        assert findings["rights"].grade == "ok"
        database.execute(f"SET ROLE {WORKER}", "SELECT * FROM windlass.next")
        database.execute("SELECT setval('windlass.numbers', 1)")
        engine.put([new_job(1), new_job(2)])
        database.execute("SELECT setval('windlass.numbers', 1)")
        assert repair_all(engine, change=True).fixed


def test_every_key_is_told_of() -> None:
    assert {code_in(row[0])[0] for row in table_rows(REDIS) if len(row) == 3} == set(KINDS)


def test_every_reason_of_a_death_is_told_of() -> None:
    told = {code for row in table_rows(FAILURES) for code in code_in(row[0])}
    deaths = set(map(str, Reason)) - {Reason.CANCELLED, Reason.EXPIRED}
    assert deaths <= told


def test_every_log_line_is_told_of() -> None:
    lines = [code for row in table_rows(OPERATIONS) for code in code_in(row[0])]
    for message in LogEvent:
        assert any(re.fullmatch(pattern_of(message), line) for line in lines), message


def test_no_other_log_line_is_told_of() -> None:
    rows = [
        row for row in table_rows(OPERATIONS) if row[1] in ("debug", "info", "warning", "error")
    ]
    patterns = [pattern_of(message) for message in LogEvent]
    assert len(rows) == len(patterns)
    for row in rows:
        assert any(re.fullmatch(pattern, code_in(row[0])[0]) for pattern in patterns), row[0]


def test_every_event_is_told_of() -> None:
    rows = [row for row in table_rows(OPERATIONS) if row[0].strip("`") in EVENTS]
    told = {code_in(row[0])[0]: code_in(row[1]) if len(row) > 1 else [] for row in rows}
    assert told == {name: list(event.fields) for name, event in EVENTS.items()}


def pattern_of(message: str) -> str:
    """A pattern that matches a log line of the page; placeholders match any value."""
    return ".+".join(map(re.escape, re.split(r"%[a-z]", message)))

"""The guide to PostgreSQL can be followed, and its table has the subjects of `windlass doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import DOCS, blocks, code_in, prose, table_rows
from tests.docs.transcript import Terminal
from tests.engine.postgres.databases import Database, without_tables
from tests.postgres_server import OWNER, WORKER, shared_server

GUIDE = DOCS / "guides" / "postgres.md"


@pytest.fixture
def database() -> Iterator[Database]:
    with without_tables(shared_server()) as database:
        yield database


@pytest.fixture
def terminal(tmp_path: Path, database: Database) -> Iterator[Terminal]:
    """A terminal in which the database of the page is ours."""
    ours = urlsplit(database.server.url(database.name, user=OWNER))
    shown = ours.netloc.rpartition("@")[2] + ours.path  # as messages name it
    places = {
        "postgresql://localhost/shop": ours.geturl(),
        "postgresql localhost/shop": f"postgresql {shown}",
    }
    terminal = Terminal(tmp_path, places)
    yield terminal
    terminal.close()


def test_the_page_can_be_followed(terminal: Terminal) -> None:
    for block in blocks(GUIDE):
        terminal.follow(block)


def test_the_rights_are_all_that_programs_need(database: Database) -> None:
    database.open(OWNER).migrate()
    [rights] = (block.text for block in blocks(GUIDE) if block.language == "sql")
    database.execute(rights.replace("TO shop", f"TO {WORKER}"))
    findings = {finding.subject: finding for finding in database.open().examine()}
    assert findings["rights"].grade == "ok"


def test_the_subjects_are_those_of_the_doctor(database: Database) -> None:
    found = {finding.subject for finding in database.open(OWNER).examine()}
    rows = list(table_rows(GUIDE))
    told = {name for row in rows if len(row) == 2 for name in code_in(row[0])}
    assert told
    assert told <= found


def test_the_oldest_version_is_that_of_the_engine() -> None:
    from windlass.engine.postgres.migrate import OLDEST_SERVER

    oldest, words = OLDEST_SERVER
    assert f"You need PostgreSQL {oldest // 10_000} or newer" in prose(GUIDE)
    assert words.startswith(str(oldest // 10_000))

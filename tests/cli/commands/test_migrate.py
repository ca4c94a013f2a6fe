"""`windlass migrate`: what it moves, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.engine.postgres.databases import Database, without_tables
from tests.postgres_server import OWNER, WORKER, shared_server
from windlass.engine.postgres.migrate import NEWEST_FORMAT


@pytest.fixture
def empty() -> Iterator[Database]:
    """A PostgreSQL database without tables."""
    with without_tables(shared_server()) as database:
        yield database


def test_a_new_file_has_nothing_to_migrate(shell: Shell) -> None:
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    ran = shell.type_with_app("migrate")
    assert ran.code == 0
    assert "nothing to migrate; the jobs have format" in ran.err


def test_the_numbers_as_json(shell: Shell) -> None:
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    printed = json.loads(shell.type_with_app("migrate", "--json").out)
    numbers = {"moved": 0, "left": 0, "steps": 0}
    assert {name: printed[name] for name in numbers} == numbers


def test_only_tables_are_made_and_no_files(type_here: Typing) -> None:
    ran = type_here("migrate", "--url", "sqlite:///absent.db")
    assert ran.code == 1
    assert "There is no database" in ran.err


# ------------------------------------------------------------------------------------ PostgreSQL


def test_an_owner_makes_the_tables(type_here: Typing, empty: Database) -> None:
    url = empty.server.url(empty.name, user=OWNER)
    ran = type_here("migrate", "--url", url)
    assert ran.code == 0
    assert f"applied {NEWEST_FORMAT} migration" in ran.err
    assert f"the jobs have format {NEWEST_FORMAT}." in ran.err
    assert "nothing to migrate" in type_here("migrate", "--url", url).err
    [entry, *_] = json.loads(type_here("audit", "--url", url, "--json").out)
    assert entry["action"] == "migrate"


def test_a_user_who_may_not_is_told(shell: Shell, empty: Database) -> None:
    ran = shell.type("migrate", "--url", empty.server.url(empty.name, user=WORKER))
    assert ran.code == 1
    assert f"the role {WORKER} may not create it. Run `windlass migrate` with a role" in ran.err


def test_the_sql_is_what_the_command_does(type_here: Typing, empty: Database) -> None:
    url = empty.server.url(empty.name, user=OWNER)
    ran = type_here("migrate", "--url", url, "--sql")
    assert ran.code == 0
    assert empty.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'windlass'") == [(0,)]
    offline = type_here("migrate", "--sql", "--after", "0", WINDLASS_URL="postgresql://absent/x")
    assert offline.out == ran.out
    empty.execute(f"SET ROLE {OWNER}", ran.out)
    ran = type_here("migrate", "--url", url, "--sql")
    assert (ran.code, ran.out) == (0, "")
    assert "Nothing to migrate" in ran.err
    assert "nothing to migrate" in type_here("migrate", "--url", url).err


def test_the_sql_of_another_schema(type_here: Typing) -> None:
    url = "postgresql://owner:secret@absent/x?schema=shop"
    ran = type_here("migrate", "--url", url, "--sql", "--after", "0")
    assert 'CREATE SCHEMA IF NOT EXISTS "shop";' in ran.out
    assert "windlass." not in ran.out
    assert "secret" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "sqlite:///jobs.db", "--sql"], "Only PostgreSQL has tables that other tools"),
        (["--url", "redis://localhost/0", "--sql"], "Only PostgreSQL has tables that other tools"),
        (["--url", "postgresql://h/d", "--after", "0"], "--after belongs to --sql."),
        (["--url", "postgresql://h/d", "--sql", "--json"], "--sql prints SQL: leave out --json."),
        (["--url", "postgresql://h/d", "--sql", "--after", "-1"], "-1 is not in the range x>=0"),
    ],
)
def test_mistakes(type_here: Typing, arguments: list[str], told: str) -> None:
    ran = type_here("migrate", *arguments)
    assert ran.code in (1, 2)
    assert told in ran.err
    assert not ran.out

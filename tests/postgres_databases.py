"""PostgreSQL databases for single tests, all with the same contents.

A test borrows a database and gives it back. For the next one its rows are deleted, and those of the
template are stored again, which takes a tenth of the time of a new copy. (To truncate all tables
takes longer than a new copy.) A database whose tables were changed, or have grown, is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL

from tests.postgres_server import OWNER, PROJECT, WORKER, Connection, PostgresServer, shared_server
from windlass.engine.contract import EngineOptions
from windlass.engine.url import open_engine

#: How much the tables of a database may grow: deleted rows slow down the next test.
MOST_GROWTH: Final = 1_000_000

_RELATIONS: Final = """
SELECT c.oid, c.relkind::text, c.oid::regclass::text, c.relnatts, c.relacl::text
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')
ORDER BY c.oid
"""
_SIZE: Final = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""


class Contents(NamedTuple):
    """What a database holds."""

    relations: Sequence[tuple[Any, ...]]
    size: int
    rows: Mapping[str, bytes]  # of each table
    sequences: Mapping[str, tuple[int, bool]]


class DatabasePool:
    """Copies of one database. `prepare` gets the name of an empty one, and fills it."""

    def __init__(self, server: PostgresServer, prepare: Callable[[str], None]) -> None:
        self._server = server
        self._connections: dict[str, Connection] = {}  # one stays open to each copy
        self._template = server.new_database()
        prepare(self._template)
        with server.connect(self._template) as connection:
            server.terminate_others(connection)
            self._contents = _read_contents(connection)
        self.borrowed: list[str] = []
        self._used: list[str] = []

    def borrow(self) -> str:
        """The name of a database with the contents of the template."""
        name = self._reuse() or self._make()
        self.borrowed.append(name)
        return name

    def give_back(self, name: str) -> None:
        self.borrowed.remove(name)
        self._used.append(name)

    def give_back_all(self) -> None:
        """Give back all databases, after the test that borrowed them."""
        self._used += self.borrowed
        self.borrowed.clear()

    def close(self) -> None:
        """Drop all databases."""
        for name in list(self._connections):
            self._drop(name)
        self._server.drop_database(self._template)

    def _make(self) -> str:
        name = self._server.new_database(self._template)
        self._connections[name] = self._server.connect(name)
        return name

    def _reuse(self) -> str | None:
        """The first database of those given back that can be restored; others are dropped."""
        while self._used:
            name = self._used.pop()
            with suppress(psycopg.Error):  # the test has renamed it, or ended our connection
                if self._restore(self._connections[name]):
                    return name
            self._drop(name)
        return None

    def _drop(self, name: str) -> None:
        self._connections.pop(name).close()
        self._server.drop_database(name)

    def _restore(self, connection: Connection) -> bool:
        # A killed program may have left a transaction that still runs.
        self._server.terminate_others(connection)
        is_restorable = (
            _read_relations(connection) == self._contents.relations
            and _read_size(connection) <= self._contents.size + MOST_GROWTH
        )
        if is_restorable:
            _restore_contents(connection, self._contents)
        return is_restorable


def _read_contents(connection: Connection) -> Contents:
    relations = _read_relations(connection)
    tables = [name for _, kind, name, *_ in relations if kind == "r"]
    sequences = [name for _, kind, name, *_ in relations if kind == "S"]
    return Contents(
        relations=relations,
        size=_read_size(connection),
        rows={name: _read_rows(connection, name) for name in tables},
        sequences={name: _read_sequence(connection, name) for name in sequences},
    )


def _read_relations(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(_RELATIONS).fetchall()


def _read_size(connection: Connection) -> int:
    [(size,)] = connection.execute(_SIZE).fetchall()
    return int(size)


def _read_rows(connection: Connection, table: str) -> bytes:
    with connection.cursor().copy(f"COPY {table} TO STDOUT") as rows:
        return b"".join(map(bytes, rows))


def _read_sequence(connection: Connection, name: str) -> tuple[int, bool]:
    query = SQL("SELECT last_value, is_called FROM {}").format(SQL(name))
    [(value, is_called)] = connection.execute(query).fetchall()
    return value, is_called


def _restore_contents(connection: Connection, contents: Contents) -> None:
    """Delete all rows and store those of the contents, without triggers and foreign keys."""
    statements = [
        SQL("SET LOCAL session_replication_role = replica"),
        *(SQL("DELETE FROM {}").format(SQL(table)) for table in contents.rows),
        *(
            SQL("SELECT setval({}, {}, {})").format(name, *state)
            for name, state in contents.sequences.items()
        ),
    ]
    with connection.transaction():
        connection.execute(SQL("; ").join(statements))
        for table, rows in contents.rows.items():
            if rows:
                with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                    copy.write(rows)


# ------------------------------------------------------------------------- databases with tables

#: The page with the rights of programs that change no table.
RIGHTS_PAGE: Final = PROJECT / "docs" / "internals" / "postgres.md"


def _documented_rights() -> str:
    page = RIGHTS_PAGE.read_text(encoding="utf-8")
    grants: list[str] = re.findall(r"^GRANT .* TO shop;$", page, re.MULTILINE)
    assert grants, RIGHTS_PAGE
    return "\n".join(grants).replace("shop;", f"{WORKER};")


#: The documented rights, for our user.
RIGHTS: Final = _documented_rights()


def borrow_database() -> str:
    """The name of a database with empty tables, on the shared server. The test has it until it
    ends, or gives it back; its urls have a user with the rights of a running program."""
    return _migrated().borrow()


def give_back_database(url: str) -> None:
    """Give back the database of a url before the test ends; ignore urls of other engines."""
    if url.startswith("postgresql:"):
        _migrated().give_back(urlsplit(url).path.removeprefix("/"))


def borrowed_databases() -> list[str]:
    """The names of the databases that the test has."""
    return _migrated().borrowed


def give_back_all() -> None:
    """Give back the databases of the test that has ended."""
    if _migrated.cache_info().currsize:
        _migrated().give_back_all()


@cache
def _migrated() -> DatabasePool:
    return DatabasePool(shared_server(), _migrate)


def _migrate(name: str) -> None:
    server = shared_server()
    engine = open_engine(server.url(name, user=OWNER), EngineOptions())
    engine.stats()
    engine.shutdown()
    with server.connect(name) as connection:
        connection.execute(RIGHTS)

"""A database with the tables of windlass for a test, and statements that damage it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from tests.postgres_databases import borrow_database
from tests.postgres_server import WORKER, PostgresServer, shared_server
from windlass.engine.contract import EngineOptions
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.url import read_address


class Database:
    """One database, and engines on it, as the user of running programs."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self._opened: list[PostgresEngine] = []

    def open(self, user: str = WORKER, *, timeout_ms: int = 5_000) -> PostgresEngine:
        return self.open_url(self.server.url(self.name, user=user), timeout_ms)

    def open_url(self, url: str, timeout_ms: int = 5_000, lease_ms: int = 2_000) -> PostgresEngine:
        wanted = EngineOptions(lease_ms=lease_ms, timeout_ms=timeout_ms)
        self._opened.append(PostgresEngine(read_address(url), wanted))
        return self._opened[-1]

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the superuser; return the rows of the last one."""
        with self.server.connect(self.name) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        for engine in self._opened:
            engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def with_tables() -> Database:
    """A database with empty tables, until the end of the test."""
    return Database(shared_server(), borrow_database())


def without_tables(server: PostgresServer) -> Database:
    """A new database; the server drops it at its end."""
    return Database(server, server.new_database())

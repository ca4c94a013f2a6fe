"""Connections of the sqlite3 module."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from typing import Any

from windlass.client.connections.connection import BlockingConnection, CallerConnection, Execute
from windlass.client.connections.parameters import with_question_marks
from windlass.engine.contract import Dialect, SqlRows, SqlStatement, TransactionPlace


def adapt(value: object) -> CallerConnection | None:
    return SqliteConnection(value) if isinstance(value, sqlite3.Connection) else None


class SqliteConnection(BlockingConnection):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__("sqlite3.Connection")
        self._connection = connection

    def begin(self, place: TransactionPlace) -> Execute:
        self.check_dialect(Dialect.SQLITE, place)
        if _is_closed(self._connection):
            raise self.refuse("found a closed connection", "Open a connection, and begin again.")
        if commits_each_statement(self._connection):
            raise self.refuse_unbegun(
                "found one in autocommit mode outside of a transaction",
                'Execute "BEGIN" first, or connect without isolation_level=None and '
                "autocommit=True; or leave out connection=.",
            )
        return self._execute

    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        self.check_dialect(Dialect.SQLITE, place)
        if self._connection.in_transaction:
            raise self.refuse_begun()
        return self._connection

    def _execute(self, statement: SqlStatement) -> SqlRows:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the caller's may make other rows
        try:
            return cursor.execute(*with_question_marks(statement)).fetchall()
        finally:
            cursor.close()


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.cursor().close()
    except sqlite3.ProgrammingError as error:
        return "closed" in str(error)  # or another thread has opened it: its use will say so
    return False


def commits_each_statement(connection: Any) -> bool:
    """Whether an INSERT on this connection of sqlite3, or of aiosqlite, commits by itself.

    From Python 3.12 on, `autocommit` is True or False, or the mode of older versions: then
    `isolation_level` decides, and None is autocommit."""
    if connection.in_transaction:
        return False
    mode = getattr(connection, "autocommit", None)
    if isinstance(mode, bool):
        return mode
    return connection.isolation_level is None

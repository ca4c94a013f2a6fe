"""An outbox in a SQLite file, for relays and operators.

It uses the sqlite3 module, as callers do, and not the SQLite of the engine. Two copies of SQLite in
one process that open the same file break each other's locks.

A relay takes rows by a lease. An open transaction would keep callers from writing to their own
database while the engine answers slowly. An idle relay only reads.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import quote, unquote

from windlass.errors import EngineError, EngineUnavailable
from windlass.outbox.rows import (
    LEASE_MS,
    TIMEOUT_S,
    OutboxRow,
    OutboxRows,
    Postponed,
    missing_tables,
    no_answer,
    refused_call,
)
from windlass.outbox.url import OutboxUrl


class SqliteOutbox(OutboxRows):
    """The rows of an outbox in a SQLite file."""

    def __init__(self, url: OutboxUrl) -> None:
        super().__init__(url)
        path = url.database.partition("?")[0].removeprefix("sqlite:///")
        self._path = unquote(path)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._taken: list[int] = []

    def take(self, limit: int, most_bytes: int) -> list[OutboxRow]:
        self._taken = []
        with self._answering():
            if not self._rows("has_rows")[0][0]:
                return []
            with self._writing():
                self._taken = sorted(self._find_next(limit, most_bytes))
                self._run_for_each("lease", [(LEASE_MS, position) for position in self._taken])
                rows = [row for at in self._taken for row in self._rows("read", at)]
            return [OutboxRow(*row) for row in rows]

    def settle(self, done: Sequence[int], postponed: Sequence[Postponed]) -> None:
        with self._answering(), self._writing():
            self._run_for_each("delete", [(position,) for position in done])
            self._run_for_each(
                "postpone", [(one.delay_ms, one.error, one.position) for one in postponed]
            )
            left = set(self._taken).difference(done, (one.position for one in postponed))
            self._run_for_each("give_back", [(position,) for position in left])

    def give_back(self) -> None:
        with self._answering(), self._writing():
            self._run_for_each("give_back", [(position,) for position in self._taken])

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ---------------------------------------------------------------------------- the connection

    def _rows(self, name: str, *values: Any) -> list[Any]:
        return self._open().execute(self._statements[name], values).fetchall()

    def _run_for_each(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._open().executemany(self._statements[name], rows)

    def _run_script(self, sql: str) -> None:
        """Run statements in turn. `executescript` would commit our transaction first."""
        statement = ""
        for line in sql.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                self._open().execute(statement)
                statement = ""

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._open().execute("BEGIN IMMEDIATE")
        yield
        self._open().execute("COMMIT")

    def _migrating(self) -> AbstractContextManager[None]:
        return self._writing()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._file = _identity(self._path)
            self._connection = sqlite3.connect(
                f"file:{quote(self._path)}?mode=rw",  # a mistyped path creates no file
                uri=True,
                timeout=TIMEOUT_S,
                isolation_level=None,
            )
        return self._connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Close the connection on any error, which also rolls back, or if the file was replaced."""
        if self._connection is not None and _identity(self._path) != self._file:
            self.close()
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            raise self._explain(error) from error
        except BaseException:
            self.close()
            raise

    def _explain(self, error: sqlite3.Error) -> EngineError:
        if "no such table" in str(error):
            return missing_tables(self._url)
        if _identity(self._path) is None:
            return EngineUnavailable(
                f"There is no database {self._path}, which the setting outbox names. Start the "
                "program that creates it, or correct the setting.",
                location=self._url.location,
            )
        if isinstance(error, sqlite3.OperationalError):
            return no_answer(self._url, error)
        return refused_call(self._url, error)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""An outbox in a SQLite file, for relays and operators.

The sqlite3 module, and not the SQLite of the engine: programs that hold the same file open with two
copies of SQLite in one process lose their locks. The module is the one that callers use.

A relay takes rows by a lease, and not by a transaction that it holds: that would keep callers from
writing to their own database while the engine answers slowly. An idle relay only reads.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

from windlass.errors import EngineError, EngineUnavailable
from windlass.outbox.rows import (
    LEASE_MS,
    MOST_COUNTED,
    TIMEOUT_S,
    OutboxRow,
    OutboxState,
    Postponed,
    RefusedRow,
    check_version,
    cut,
    missing_tables,
)
from windlass.outbox.tables import migrations, statements
from windlass.outbox.url import OutboxUrl


class SqliteOutbox:
    def __init__(self, url: OutboxUrl) -> None:
        self._url = url
        self._statements = statements(url)
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
                found = self._rows("fresh", limit)
                if len(found) < limit:
                    found += self._rows("postponed", limit - len(found))
                number = cut([size for _, size in found], most_bytes)
                self._taken = sorted(position for position, _ in found[:number])
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

    def state(self) -> OutboxState:
        with self._answering():
            [[waiting, refused]] = self._rows("count", MOST_COUNTED)
            oldest = self._rows("oldest")
            first = self._rows("first_refused", MOST_COUNTED) if refused else []
        return OutboxState(
            waiting=waiting,
            oldest_ms=oldest[0][0] if oldest else 0,
            refused=refused,
            first_refused=RefusedRow(*first[0]) if first else None,
        )

    def check_format(self) -> None:
        with self._answering():
            version = self._version()
        check_version(version, self._url)

    def migrate(self) -> int:
        with self._answering(), self._writing():
            stored = self._version() or 0
            for version, sql in migrations(self._url):
                if version > stored:
                    self._run_script(sql)
            version = self._version() or 0
        check_version(version, self._url)
        return version

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ---------------------------------------------------------------------------- the connection

    def _version(self) -> int | None:
        if not self._rows("has_tables")[0][0]:
            return None
        version: int | None = self._rows("version")[0][0]
        return version

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
        """Close the connection on any error, which also rolls back: the next call opens another
        one. Also if the file was replaced."""
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
        place = self._url.location
        if "no such table" in str(error):
            return missing_tables(self._url)
        if _identity(self._path) is None:
            return EngineUnavailable(
                f"There is no database {self._path}, which the setting outbox names. The program "
                "that it belongs to creates it; or correct the setting.",
                location=place,
            )
        if isinstance(error, sqlite3.OperationalError):
            return EngineUnavailable(
                f"The outbox in {place} did not answer: {error}", location=place
            )
        return EngineError(f"The outbox in {place} refused a call: {error}", location=place)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

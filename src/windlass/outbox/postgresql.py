"""An outbox in PostgreSQL, for relays and operators.

A relay holds its rows by row locks, in a transaction that ends when the rows are settled: a relay
that dies gives them back with its connection. The server ends the transaction of a relay that was
stopped. Other relays skip the locked rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import Connection, RawCursor

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

#: A server or network that vanished is found after about half a minute.
_KEEPALIVES: Final[dict[str, Any]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


class PostgresOutbox:
    def __init__(self, url: OutboxUrl) -> None:
        self._url = url
        self._statements = statements(url)
        self._connection: Connection[tuple[Any, ...]] | None = None

    def take(self, limit: int, most_bytes: int) -> list[OutboxRow]:
        with self._answering():
            if not self._rows("has_rows")[0][0]:
                return []
            self._execute("BEGIN")
            self._rows("set_limits", f"{TIMEOUT_S:g}s", f"{LEASE_MS}ms")
            found = self._rows("lock_fresh", limit)
            if len(found) < limit:
                found += self._rows("lock_postponed", limit - len(found))
            taken = found[: cut([size for _, size in found], most_bytes)]
            if not taken:  # other relays have them
                self._execute("ROLLBACK")
                return []
            return [OutboxRow(*row) for row in self._rows("read", [place for place, _ in taken])]

    def settle(self, done: Sequence[int], postponed: Sequence[Postponed]) -> None:
        with self._answering():
            if done:
                self._rows("delete", list(done))
            if postponed:
                self._rows(
                    "postpone",
                    [one.position for one in postponed],
                    [one.delay_ms for one in postponed],
                    [one.error.replace("\0", "\\0") for one in postponed],
                )
            self._execute("COMMIT")

    def give_back(self) -> None:
        with self._answering():
            self._execute("ROLLBACK")

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
        with self._answering():
            self._execute("BEGIN")
            self._rows("lock_migration")
            stored = self._version() or 0
            for version, sql in migrations(self._url):
                if version > stored:
                    self._execute(sql)
            version = self._version() or 0
            self._execute("COMMIT")
        check_version(version, self._url)
        return version

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ---------------------------------------------------------------------------- the connection

    def _version(self) -> int | None:
        [[has_tables]] = self._rows("has_tables")
        return self._rows("version")[0][0] if has_tables else None

    def _rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        with RawCursor(self._open()) as cursor:
            cursor.execute(self._statements[name].encode(), values)
            return cursor.fetchall() if cursor.description else []

    def _execute(self, sql: str) -> None:
        self._open().execute(sql.encode())

    def _open(self) -> Connection[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url.database,
                autocommit=True,
                connect_timeout=round(TIMEOUT_S),
                prepare_threshold=None,  # a pool between us and the server may know none of them
                application_name="windlass outbox",
                **_KEEPALIVES,
            )
        return self._connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Close the connection on any error: the next call opens another one."""
        try:
            yield
        except psycopg.Error as error:
            is_cut = self._connection is not None and self._connection.closed
            self.close()
            raise self._explain(error, is_cut) from error
        except BaseException:
            self.close()
            raise

    def _explain(self, error: psycopg.Error, is_cut: bool) -> EngineError:
        place = self._url.location
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)):
            return missing_tables(self._url)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return EngineError(
                f"The role of the outbox in {place} lacks a right: {error}. Grant it the rights "
                "that the guide on transactions lists.",
                location=place,
            )
        if is_cut or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            return EngineUnavailable(
                f"The outbox in {place} did not answer: {_line(error)}", location=place
            )
        return EngineError(f"The outbox in {place} refused a call: {_line(error)}", location=place)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

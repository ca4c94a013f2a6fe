"""An outbox in PostgreSQL, for relays and operators.

A relay locks its rows in a transaction that ends when the rows are settled. Other relays skip
locked rows. When a relay dies, its connection ends and frees the rows. When the process of a relay
is stopped, the server ends the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import Connection, RawCursor

from windlass.errors import EngineError
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

#: With these values, a connection without a server is found broken after about half a minute.
_KEEPALIVES: Final[dict[str, Any]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


class PostgresOutbox(OutboxRows):
    """The rows of an outbox in PostgreSQL."""

    def __init__(self, url: OutboxUrl) -> None:
        super().__init__(url)
        self._connection: Connection[tuple[Any, ...]] | None = None

    def take(self, limit: int, most_bytes: int) -> list[OutboxRow]:
        with self._answering():
            if not self._rows("has_rows")[0][0]:
                return []
            self._execute("BEGIN")
            self._rows("set_limits", f"{TIMEOUT_S:g}s", f"{LEASE_MS}ms")
            taken = self._find_next(limit, most_bytes)
            if not taken:  # other relays have them
                self._execute("ROLLBACK")
                return []
            return [OutboxRow(*row) for row in self._rows("read", taken)]

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

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ---------------------------------------------------------------------------- the connection

    def _rows(self, name: str, *values: Any) -> list[Any]:
        with RawCursor(self._open()) as cursor:
            cursor.execute(self._statements[name].encode(), values)
            return cursor.fetchall() if cursor.description else []

    def _execute(self, sql: str) -> None:
        self._open().execute(sql.encode())

    def _run_script(self, sql: str) -> None:
        self._execute(sql)

    @contextmanager
    def _migrating(self) -> Iterator[None]:
        self._execute("BEGIN")
        self._rows("lock_migration")
        yield
        self._execute("COMMIT")

    def _open(self) -> Connection[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url.database,
                autocommit=True,
                connect_timeout=round(TIMEOUT_S),
                prepare_threshold=None,  # a pooler between may give each call another connection
                application_name="windlass outbox",
                **_KEEPALIVES,
            )
        return self._connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
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
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)):
            return missing_tables(self._url)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return EngineError(
                f"The role of the outbox in {self._url.location} lacks a right: {error}. Grant "
                "the rights that the guide on transactions lists.",
                location=self._url.location,
            )
        if is_cut or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            return no_answer(self._url, error)
        return refused_call(self._url, error)

"""Connections of psycopg 3.

A connection in autocommit mode is accepted inside `connection.transaction()`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from windlass.client.connections.connection import (
    AwaitableConnection,
    AwaitExecute,
    BlockingConnection,
    CallerConnection,
    Execute,
)
from windlass.engine.contract import Dialect, SqlRows, SqlStatement, TransactionPlace


def adapt(value: object) -> CallerConnection | None:
    if isinstance(value, Connection):
        return PsycopgConnection(value)
    if isinstance(value, AsyncConnection):
        return AsyncPsycopgConnection(value)
    return None


class PsycopgConnection(BlockingConnection):
    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__("psycopg.Connection")
        self._connection = connection

    def begin(self, place: TransactionPlace) -> Execute:
        _check(self, self._connection, place)
        return self._execute

    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        _check_idle(self, self._connection, place)
        return self._connection.transaction()

    def _execute(self, statement: SqlStatement) -> SqlRows:
        # Not `connection.cursor()`, whose kind and row factory are the caller's.
        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            with self._connection.pipeline() if _is_pipelined(self._connection) else nullcontext():
                cursor.execute(statement.sql.encode(), statement.values)
            return cursor.fetchall() if cursor.description else ()


class AsyncPsycopgConnection(AwaitableConnection):
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__("psycopg.AsyncConnection")
        self._connection = connection

    async def abegin(self, place: TransactionPlace) -> AwaitExecute:
        _check(self, self._connection, place)
        return self._execute

    def atransaction(self, place: TransactionPlace) -> AbstractAsyncContextManager[Any]:
        _check_idle(self, self._connection, place)
        return self._connection.transaction()

    async def _execute(self, statement: SqlStatement) -> SqlRows:
        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            async with (
                self._connection.pipeline() if _is_pipelined(self._connection) else nullcontext()
            ):
                await cursor.execute(statement.sql.encode(), statement.values)
            return await cursor.fetchall() if cursor.description else ()


def _is_pipelined(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether statements only queue. The end of an inner pipeline waits for their replies."""
    return connection.info.pipeline_status is not PipelineStatus.OFF


def _check_idle(
    caller: CallerConnection,
    connection: Connection[Any] | AsyncConnection[Any],
    place: TransactionPlace,
) -> None:
    caller.check_dialect(Dialect.POSTGRESQL, place)
    if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        raise caller.refuse_begun()


def _check(
    caller: CallerConnection,
    connection: Connection[Any] | AsyncConnection[Any],
    place: TransactionPlace,
) -> None:
    caller.check_dialect(Dialect.POSTGRESQL, place)
    if connection.closed:
        raise caller.refuse("found a closed connection", "Open a connection, and begin again.")
    is_idle = connection.info.transaction_status is TransactionStatus.IDLE
    if is_idle and connection.autocommit:
        raise caller.refuse_unbegun(
            "found one in autocommit mode outside of a transaction",
            "Enqueue inside `with connection.transaction():`, or leave out connection=.",
        )

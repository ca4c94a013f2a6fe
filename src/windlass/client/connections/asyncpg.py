"""Connections of asyncpg, also those that a pool has lent.

asyncpg commits each statement by itself, except inside `connection.transaction()`. So a connection
outside of a transaction is refused: there is nothing that the job could be stored together with.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from windlass.client.connections.connection import (
    AwaitableConnection,
    AwaitExecute,
    CallerConnection,
)
from windlass.engine.contract import Dialect, SqlRows, SqlStatement, TransactionPlace


def adapt(value: object) -> CallerConnection | None:
    is_connection = hasattr(value, "is_in_transaction") and hasattr(value, "fetch")
    return AsyncpgConnection(value) if is_connection else None


class AsyncpgConnection(AwaitableConnection):
    def __init__(self, connection: Any) -> None:
        super().__init__("asyncpg.Connection")
        self._connection = connection

    def atransaction(self, place: TransactionPlace) -> AbstractAsyncContextManager[Any]:
        self.check_dialect(Dialect.POSTGRESQL, place)
        if self._connection.is_in_transaction():
            raise self.refuse_begun()
        block: AbstractAsyncContextManager[Any] = self._connection.transaction()
        return block

    async def abegin(self, place: TransactionPlace) -> AwaitExecute:
        self.check_dialect(Dialect.POSTGRESQL, place)
        if self._connection.is_closed():
            raise self.refuse("found a closed connection", "Open a connection, and begin again.")
        if not self._connection.is_in_transaction():
            raise self.refuse_unbegun(
                "found one outside of a transaction, where asyncpg commits each statement",
                "Enqueue inside `async with connection.transaction():`, or leave out connection=.",
            )
        return self._execute

    async def _execute(self, statement: SqlStatement) -> SqlRows:
        rows = await self._connection.fetch(statement.sql, *statement.values)
        return [tuple(row) for row in rows]

"""Connections and sessions of SQLAlchemy, blocking and async, with any driver for PostgreSQL or
SQLite whose parameter marks are known here.

Statements go through `exec_driver_sql`, and not to the driver: so SQLAlchemy begins its transaction
and takes part in its end. A session does not flush here; its commit does, before it commits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import PendingRollbackError, UnboundExecutionError

from windlass.client.connections import parameters
from windlass.client.connections.connection import (
    AsyncCallerConnection,
    BlockingConnection,
    CallerConnection,
    Execute,
    plain_rows,
)
from windlass.client.connections.sqlite3 import commits_each_statement
from windlass.engine.contract import (
    Dialect,
    SqlGenerator,
    SqlRows,
    SqlStatement,
    TransactionPlace,
)
from windlass.errors import InvalidConnection

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

R = TypeVar("R")

_MARKS: Final[dict[str, Callable[[SqlStatement], tuple[str, tuple[Any, ...]]]]] = {
    "pyformat": parameters.with_percent,
    "format": parameters.with_percent,
    "numeric_dollar": parameters.with_dollars,
    "qmark": parameters.with_question_marks,
}


def adapt(value: Any) -> CallerConnection | None:
    """Only the parts of SQLAlchemy that the caller has imported can have made the value."""
    orm = sys.modules.get("sqlalchemy.orm")
    asyncio = sys.modules.get("sqlalchemy.ext.asyncio")
    if orm is not None and isinstance(value, orm.scoped_session):
        value = value()
    if asyncio is not None and isinstance(value, asyncio.async_scoped_session):
        value = value()
    if isinstance(value, Connection):
        return AlchemyConnection(value)
    if orm is not None and isinstance(value, orm.Session):
        return AlchemySession(value)
    if asyncio is not None and isinstance(value, asyncio.AsyncConnection):
        return AsyncAlchemy(value, AlchemyConnection, "AsyncConnection of SQLAlchemy")
    if asyncio is not None and isinstance(value, asyncio.AsyncSession):
        return AsyncAlchemy(value, AlchemySession, "AsyncSession of SQLAlchemy")
    return None


class AlchemyConnection(BlockingConnection):
    def __init__(self, connection: Connection, kind: str = "Connection of SQLAlchemy") -> None:
        super().__init__(kind)
        self._connection = connection

    def begin(self, place: TransactionPlace) -> Execute:
        connection = self._connection
        self.check_dialect(connection.dialect.name, place)
        if connection.closed:
            raise self.refuse("found a closed connection", "Open a connection, and begin again.")
        mark = _MARKS.get(connection.dialect.paramstyle)
        if mark is None:
            raise InvalidConnection(
                f"Expected a driver with one of the parameter styles {', '.join(_MARKS)}, found "
                f"{connection.dialect.driver} with {connection.dialect.paramstyle}. Use psycopg, "
                "asyncpg or psycopg2 for PostgreSQL, sqlite3 or aiosqlite for SQLite."
            )
        self._check_transaction()
        return lambda statement: _execute(connection, *mark(statement))

    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        self.check_dialect(self._connection.dialect.name, place)
        if self._connection.in_transaction():
            raise self.refuse_begun()
        return self._connection.begin()

    def _check_transaction(self) -> None:
        """Begin the transaction of SQLAlchemy, as a statement would; only then can a driver for
        SQLite say whether it is in one."""
        connection = self._connection
        begun = None if connection.in_transaction() else connection.begin()
        if _commits_each_statement(connection):
            if begun is not None:
                begun.rollback()
            raise self.refuse(
                "found one with the isolation level AUTOCOMMIT",
                "Use another isolation level for this connection, or leave out connection=.",
            )


class AlchemySession(BlockingConnection):
    def __init__(self, session: Session, kind: str = "Session of SQLAlchemy") -> None:
        super().__init__(kind)
        self._session = session

    def begin(self, place: TransactionPlace) -> Execute:
        session = self._session
        try:
            connection = session.connection()
        except PendingRollbackError as error:
            raise self.refuse(
                "found a session in which a flush failed before", "Call its rollback() first."
            ) from error
        except UnboundExecutionError as error:
            raise InvalidConnection(
                f"Expected a session with one database, found several or none ({error}). Give the "
                "connection of the right one: session.connection(bind_arguments={...})."
            ) from error
        return AlchemyConnection(connection, self.kind).begin(place)

    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        if self._session.in_transaction():
            raise self.refuse_begun()
        return self._session.begin()


class AsyncAlchemy(AsyncCallerConnection):
    """An async connection or session: SQLAlchemy runs blocking code with its async drivers."""

    def __init__(
        self,
        value: AsyncConnection | AsyncSession,
        blocking: Callable[[Any, str], BlockingConnection],
        kind: str,
    ) -> None:
        super().__init__(kind)
        self._value = value
        self._blocking = blocking

    def atransaction(self, place: TransactionPlace) -> AbstractAsyncContextManager[Any]:
        if self._value.in_transaction():
            raise self.refuse_begun()
        return self._value.begin()

    async def arun(self, place: TransactionPlace, statements: SqlGenerator[R]) -> R:
        def run(value: Any) -> R:
            return self._blocking(value, self.kind).run(place, statements)

        return await self._value.run_sync(run)


def _execute(connection: Connection, sql: str, values: tuple[Any, ...]) -> SqlRows:
    result = connection.exec_driver_sql(sql, values)
    if not result.returns_rows:
        return ()
    return plain_rows(result.fetchall())


def _commits_each_statement(connection: Connection) -> bool:
    fairy = connection.connection
    if connection.dialect.name == Dialect.SQLITE:
        return commits_each_statement(fairy.driver_connection)
    return bool(getattr(fairy.dbapi_connection, "autocommit", False))

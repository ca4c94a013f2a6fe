"""Connections to the database of the jobs for the code of tasks.

These connections have none of the settings of the engine's own connections: no time limits, and the
planner as the user has configured it. A few are kept open between jobs. A connection that a job
left in any other state than idle is closed. Outside of the block they are in autocommit mode, so
that a COMMIT by a task is noticed: the statements after it do not silently begin another
transaction.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from windlass.engine.postgres.connections import KEEPALIVES
from windlass.engine.postgres.url import PostgresAddress
from windlass.engine.sql.statements import Row

Connection = psycopg.Connection[Row]
AsyncConnection = psycopg.AsyncConnection[Row]

#: The most connections that are kept open without a job.
_MOST_IDLE: Final = 4
#: How long the server may take to accept a connection, in seconds, unless the url says so.
_CONNECT_S: Final = 10
#: How long a request to end a statement may take, in seconds.
_CANCEL_S: Final = 2.0
#: The driver prepares a statement that it runs for the fifth time.
_PREPARE_AFTER: Final = 5


class TaskConnections:
    """Lends connections for one block each."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._async_idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncConnection]]
        self._async_idle = WeakKeyDictionary()
        self._pid = os.getpid()
        # Behind a pooler there is nothing to reset: each transaction has another connection.
        self._reset: Final = b"" if address.is_pooled else b"DISCARD ALL"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        connection = self._take()
        try:
            with connection.transaction():
                yield connection
        finally:
            self._give_back(connection)

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[AsyncConnection]:
        connection = await self._atake()
        try:
            async with connection.transaction():
                yield connection
        finally:
            await self._agive_back(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._kept():
            connection.close()
        self._idle.clear()
        for idle in self._async_idle.values():
            for one in idle:
                one.pgconn.finish()
        self._async_idle.clear()

    # ----------------------------------------------------------------------------------- blocking

    def _take(self) -> Connection:
        """Return an idle connection that works, reset as if it were new, or a new one."""
        while idle := self._kept():
            connection = idle.pop()
            with suppress(psycopg.OperationalError):
                connection.execute(self._reset)
                connection.row_factory, connection.cursor_factory = tuple_row, psycopg.Cursor
                return connection
            connection.close()
        return Connection.connect(_conninfo(self._address), **_options(self._address))

    def _give_back(self, connection: Connection) -> None:
        status, idle = connection.info.transaction_status, self._kept()
        if status is TransactionStatus.IDLE and len(idle) < _MOST_IDLE:
            idle.append(connection)
            return
        if status is TransactionStatus.ACTIVE:  # an interrupt left a statement running
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_CANCEL_S)
        connection.close()

    def _kept(self) -> list[Connection]:
        """The idle connections of this process: those of a parent must not be used."""
        if self._pid != os.getpid():
            self._inherited = self._idle, self._async_idle
            self._idle, self._async_idle = [], WeakKeyDictionary()
            self._pid = os.getpid()
        return self._idle

    # -------------------------------------------------------------------------------------- async

    async def _atake(self) -> AsyncConnection:
        while idle := self._akept():
            connection = idle.pop()
            with suppress(psycopg.OperationalError):
                await connection.execute(self._reset)
                connection.row_factory, connection.cursor_factory = tuple_row, psycopg.AsyncCursor
                return connection
            await connection.close()
        return await AsyncConnection.connect(_conninfo(self._address), **_options(self._address))

    async def _agive_back(self, connection: AsyncConnection) -> None:
        status, idle = connection.info.transaction_status, self._akept()
        if status is TransactionStatus.IDLE and len(idle) < _MOST_IDLE:
            idle.append(connection)
            return
        if status is TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):
                await connection.cancel_safe(timeout=_CANCEL_S)
        await connection.close()

    def _akept(self) -> list[AsyncConnection]:
        """The idle connections of this event loop."""
        self._kept()
        return self._async_idle.setdefault(asyncio.get_running_loop(), [])


def _conninfo(address: PostgresAddress) -> str:
    given = conninfo_to_dict(address.conninfo)
    usual = {"connect_timeout": str(_CONNECT_S), "fallback_application_name": "windlass task"}
    return make_conninfo("", **{**KEEPALIVES, **usual, **given})


def _options(address: PostgresAddress) -> dict[str, Any]:
    return {"autocommit": True, "prepare_threshold": None if address.is_pooled else _PREPARE_AFTER}

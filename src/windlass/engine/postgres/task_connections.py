"""Connections to the database of the jobs for the code of tasks.

They have none of the settings of the engine's own connections: no time limits, and the planner as
the user has configured it. Outside of a transaction each statement is committed by itself, so that
a statement after the end of a transaction does not silently begin another one.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from windlass.engine.postgres.url import PostgresAddress
from windlass.engine.sql.statements import Row

#: How long the server may take to accept a connection, in seconds.
_CONNECT_S: Final = 10
#: The driver prepares a statement that it runs for the fifth time.
_PREPARE_AFTER: Final = 5


def connect(address: PostgresAddress) -> psycopg.Connection[Row]:
    return psycopg.Connection.connect(_conninfo(address), **_options(address))


async def aconnect(address: PostgresAddress) -> psycopg.AsyncConnection[Row]:
    return await psycopg.AsyncConnection.connect(_conninfo(address), **_options(address))


def _conninfo(address: PostgresAddress) -> str:
    return make_conninfo(
        address.conninfo,
        connect_timeout=str(_CONNECT_S),
        fallback_application_name="windlass task",
    )


def _options(address: PostgresAddress) -> dict[str, Any]:
    return {"autocommit": True, "prepare_threshold": None if address.is_pooled else _PREPARE_AFTER}

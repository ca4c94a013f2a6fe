"""Make an adapter from the value of `using(connection=...)`, by the library of its type.

A library is not imported here: its own adapter imports it, after the caller has.
"""

from __future__ import annotations

from typing import Final

from windlass.client.connections.connection import CallerConnection

EXPECTED: Final = (
    "a connection to a database: of psycopg, asyncpg, SQLAlchemy (a Connection or a Session, also "
    "async), Django or sqlite3"
)


def read_connection(name: str, value: object) -> CallerConnection:
    """Read the option `connection`. Raises `TypeError`."""
    adapter = _adapt(value)
    if adapter is None:
        raise TypeError(f"{name} must be {EXPECTED}; found {_found(value)}.{_advice(value)}")
    return adapter


def _found(value: object) -> str:
    """The type of the value: the value itself may show a password."""
    kind = type(value)
    if value is None:
        return "None"
    place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a value of type {place}{kind.__qualname__}"


def _adapt(value: object) -> CallerConnection | None:
    """The adapter of the library that the value, or a base class of it, comes from."""
    for kind in type(value).__mro__:
        match kind.__module__.partition(".")[0]:
            case "psycopg":
                from windlass.client.connections.psycopg import adapt as psycopg

                return psycopg(value)
            case "sqlalchemy":
                from windlass.client.connections.sqlalchemy import adapt as sqlalchemy

                return sqlalchemy(value)
            case "asyncpg":
                from windlass.client.connections.asyncpg import adapt as asyncpg

                return asyncpg(value)
            case "django":
                from windlass.client.connections.django import adapt as django

                return django(value)
            case "sqlite3":
                from windlass.client.connections.sqlite3 import adapt as sqlite3

                return sqlite3(value)
            case _:
                continue
    return None


def _advice(value: object) -> str:
    name = type(value).__name__.lower()
    if value is None:
        return " Leave it out to enqueue outside of a transaction."
    if isinstance(value, str):
        return " A url names no transaction: open a connection, and give it."
    if "cursor" in name:
        return " This is a cursor: give its connection."
    if "sessionmaker" in name:
        return " This makes sessions: give a session of it."
    if "engine" in name or "pool" in name:
        return " This lends connections: take one of it, and give it inside its transaction."
    return ""

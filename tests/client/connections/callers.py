"""Callers with a transaction of their own, one for each library: each runs statements on its
connection, then commits or rolls back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.client.connections.django_databases import django_connection
from windlass.client.connections.recognition import read_connection
from windlass.engine.contract import (
    Dialect,
    NewJob,
    Placed,
    PutCode,
    SqlGenerator,
    SqlStatement,
    TransactionPlace,
)

#: What the caller writes itself, in the same transaction.
OWN: Final = "INSERT INTO notes (id, body) VALUES ('own', 'x')"


class Notes:
    """A place with one table, whose statements have all that drivers differ in: values out of
    order, repeated values, percent signs, bytes, and lists on PostgreSQL."""

    def __init__(self, dialect: Dialect, table: str = "notes") -> None:
        self.dialect = dialect
        self.location = f"the notes in {dialect}"
        self._table = table

    def put_within(self, jobs: Any) -> SqlGenerator[list[Placed]]:
        placed = []
        for id, body in (yield from self._insert([(job.id, job.payload) for job in jobs])):
            assert type(body) is bytes
            placed.append(Placed(id, PutCode.CREATED))
        return placed

    def _insert(self, notes: list[tuple[str, bytes]]) -> SqlGenerator[list[tuple[str, bytes]]]:
        ids, bodies = [note[0] for note in notes], [note[1] for note in notes]
        if self.dialect is Dialect.POSTGRESQL:
            rows = yield SqlStatement(
                f"INSERT INTO {self._table} (body, id) "  # noqa: S608  # a name of the test
                "SELECT b, i FROM unnest($2::text[], $1::bytea[]) AS note (i, b) "
                "WHERE 7 % 4 = 3 AND cardinality($2::text[]) > 0 RETURNING id, body",
                (bodies, ids),
            )
        else:
            rows = []
            for id, body in notes:
                rows += yield SqlStatement(
                    f"INSERT INTO {self._table} (body, id) "
                    "SELECT $2, $1 WHERE 7 % 4 = 3 AND $1 <> '' RETURNING id, body",
                    (id, body),
                )
        nothing = yield SqlStatement(f"UPDATE {self._table} SET body = body WHERE id = ''")  # noqa: S608  # a name of the test
        assert list(nothing) == []
        assert all(type(row) is tuple for row in rows)
        return [(row[0], row[1]) for row in rows]


JOBS: Final = [NewJob("one", "send", "default", b"\x00%s$1"), NewJob("two", "send", "default", b"")]


class Place(NamedTuple):
    """A database with the table `notes`: its url for psycopg, or its file, and where jobs are
    stored."""

    url: str
    file: Path
    notes: TransactionPlace


def put(place: Place, connection: object) -> list[str]:
    adapter = read_connection("connection", connection)
    return [one.id for one in adapter.run(place.notes, place.notes.put_within(JOBS))]


async def aput(place: Place, connection: object) -> list[str]:
    adapter = read_connection("connection", connection)
    return [one.id for one in await adapter.arun(place.notes, place.notes.put_within(JOBS))]


def _psycopg(place: Place, is_kept: bool) -> list[str]:
    rows = psycopg.rows.dict_row
    with psycopg.connect(place.url, row_factory=rows) as connection:
        connection.execute(OWN)
        ids = put(place, connection)
        connection.commit() if is_kept else connection.rollback()
    return ids


def _psycopg_block(place: Place, is_kept: bool) -> list[str]:
    with psycopg.connect(place.url, autocommit=True) as connection, connection.transaction() as own:
        connection.execute(OWN)
        ids = put(place, connection)
        if not is_kept:
            raise psycopg.Rollback(own)
    return ids


def _psycopg_pipeline(place: Place, is_kept: bool) -> list[str]:
    with psycopg.connect(place.url) as connection, connection.pipeline():
        connection.execute(OWN)
        ids = put(place, connection)
        connection.commit() if is_kept else connection.rollback()
    return ids


def _async_psycopg(place: Place, is_kept: bool) -> list[str]:
    async def main() -> list[str]:
        async with await psycopg.AsyncConnection.connect(place.url) as connection:
            await connection.execute(OWN)
            ids = await aput(place, connection)
            await (connection.commit() if is_kept else connection.rollback())
            return ids

    return asyncio.run(main())


def _async_psycopg_pipeline(place: Place, is_kept: bool) -> list[str]:
    async def main() -> list[str]:
        async with (
            await psycopg.AsyncConnection.connect(place.url) as connection,
            connection.pipeline(),
        ):
            await connection.execute(OWN)
            ids = await aput(place, connection)
            await (connection.commit() if is_kept else connection.rollback())
            return ids

    return asyncio.run(main())


def _asyncpg(place: Place, is_kept: bool) -> list[str]:
    async def main() -> list[str]:
        async with asyncpg.create_pool(place.url, min_size=1) as pool, pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(OWN)
            ids = await aput(place, connection)
            await (transaction.commit() if is_kept else transaction.rollback())
            return ids

    return asyncio.run(main())


def _alchemy(driver: str) -> Callable[[Place, bool], list[str]]:
    def work(place: Place, is_kept: bool) -> list[str]:
        engine = sqlalchemy.create_engine(_alchemy_url(place, driver), poolclass=NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql(OWN)
            ids = put(place, connection)
            connection.commit() if is_kept else connection.rollback()
        return ids

    return work


def _alchemy_first(place: Place, is_kept: bool) -> list[str]:
    """The enqueue is the first statement of the transaction."""
    engine = sqlalchemy.create_engine(_alchemy_url(place, "psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        ids = put(place, connection)
        connection.exec_driver_sql(OWN)
        connection.commit() if is_kept else connection.rollback()
    return ids


def _session(driver: str) -> Callable[[Place, bool], list[str]]:
    def work(place: Place, is_kept: bool) -> list[str]:
        engine = sqlalchemy.create_engine(_alchemy_url(place, driver), poolclass=NullPool)
        with Session(engine) as session:
            session.execute(sqlalchemy.text(OWN))
            ids = put(place, session)
            session.commit() if is_kept else session.rollback()
        return ids

    return work


def _scoped_session(place: Place, is_kept: bool) -> list[str]:
    engine = sqlalchemy.create_engine(_alchemy_url(place, "psycopg"), poolclass=NullPool)
    sessions = scoped_session(sessionmaker(engine))
    sessions.execute(sqlalchemy.text(OWN))
    ids = put(place, sessions)
    sessions.commit() if is_kept else sessions.rollback()
    sessions.remove()
    return ids


def _async_alchemy(driver: str) -> Callable[[Place, bool], list[str]]:
    def work(place: Place, is_kept: bool) -> list[str]:
        async def main() -> list[str]:
            engine = create_async_engine(_alchemy_url(place, driver), poolclass=NullPool)
            async with engine.connect() as connection:
                await connection.exec_driver_sql(OWN)
                ids = await aput(place, connection)
                await (connection.commit() if is_kept else connection.rollback())
                return ids

        return asyncio.run(main())

    return work


def _async_session(driver: str) -> Callable[[Place, bool], list[str]]:
    def work(place: Place, is_kept: bool) -> list[str]:
        async def main() -> list[str]:
            engine = create_async_engine(_alchemy_url(place, driver), poolclass=NullPool)
            async with AsyncSession(engine) as session:
                await session.execute(sqlalchemy.text(OWN))
                ids = await aput(place, session)
                await (session.commit() if is_kept else session.rollback())
                return ids

        return asyncio.run(main())

    return work


def _alchemy_url(place: Place, driver: str) -> str:
    if driver in ("pysqlite", "aiosqlite"):
        return f"sqlite+{driver}:///{place.file}"
    return place.url.replace("postgresql:", f"postgresql+{driver}:")


def _django(place: Place, is_kept: bool) -> list[str]:
    from django.db import transaction

    with (
        django_connection(place.url or f"sqlite:///{place.file}") as connection,
        transaction.atomic(using=connection.alias),
    ):
        with connection.cursor() as cursor:
            cursor.execute(OWN)
        ids = put(place, connection)
        transaction.set_rollback(not is_kept, using=connection.alias)
    return ids


def _sqlite(place: Place, is_kept: bool) -> list[str]:
    with closing(sqlite3.connect(place.file)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute(OWN)
        ids = put(place, connection)
        connection.commit() if is_kept else connection.rollback()
    return ids


def _sqlite_begun(place: Place, is_kept: bool) -> list[str]:
    with closing(sqlite3.connect(place.file, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute(OWN)
        ids = put(place, connection)
        connection.execute("COMMIT" if is_kept else "ROLLBACK")
    return ids


def _sqlite_events(place: Place, is_kept: bool) -> list[str]:
    """SQLAlchemy's own advice for SQLite: the driver begins nothing, SQLAlchemy does."""
    engine = sqlalchemy.create_engine(f"sqlite:///{place.file}", poolclass=NullPool)

    def connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    sqlalchemy.event.listen(engine, "connect", connect)
    sqlalchemy.event.listen(engine, "begin", begin)
    with engine.connect() as connection:
        ids = put(place, connection)
        connection.exec_driver_sql(OWN)
        connection.commit() if is_kept else connection.rollback()
    return ids


Caller = Callable[[Place, bool], list[str]]
ON_POSTGRESQL: Final[dict[str, Caller]] = {
    "psycopg": _psycopg,
    "psycopg in a block": _psycopg_block,
    "psycopg, in pipeline mode": _psycopg_pipeline,
    "psycopg async": _async_psycopg,
    "psycopg, async, in pipeline mode": _async_psycopg_pipeline,
    "asyncpg": _asyncpg,
    "SQLAlchemy, psycopg": _alchemy("psycopg"),
    "SQLAlchemy, psycopg2": _alchemy("psycopg2"),
    "SQLAlchemy, enqueue first": _alchemy_first,
    "Session, psycopg": _session("psycopg"),
    "Session, psycopg2": _session("psycopg2"),
    "scoped_session": _scoped_session,
    "AsyncConnection, asyncpg": _async_alchemy("asyncpg"),
    "AsyncConnection, psycopg": _async_alchemy("psycopg"),
    "AsyncSession, asyncpg": _async_session("asyncpg"),
    "AsyncSession, psycopg": _async_session("psycopg"),
    "Django": _django,
}
ON_SQLITE: Final[dict[str, Caller]] = {
    "sqlite3": _sqlite,
    "sqlite3 in a block": _sqlite_begun,
    "SQLAlchemy, sqlite3": _alchemy("pysqlite"),
    "SQLAlchemy with events": _sqlite_events,
    "Session, sqlite3": _session("pysqlite"),
    "AsyncConnection, aiosqlite": _async_alchemy("aiosqlite"),
    "AsyncSession, aiosqlite": _async_session("aiosqlite"),
    "Django": _django,
}

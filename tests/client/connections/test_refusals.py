"""A connection in a wrong state is refused before anything is stored, and the error says what was
expected, what was found, and how to fix it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import tuple_row
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool

from tests.client.connections.callers import JOBS, Notes, Place, aput, put
from tests.client.connections.django_databases import django_connection
from tests.client.connections.test_libraries import stored
from tests.postgres_server import OWNER, WORKER, shared_server
from windlass.client.connections.recognition import read_connection
from windlass.engine.contract import Dialect
from windlass.errors import InvalidConnection

EXPECTED = "in a transaction, which the job is stored in; found "


@contextmanager
def refused(place: Place, *texts: str) -> Iterator[None]:
    with pytest.raises(InvalidConnection) as caught:
        yield
    for text in texts:
        assert text in str(caught.value)
    assert stored(place) == []


@contextmanager
def alchemy(
    place: Place, driver: str = "psycopg", **options: Any
) -> Iterator[sqlalchemy.Connection]:
    url = place.url.replace(":", f"+{driver}:", 1) if place.url else f"sqlite:///{place.file}"
    engine = sqlalchemy.create_engine(url, poolclass=NullPool, **options)
    with engine.connect() as connection:
        yield connection


@asynccontextmanager
async def async_session(place: Place, **options: Any) -> AsyncIterator[AsyncSession]:
    url = place.url.replace(":", "+asyncpg:", 1)
    engine = create_async_engine(url, poolclass=NullPool, **options)
    async with AsyncSession(engine) as session:
        yield session


# ------------------------------------------------------------------------------------------- closed


def test_a_closed_connection(on_postgresql: Place, on_sqlite: Place) -> None:
    connection = psycopg.connect(on_postgresql.url)
    connection.close()
    with refused(on_postgresql, f"psycopg.Connection {EXPECTED}a closed connection", "Open"):
        put(on_postgresql, connection)
    other = sqlite3.connect(on_sqlite.file)
    other.close()
    with refused(on_sqlite, f"sqlite3.Connection {EXPECTED}a closed connection", "Open"):
        put(on_sqlite, other)
    with alchemy(on_postgresql) as third:
        pass
    with refused(on_postgresql, f"Connection of SQLAlchemy {EXPECTED}a closed connection"):
        put(on_postgresql, third)


def test_a_closed_async_connection(on_postgresql: Place) -> None:
    async def main() -> None:
        first = await psycopg.AsyncConnection.connect(on_postgresql.url)
        await first.close()
        with refused(on_postgresql, "psycopg.AsyncConnection", "closed", "Open a connection"):
            await aput(on_postgresql, first)
        second = await asyncpg.connect(on_postgresql.url)
        await second.close()
        with refused(on_postgresql, "asyncpg.Connection", "closed", "Open a connection"):
            await aput(on_postgresql, second)

    asyncio.run(main())


# --------------------------------------------------------------------------------------- autocommit


def test_psycopg_in_autocommit_mode(on_postgresql: Place) -> None:
    with (
        psycopg.connect(on_postgresql.url, autocommit=True) as connection,
        refused(on_postgresql, "autocommit mode", "with connection.transaction():"),
    ):
        put(on_postgresql, connection)


def test_asyncpg_outside_of_a_transaction(on_postgresql: Place) -> None:
    async def main() -> None:
        connection = await asyncpg.connect(on_postgresql.url)
        with refused(on_postgresql, "an asyncpg.Connection", "connection.transaction():"):
            await aput(on_postgresql, connection)
        await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("level", ["engine", "connection"])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pysqlite"])
def test_sqlalchemy_in_autocommit_mode(
    level: str, driver: str, on_postgresql: Place, on_sqlite: Place
) -> None:
    place = on_sqlite if driver == "pysqlite" else on_postgresql
    options = {"isolation_level": "AUTOCOMMIT"} if level == "engine" else {}
    with alchemy(place, driver, **options) as connection:
        if level == "connection":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with refused(place, EXPECTED, "AUTOCOMMIT", "isolation level"):
            put(place, connection)
        assert not connection.in_transaction()


def test_an_async_session_in_autocommit_mode(on_postgresql: Place) -> None:
    async def main() -> None:
        async with async_session(on_postgresql, isolation_level="AUTOCOMMIT") as session:
            with refused(on_postgresql, f"AsyncSession of SQLAlchemy {EXPECTED}", "AUTOCOMMIT"):
                await aput(on_postgresql, session)

    asyncio.run(main())


def test_django_outside_of_an_atomic_block(on_postgresql: Place) -> None:
    with (
        django_connection(on_postgresql.url) as connection,
        refused(on_postgresql, "outside of an atomic block", "with transaction.atomic():"),
    ):
        put(on_postgresql, connection)


def test_django_without_autocommit_is_in_a_transaction(on_postgresql: Place) -> None:
    with django_connection(on_postgresql.url) as connection:
        connection.set_autocommit(False)
        put(on_postgresql, connection)
        connection.commit()
    assert stored(on_postgresql) == ["one", "two"]


def test_sqlite3_in_autocommit_mode(on_sqlite: Place) -> None:
    with (
        closing(sqlite3.connect(on_sqlite.file, isolation_level=None)) as connection,
        refused(on_sqlite, "autocommit mode", 'Execute "BEGIN" first'),
    ):
        put(on_sqlite, connection)


@pytest.mark.parametrize("autocommit", [True, False])
def test_sqlite3_of_newer_versions(autocommit: bool, on_sqlite: Place) -> None:
    """From Python 3.12 on, `autocommit` decides, and not the isolation level."""

    class Newer(sqlite3.Connection):
        autocommit: bool

    with closing(sqlite3.connect(on_sqlite.file, factory=Newer)) as connection:
        connection.autocommit = autocommit
        if autocommit:
            with refused(on_sqlite, "autocommit mode"):
                put(on_sqlite, connection)
        else:
            assert put(on_sqlite, connection) == ["one", "two"]


# ------------------------------------------------------------------------------------------ aborted


def test_an_aborted_transaction(on_postgresql: Place) -> None:
    with psycopg.connect(on_postgresql.url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with refused(on_postgresql, EXPECTED, "aborted transaction", "Roll back"):
            put(on_postgresql, connection)


def test_an_aborted_transaction_of_sqlalchemy(on_postgresql: Place) -> None:
    with alchemy(on_postgresql) as connection:
        with pytest.raises(sqlalchemy.exc.DataError):
            connection.exec_driver_sql("SELECT 1 / 0")
        with refused(on_postgresql, EXPECTED, "aborted transaction", "Roll back"):
            put(on_postgresql, connection)


def test_an_aborted_transaction_of_asyncpg(on_postgresql: Place) -> None:
    async def main() -> None:
        connection = await asyncpg.connect(on_postgresql.url)
        transaction = connection.transaction()
        await transaction.start()
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1 / 0")
        with refused(on_postgresql, EXPECTED, "aborted transaction", "Roll back"):
            await aput(on_postgresql, connection)
        await connection.close()
        async with async_session(on_postgresql) as session:
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                await session.execute(sqlalchemy.text("SELECT 1 / 0"))
            with refused(on_postgresql, EXPECTED, "aborted transaction"):
                await aput(on_postgresql, session)

    asyncio.run(main())


def test_an_atomic_block_that_must_roll_back(on_postgresql: Place) -> None:
    from django.db import DatabaseError, transaction

    with (
        django_connection(on_postgresql.url) as connection,
        transaction.atomic(using=connection.alias),
    ):
        with pytest.raises(DatabaseError), transaction.atomic(connection.alias, savepoint=False):
            connection.cursor().execute("SELECT 1 / 0")
        with refused(on_postgresql, "a statement failed before", "transaction.atomic()"):
            put(on_postgresql, connection)


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "notes"
    id: Mapped[str] = mapped_column(primary_key=True)


def test_a_session_whose_flush_failed(on_postgresql: Place) -> None:
    engine = sqlalchemy.create_engine(on_postgresql.url.replace(":", "+psycopg:", 1))
    with Session(engine) as session:
        session.begin()
        session.add(Note(id="\0"))
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            session.flush()
        with refused(on_postgresql, "a flush failed before", "Call its rollback() first"):
            put(on_postgresql, session)
    engine.dispose()


def test_a_session_without_one_database(on_postgresql: Place) -> None:
    with refused(on_postgresql, "found several or none", "bind_arguments"), Session() as session:
        put(on_postgresql, session)


def test_a_session_flushes_when_it_commits(on_postgresql: Place) -> None:
    """What waits in the session and the job are one transaction."""
    engine = sqlalchemy.create_engine(on_postgresql.url.replace(":", "+psycopg:", 1))
    with Session(engine) as session, session.begin():
        session.add(Note(id="own"))
        put(on_postgresql, session)
        assert session.new
    assert stored(on_postgresql) == ["one", "own", "two"]
    engine.dispose()


# ------------------------------------------------------------------------------- blocking and async


def test_a_blocking_connection_on_the_event_loop(on_postgresql: Place) -> None:
    async def main() -> None:
        with (
            psycopg.connect(on_postgresql.url) as connection,
            refused(on_postgresql, "async connection", "psycopg.Connection", "block"),
        ):
            await aput(on_postgresql, connection)
        with (
            alchemy(on_postgresql) as other,
            refused(on_postgresql, "async connection", "Connection of SQLAlchemy"),
        ):
            await aput(on_postgresql, other)

    asyncio.run(main())


def test_an_async_connection_outside_of_a_coroutine(on_postgresql: Place) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(on_postgresql.url) as connection:
            with refused(on_postgresql, "psycopg.AsyncConnection", "aenqueue(...)"):
                put(on_postgresql, connection)
        async with async_session(on_postgresql) as session:
            with refused(on_postgresql, "AsyncSession of SQLAlchemy", "aenqueue(...)"):
                put(on_postgresql, session)

    asyncio.run(main())


# ------------------------------------------------------------------------------ the wrong database


def test_a_connection_to_another_kind_of_database(on_postgresql: Place, on_sqlite: Place) -> None:
    with (
        closing(sqlite3.connect(on_sqlite.file)) as connection,
        refused(on_postgresql, "a connection to PostgreSQL", "found a sqlite3", "setting outbox"),
    ):
        put(on_postgresql, connection)
    with (
        psycopg.connect(on_postgresql.url) as other,
        refused(on_sqlite, "a connection to SQLite", "to postgresql", "setting outbox"),
    ):
        put(on_sqlite, other)


def test_a_connection_to_mysql(on_postgresql: Place) -> None:
    with alchemy(on_postgresql) as connection:
        connection.dialect = mysql.dialect()
        with refused(on_postgresql, "found a Connection of SQLAlchemy to mysql"):
            put(on_postgresql, connection)


def test_a_driver_with_other_parameters(on_postgresql: Place) -> None:
    with alchemy(on_postgresql) as connection:
        connection.dialect.paramstyle = "named"
        with refused(on_postgresql, "parameter styles pyformat", "psycopg with named"):
            put(on_postgresql, connection)


def test_a_database_without_the_tables(on_postgresql: Place, on_sqlite: Place) -> None:
    absent = on_postgresql._replace(notes=Notes(Dialect.POSTGRESQL, "windlass.absent"))
    with psycopg.connect(absent.url) as connection, refused(absent, "windlass migrate"):
        put(absent, connection)
    with alchemy(absent) as other, refused(absent, "windlass migrate", "the notes in postgresql"):
        put(absent, other)
    with psycopg.connect(absent.url) as again, pytest.raises(InvalidConnection) as error:
        put(absent, again)
    assert "\n" not in str(error.value)  # the driver shows the statement below its words
    missing = on_sqlite._replace(notes=Notes(Dialect.SQLITE, "windlass_absent"))
    with closing(sqlite3.connect(missing.file)) as third, refused(missing, "windlass migrate"):
        put(missing, third)


def test_a_role_without_the_right(on_postgresql: Place, notes_database: str) -> None:
    server = shared_server()
    with server.connect(notes_database, OWNER) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS secrets (id text, body bytea)")
        connection.execute(f"REVOKE ALL ON secrets FROM {WORKER}")
    place = on_postgresql._replace(notes=Notes(Dialect.POSTGRESQL, "secrets"))
    with psycopg.connect(place.url) as other, refused(place, "may not store", "rights"):
        put(place, other)


def test_other_errors_of_a_driver_pass(on_postgresql: Place) -> None:
    """The caller may retry by the type of the error."""
    with psycopg.connect(on_postgresql.url) as connection:
        put(on_postgresql, connection)
        with pytest.raises(psycopg.errors.UniqueViolation):
            put(on_postgresql, connection)


# --------------------------------------------------------------------------------- what it is given


def objects(place: Place) -> Iterator[tuple[object, str]]:
    url = place.url.replace(":", "+psycopg:", 1)
    yield None, "found None. Leave it out"
    yield place.url, "A url names no transaction"
    yield 7, "found a value of type int."
    connection = psycopg.connect(place.url)
    yield connection.cursor(row_factory=tuple_row), "This is a cursor: give its connection."
    connection.close()
    with closing(sqlite3.connect(":memory:")) as other:
        yield other.cursor(), "This is a cursor: give its connection."
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    yield engine, "This lends connections"
    yield create_async_engine(url), "This lends connections"
    yield sessionmaker(engine), "This makes sessions"
    yield async_sessionmaker(), "This makes sessions"
    lent = engine.raw_connection()
    yield lent, "found a value of type sqlalchemy.pool.base._ConnectionFairy."
    lent.close()


def test_values_that_are_no_connection(on_postgresql: Place) -> None:
    for value, text in objects(on_postgresql):
        with pytest.raises(TypeError, match="connection must be a connection to a data") as caught:
            read_connection("connection", value)
        assert text in str(caught.value)


def test_a_pool_of_asyncpg(on_postgresql: Place) -> None:
    async def main() -> None:
        async with asyncpg.create_pool(on_postgresql.url, min_size=1) as pool:
            with pytest.raises(TypeError, match="This lends connections"):
                read_connection("connection", pool)

    asyncio.run(main())


def test_a_subclass_is_known_by_its_library(on_postgresql: Place) -> None:
    class Own(psycopg.Connection[Any]):
        pass

    with Own.connect(on_postgresql.url) as connection:
        assert put(on_postgresql, connection) == [job.id for job in JOBS]


def test_no_library_is_imported(on_sqlite: Path) -> None:
    program = (
        "import sqlite3, sys; from windlass.client.connections.recognition import read_connection;"
        "read_connection('connection', sqlite3.connect(':memory:'));"
        "print([name for name in ('psycopg', 'sqlalchemy', 'asyncpg', 'django')"
        " if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"

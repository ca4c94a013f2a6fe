"""Producers store jobs in the outbox: with every library, without the engine, also in a sandbox."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.client.connections.callers import ON_POSTGRESQL, ON_SQLITE, Caller, Place
from tests.outbox.databases import Shop, postgres_shop, sqlite_shop
from tests.postgres_server import OWNER, shared_server
from tests.redis_server import free_port
from windlass import (
    EngineError,
    InvalidConnection,
    JobNotFound,
    PayloadTooLarge,
    State,
    Task,
    Windlass,
)
from windlass.engine.contract import NewJob
from windlass.outbox.producer import Outbox
from windlass.outbox.record import decode
from windlass.testing import Sandbox


def bodies(shop: Shop) -> list[tuple[str, bytes]]:
    table = "windlass_outbox_jobs" if shop.is_sqlite else "windlass_outbox.jobs"
    with shop.connection() as connection:
        query = f"SELECT id, body FROM {table} ORDER BY position"  # noqa: S608  # our own names
        return [(row[0], bytes(row[1])) for row in connection.execute(query).fetchall()]


@pytest.fixture
def send(app: Windlass) -> Task[[int], int]:
    @app.task(name="send")
    def send(number: int) -> int:
        return number

    return send


# -------------------------------------------------------------------------------- every library


@pytest.fixture(scope="module")
def postgres() -> Shop:
    return postgres_shop()


def place_in(shop: Shop, file: Path) -> Place:
    url = "" if shop.is_sqlite else shop.url.url
    return Place(url, file, Outbox(shop.url))


def make_notes(shop: Shop) -> None:
    """The table in which `callers` write themselves."""
    database = shop.url.location.rpartition("/")[2]
    with shared_server().connect(database, OWNER) as connection:
        connection.execute("DROP TABLE IF EXISTS notes; DELETE FROM windlass_outbox.jobs")
        connection.execute("CREATE TABLE notes (id text, body bytea); GRANT ALL ON notes TO PUBLIC")


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("caller", ON_POSTGRESQL.values(), ids=ON_POSTGRESQL)
def test_every_library_on_postgresql(caller: Caller, is_kept: bool, postgres: Shop) -> None:
    make_notes(postgres)
    assert caller(place_in(postgres, Path()), is_kept) == ["one", "two"]
    assert postgres.waiting() == (["one", "two"] if is_kept else [])


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("caller", ON_SQLITE.values(), ids=ON_SQLITE)
def test_every_library_on_sqlite(caller: Caller, is_kept: bool, tmp_path: Path) -> None:
    shop = sqlite_shop(tmp_path)
    with shop.connection() as connection:
        connection.execute("CREATE TABLE notes (id TEXT, body BLOB)")
    assert caller(place_in(shop, tmp_path / "shop.db"), is_kept) == ["one", "two"]
    assert shop.waiting() == (["one", "two"] if is_kept else [])


# --------------------------------------------------------------------------------------- the rows


def test_a_row_is_the_job(shop: Shop, app: Windlass, send: Task[[int], int]) -> None:
    within = send.using(priority=3, run_after="1h", idempotency_key="k")
    with shop.connection() as connection:
        job = within.using(connection=connection).enqueue(7)
        connection.commit()
    ((id, body),) = bodies(shop)
    stored = decode(body)
    assert id == job.id == stored.id
    assert (stored.task, stored.queue, stored.priority) == ("send", "default", 3)
    assert (stored.run_in_ms, stored.idempotency_key) == (3_600_000, "k")
    assert stored.payload == b'{"args":[7]}'


def test_many_rows_keep_their_order(shop: Shop, send: Task[[int], int]) -> None:
    with shop.connection() as connection:
        jobs = send.using(connection=connection).enqueue_many((n,) for n in range(1_250))
        connection.commit()
    assert shop.waiting() == [job.id for job in jobs]


def test_encrypted_calls_stay_so(shop: Shop, tmp_path: Path) -> None:
    secret = "a" * 32
    url = f"sqlite:///{tmp_path}/sealed.db"
    with Windlass(url, outbox=shop.url.url, secret=secret, encrypt=True) as app:

        @app.task(name="send")
        def send(text: str) -> None: ...

        with shop.connection() as connection:
            send.using(connection=connection).enqueue("hunter2")
            connection.commit()
    ((_, body),) = bodies(shop)
    assert b"hunter2" not in body


def test_the_engine_may_be_away(shop: Shop) -> None:
    """No enqueue with a connection calls it."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    with Windlass(url, outbox=shop.url.url, enqueue_timeout="100ms") as app:

        @app.task(name="send")
        def send(number: int) -> None: ...

        with shop.connection() as connection:
            job = send.using(connection=connection).enqueue(1)
            connection.commit()
        assert shop.waiting() == [job.id]


def test_what_no_engine_stores_is_refused_at_once(shop: Shop, app: Windlass) -> None:
    """The caller can be told, which a relay cannot do."""

    @app.task(name="send")
    def send(text: str) -> None: ...

    with shop.connection() as connection:
        within = send.using(connection=connection)
        with pytest.raises(PayloadTooLarge):
            within.enqueue("x" * 2_000_000)
        late = NewJob(app.engine.new_id("send", "default", None), "send", "default", b"", 0, 10**17)
        steps = Outbox(shop.url).put_within([late])
        with pytest.raises(EngineError, match="run_after_ms"):
            next(steps)
        connection.commit()
    assert shop.waiting() == []


# ----------------------------------------------------------------------------- the other databases


def test_a_connection_without_the_tables(app: Windlass, shop: Shop, send: Task[[int], int]) -> None:
    with (
        Windlass(app.settings.url, outbox=f"{shop.url.url}?namespace=nowhere") as other,
        shop.connection() as connection,
        pytest.raises(InvalidConnection, match=r"Run `windlass migrate` once for the outbox in"),
    ):
        other.task_named("send").using(connection=connection).enqueue(1)


def test_a_connection_to_the_other_kind(shop: Shop, send: Task[[int], int], tmp_path: Path) -> None:
    other: Any
    if shop.is_sqlite:
        other = psycopg.connect(postgres_shop().url.url)
    else:
        other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(InvalidConnection, match=r"Expected a connection to .*, to the database of"):
        send.using(connection=other).enqueue(1)
    other.close()


def test_the_handle_says_where_the_job_is(shop: Shop, send: Task[[int], int]) -> None:
    with shop.connection() as connection:
        job = send.using(connection=connection).enqueue(1)
        connection.commit()
    with pytest.raises(JobNotFound, match="with an outbox, a worker has relayed it"):
        job.info()


# ------------------------------------------------------------------------------------- in a sandbox


def test_in_a_sandbox_a_job_is_stored_at_once(
    app: Windlass, shop: Shop, send: Task[[int], int]
) -> None:
    """Tests roll back at their end, and have no worker."""
    with Sandbox(app) as box, shop.connection() as connection:
        job = send.using(connection=connection).enqueue(7)
        others = send.using(connection=connection).enqueue_many([(8,)])
        assert [one.info().state for one in (job, *others)] == [State.READY] * 2
        box.drain()
        assert job.result() == 7
    assert shop.waiting() == []


def test_a_sandbox_takes_another_kind_of_database(app: Windlass, send: Task[[int], int]) -> None:
    """Tests of an app with PostgreSQL may use SQLite."""

    async def main() -> str:
        engine = create_async_engine("sqlite+aiosqlite:///:memory:")
        async with AsyncSession(engine) as session:
            job = await send.using(connection=session).aenqueue(7)
        await engine.dispose()
        return job.id

    with Sandbox(app) as box:
        id = asyncio.run(main())
        assert [one.id for one in box.jobs()] == [id]


def test_a_sandbox_refuses_what_production_refuses(app: Windlass, send: Task[[int], int]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    with Sandbox(app), pytest.raises(InvalidConnection, match="autocommit"):
        send.using(connection=connection).enqueue(1)
    connection.close()

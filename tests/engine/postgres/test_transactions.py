"""Enqueues in a transaction of the caller meet other transactions, and servers and roles that
cannot take them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg
import psycopg
import pytest

from tests.client.connections.callers import ON_POSTGRESQL, Caller, Place
from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables, without_tables
from tests.pgbouncer import PgBouncer
from tests.postgres_server import OWNER, WORKER, private_server, shared_server
from tests.worker.yard import until
from windlass import (
    EngineUnavailable,
    InvalidConnection,
    Job,
    QueueFull,
    State,
    Unique,
    Windlass,
)
from windlass.client.connections.asyncpg import AsyncpgConnection
from windlass.client.connections.psycopg import AsyncPsycopgConnection
from windlass.client.connections.recognition import read_connection
from windlass.engine.contract import Plan, Succeeded, Verdict
from windlass.engine.postgres.connections import IDLE_MS
from windlass.task import SyncTask
from windlass.testing.contract.world import claim_jobs

SOON_S = 20.0


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@contextmanager
def app_at(url: str, **settings: Any) -> Iterator[Windlass]:
    with Windlass(url, **settings) as app:
        yield app
        assert app.engine.check() == []


@pytest.fixture
def app(database: Database) -> Iterator[Windlass]:
    with app_at(database.server.url(database.name)) as app:
        yield app


@pytest.fixture
def send(app: Windlass) -> SyncTask[[int], int]:
    return task_of(app)


def task_of(app: Windlass, **options: Any) -> SyncTask[[int], int]:
    def send(number: int) -> int:
        return number

    task: SyncTask[[int], int] = app.task(name="send", **options)(send)
    return task


def connect(app: Windlass, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(app.settings.url, **options)


class Waiting:
    """A call in a thread, which waits for a transaction."""

    def __init__(self, database: Database, call: Callable[[], Any]) -> None:
        self._call = call
        self.value: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not database.execute(query):
            assert self._thread.is_alive(), self.value

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001  # compared by the test
            self.value = error

    def end(self) -> Any:
        self._thread.join(SOON_S)
        assert not self._thread.is_alive()
        return self.value


# -------------------------------------------------------------------------------------- libraries


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("caller", ON_POSTGRESQL.values(), ids=ON_POSTGRESQL)
def test_every_library_stores_jobs(database: Database, caller: Caller, is_kept: bool) -> None:
    database.execute("CREATE TABLE notes (id text, body text)", f"GRANT ALL ON notes TO {WORKER}")
    engine = database.open()
    place = Place(database.server.url(database.name), Path(), engine)
    assert caller(place, is_kept) == ["one", "two"]
    records = engine.get(["one", "two"])
    assert [None if one is None else one.payload for one in records] == (
        [b"\x00%s$1", b""] if is_kept else [None, None]
    )
    assert len(database.execute("SELECT 1 FROM notes")) == is_kept
    assert engine.check() == []


# ------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("has_connection", [True, False])
@pytest.mark.parametrize("key", ["idempotency", "unique"])
def test_a_key_of_an_open_transaction(
    database: Database, app: Windlass, key: str, has_connection: bool, is_kept: bool
) -> None:
    """The second enqueue waits for the end of the first transaction."""
    task = task_of(app, **({"unique": Unique()} if key == "unique" else {}))
    if key == "idempotency":
        task = task.using(idempotency_key="key")

    def enqueue() -> Job[int]:
        if not has_connection:
            return task.enqueue(1)
        with connect(app) as own:
            return task.using(connection=own).enqueue(1)

    with connect(app) as connection:
        first = task.using(connection=connection).enqueue(1)
        waiting = Waiting(database, enqueue)
        connection.commit() if is_kept else connection.rollback()
    second = waiting.end()
    assert (second.id == first.id) is is_kept
    assert second.info().state is State.READY
    assert app.stats().queues["default"].jobs == {State.READY: 1}


def test_an_enqueue_that_waits_for_too_long(database: Database) -> None:
    with app_at(database.server.url(database.name), enqueue_timeout=0.5) as app:
        task = task_of(app, unique=Unique())
        with connect(app) as connection:
            task.using(connection=connection).enqueue(1)
            with pytest.raises(EngineUnavailable, match="has enqueued the same key"):
                task.enqueue(1)


def test_transactions_that_wait_for_each_other(database: Database, app: Windlass) -> None:
    """One of them ends with the error of the driver, and can be repeated."""
    send = task_of(app)
    with connect(app) as one, connect(app) as two:
        send.using(connection=one, idempotency_key="a").enqueue(1)
        send.using(connection=two, idempotency_key="b").enqueue(2)
        waiting = Waiting(
            database, lambda: send.using(connection=one, idempotency_key="b").enqueue(2)
        )
        try:
            send.using(connection=two, idempotency_key="a").enqueue(1)
        except psycopg.errors.DeadlockDetected:
            two.rollback()
            assert isinstance(waiting.end(), Job)
            one.commit()
        else:
            two.commit()
            assert isinstance(waiting.end(), psycopg.errors.DeadlockDetected)
            one.rollback()
        again = send.using(connection=two, idempotency_key="a").enqueue(1)
        two.commit()
    assert not again.created
    assert app.stats().queues["default"].jobs == {State.READY: 2}


@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
@pytest.mark.parametrize("key", ["idempotency", "unique"])
def test_a_key_that_a_later_commit_has_changed(app: Windlass, key: str, level: str) -> None:
    """The transaction cannot see that commit, and must not store a second job."""
    task = task_of(app, **({"unique": Unique()} if key == "unique" else {}))
    if key == "idempotency":
        task = task.using(idempotency_key="key")
    with connect(app) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level]
        connection.execute("SELECT 1 FROM windlass.meta")
        first = task.enqueue(1)
        with pytest.raises(psycopg.errors.SerializationFailure):
            task.using(connection=connection).enqueue(1)
        connection.rollback()
        assert task.using(connection=connection).enqueue(1).id == first.id
        connection.commit()
    assert app.stats().queues["default"].jobs == {State.READY: 1}


@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_other_levels_of_isolation(app: Windlass, send: SyncTask[[int], int], level: str) -> None:
    with connect(app) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level]
        jobs = send.using(connection=connection).enqueue_many([(n,) for n in range(3)])
        send.enqueue(3)
    assert [job.info().state for job in jobs] == [State.READY] * 3


def test_open_transactions_exceed_the_bound_of_a_queue_together(
    app: Windlass, send: SyncTask[[int], int]
) -> None:
    app.queue("default").set(max_waiting=1)
    with connect(app) as one, connect(app) as two:
        for connection in (one, two):
            send.using(connection=connection).enqueue(1)
            with pytest.raises(QueueFull):
                send.using(connection=connection).enqueue(2)
            connection.rollback() if connection is two else None
    with pytest.raises(QueueFull):
        send.enqueue(3)


# ---------------------------------------------------------------------------------- a wrong place


def test_a_read_only_transaction(app: Windlass, send: SyncTask[[int], int]) -> None:
    with connect(app) as connection:
        connection.read_only = True
        with pytest.raises(InvalidConnection, match="found a read-only one"):
            send.using(connection=connection).enqueue(1)


def test_a_role_without_rights(
    database: Database, app: Windlass, send: SyncTask[[int], int]
) -> None:
    send.enqueue(1)
    database.execute(f"REVOKE INSERT ON windlass.jobs FROM {WORKER}")
    with (
        connect(app) as connection,
        pytest.raises(InvalidConnection, match=r"may not store jobs in .*jobs.*Grant"),
    ):
        send.using(connection=connection).enqueue(1)


def test_tables_that_were_removed(database: Database, app: Windlass) -> None:
    send = task_of(app)
    send.enqueue(1)
    database.execute("ALTER SCHEMA windlass RENAME TO away")
    with (
        connect(app) as connection,
        pytest.raises(InvalidConnection, match=r"(?s)Expected the tables .*windlass migrate"),
    ):
        send.using(connection=connection).enqueue(1)
    database.execute("ALTER SCHEMA away RENAME TO windlass")


def test_tables_of_another_version(database: Database, app: Windlass) -> None:
    """The transaction of the caller is not aborted."""
    send = task_of(app)
    send.enqueue(1)
    database.execute("UPDATE windlass.meta SET format = format + 1")
    with connect(app) as connection:
        with pytest.raises(Exception, match="format"):
            send.using(connection=connection).enqueue(1)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    database.execute("UPDATE windlass.meta SET format = format - 1")


def test_another_database_with_tables(app: Windlass, send: SyncTask[[int], int]) -> None:
    with (
        with_tables() as other,
        psycopg.connect(other.server.url(other.name)) as connection,
    ):
        other.execute("UPDATE windlass.meta SET identity = 'other'")
        with pytest.raises(InvalidConnection, match="found one to another database"):
            send.using(connection=connection).enqueue(1)
        connection.rollback()
        assert other.open().stats().queues == {}
    job = send.enqueue(1)
    assert job.info().state is State.READY


def test_tables_that_do_not_exist_yet() -> None:
    server = shared_server()
    with without_tables(server) as database:
        url = server.url(database.name, user=OWNER)
        with app_at(url) as app, connect(app) as connection:
            job = task_of(app).using(connection=connection).enqueue(1)
            connection.commit()
            assert job.info().state is State.READY


# ------------------------------------------------------------------------------------- savepoints


def test_a_rollback_to_a_savepoint_removes_later_jobs(
    app: Windlass, send: SyncTask[[int], int]
) -> None:
    with connect(app) as connection:
        within = send.using(connection=connection)
        kept = within.enqueue(1)
        with connection.transaction() as savepoint:
            within.using(idempotency_key="key").enqueue(2)
            raise psycopg.Rollback(savepoint)
        again = within.using(idempotency_key="key").enqueue(2)
    assert again.created
    assert [job.info().state for job in (kept, again)] == [State.READY] * 2
    assert app.stats().queues["default"].jobs == {State.READY: 2}


def test_a_pool_by_transaction() -> None:
    server = private_server()
    bouncer = PgBouncer(server)
    try:
        with without_tables(server) as database:
            url = bouncer.url(database.name, user=OWNER)
            with app_at(f"{url}?pooler=transaction") as app:
                send = task_of(app)
                with psycopg.connect(url, prepare_threshold=None) as connection:
                    within = send.using(connection=connection)
                    within.enqueue_many([(n,) for n in range(10)])
                    connection.commit()
                    within.enqueue_many([(n,) for n in range(10)])
                    connection.rollback()
                assert app.stats().queues["default"].jobs == {State.READY: 10}

                @app.task(name="ending", transaction=True)
                def ending() -> int:
                    return 1

                with app.worker():
                    assert [ending.enqueue().result(timeout=SOON_S) for _ in range(3)] == [1] * 3
    finally:
        bouncer.end()
        server.end()


def test_a_coroutine_enqueues_many(app: Windlass, send: SyncTask[[int], int]) -> None:
    async def main() -> list[Job[int]]:
        async with await psycopg.AsyncConnection.connect(app.settings.url) as connection:
            return await send.using(connection=connection).aenqueue_many([(n,) for n in range(501)])

    jobs = asyncio.run(main())
    assert app.stats().queues["default"].jobs == {State.READY: 501}
    assert jobs[500].info().state is State.READY


# ----------------------------------------------------------------------------------- ends of jobs


def test_a_silent_task_does_not_lock_its_ended_job_for_long(database: Database) -> None:
    """The server ends the transaction of a process that was stopped before its commit."""
    engine = database.open()
    engine.put([new_job(1)])
    (claim,) = claim_jobs(engine, "session", "nonce", Plan(), 1).claims
    end = Succeeded(id=claim.id, token=claim.token)
    limit = "SHOW idle_in_transaction_session_timeout"
    with psycopg.connect(database.server.url(database.name)) as connection:
        caller = read_connection("connection", connection)
        assert caller.run(engine, engine.finish_within([end])) == [Verdict.OK]
        assert connection.execute(limit).fetchone() == (f"{IDLE_MS // 1000}s",)
        connection.commit()
        assert connection.execute(limit).fetchone() == ("0",)
    assert engine.find_verdicts([end]) == [Verdict.REPEATED]


def test_a_statement_that_was_left_running_is_ended(database: Database) -> None:
    """An interrupt may leave a block while the server still works. Its connection is not lent
    again."""
    engine = database.open()
    running = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'"
    with suppress(KeyboardInterrupt), engine.transaction() as connection:
        connection.pgconn.send_query(b"SELECT pg_sleep(600)")
        until(lambda: database.execute(running), "the server works")
        raise KeyboardInterrupt
    until(lambda: not database.execute(running), "the server is free", SOON_S)
    with engine.transaction() as other:
        assert other is not connection


# ---------------------------------------------------------------------------------- cancellation


async def begin_psycopg(url: str) -> tuple[Any, Callable[[], Awaitable[None]]]:
    connection = await psycopg.AsyncConnection.connect(url)
    await connection.execute("SELECT 1")

    async def end() -> None:
        await connection.commit()
        await connection.close()

    return connection, end


async def begin_asyncpg(url: str) -> tuple[Any, Callable[[], Awaitable[None]]]:
    connection = await asyncpg.connect(url)
    block = connection.transaction()
    await block.start()

    async def end() -> None:
        with suppress(asyncpg.InFailedSQLTransactionError):
            await block.commit()
        await connection.close()

    return connection, end


#: The number of statements of an enqueue with a unique key.
STATEMENTS: Final = 8


@pytest.mark.parametrize("statement", range(1, STATEMENTS + 1))
@pytest.mark.parametrize(
    ("begin", "adapter"),
    [(begin_psycopg, AsyncPsycopgConnection), (begin_asyncpg, AsyncpgConnection)],
    ids=["psycopg", "asyncpg"],
)
def test_a_cancelled_enqueue_stores_no_half_of_a_job(
    app: Windlass,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[str], Awaitable[tuple[Any, Callable[[], Awaitable[None]]]]],
    adapter: Any,
    statement: int,
) -> None:
    """Also if the caller commits in spite of it."""
    task = task_of(app, unique=Unique())
    execute = adapter._execute
    seen: list[object] = []

    async def cancel_in(self: Any, one: Any) -> Any:
        seen.append(one)
        rows = await execute(self, one)
        if len(seen) == statement:  # the server has run it
            running = asyncio.current_task()
            assert running is not None
            running.cancel()
            await asyncio.sleep(0)
        return rows

    async def main() -> None:
        connection, end = await begin(app.settings.url)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(task.using(connection=connection).aenqueue(1))
        await end()

    monkeypatch.setattr(adapter, "_execute", cancel_in)
    asyncio.run(main())
    assert len(seen) >= statement
    assert app.stats().queues == {}
    assert app.engine.check() == []

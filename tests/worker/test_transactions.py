"""Jobs that end in a transaction with the writes of their task, in a worker on PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.client.connections.django_databases import django_connection
from tests.engine.postgres.databases import Database, with_tables
from tests.postgres_server import WORKER
from tests.worker.apps import accounts
from tests.worker.yard import Yard, until
from windlass import (
    ClaimLost,
    Context,
    EncodeError,
    InvalidConnection,
    JobFailed,
    JobTransaction,
    NoTransaction,
    Retry,
    Snooze,
    State,
    Windlass,
    current_context,
)
from windlass.core.states import Reason
from windlass.engine.postgres.engine import PostgresEngine
from windlass.errors import EngineUnavailable
from windlass.testing import Sandbox

NOTE = "INSERT INTO notes (body) VALUES (%s)"


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        database.execute(
            "CREATE TABLE notes (body text UNIQUE DEFERRABLE INITIALLY DEFERRED)",
            f"GRANT ALL ON notes TO {WORKER}",
        )
        yield database


@pytest.fixture
def app(database: Database) -> Iterator[Windlass]:
    url = database.server.url(database.name)
    with Windlass(url, retry=Retry(max_attempts=2, base=0.01)) as app:
        yield app
        assert app.engine.check() == []


def notes(database: Database) -> list[str]:
    return [body for (body,) in database.execute("SELECT body FROM notes ORDER BY body")]


# --------------------------------------------------------------------------------- the whole task


def test_the_writes_of_a_task_and_its_end_are_one_commit(app: Windlass, database: Database) -> None:
    states: list[State] = []

    @app.task(name="plain", transaction=True, takes_context=True)
    def plain(ctx: Context, body: str) -> str:
        assert isinstance(ctx.connection, psycopg.Connection)
        assert ctx.connection is current_context().connection
        ctx.connection.execute(NOTE, [body])
        ctx.progress(0.5, "half")
        states.append(app.job(ctx.job_id).info().state)
        return f"wrote {body}"

    @app.task(name="coroutine", transaction=True, takes_context=True)
    async def coroutine(ctx: Context, body: str) -> str:
        assert isinstance(ctx.connection, psycopg.AsyncConnection)
        await ctx.connection.execute(NOTE, [body])
        return f"wrote {body}"

    with app.worker():
        jobs = [plain.enqueue("one"), coroutine.enqueue("two")]
        assert [job.result(timeout=20) for job in jobs] == ["wrote one", "wrote two"]
    assert notes(database) == ["one", "two"]
    assert states == [State.RUNNING]
    info = jobs[0].info()
    assert (info.state, info.attempts) == (State.SUCCEEDED, 1)
    assert info.progress is not None
    assert info.progress.message == "half"


def test_an_error_rolls_back_and_the_job_runs_again(app: Windlass, database: Database) -> None:
    @app.task(name="plain", transaction=True, takes_context=True)
    def plain(ctx: Context) -> None:
        ctx.connection.execute(NOTE, [f"plain {ctx.attempt}"])
        child.using(connection=ctx.connection).enqueue(ctx.attempt)
        if ctx.attempt == 1:
            raise RuntimeError("once")

    @app.task(name="coroutine", transaction=True, takes_context=True)
    async def coroutine(ctx: Context) -> None:
        await ctx.connection.execute(NOTE, [f"coroutine {ctx.attempt}"])
        await child.using(connection=ctx.connection).aenqueue(ctx.attempt)
        if ctx.attempt == 1:
            raise RuntimeError("once")

    ran: list[int] = []

    @app.task(name="child")
    def child(attempt: int) -> None:
        ran.append(attempt)

    with app.worker():
        jobs = [plain.enqueue(), coroutine.enqueue()]
        for job in jobs:
            job.result(timeout=20)
        until(lambda: len(ran) == 2, "the children")
    assert notes(database) == ["coroutine 2", "plain 2"]
    assert ran == [2, 2]
    assert [job.info().attempts for job in jobs] == [2, 2]


def test_a_snooze_rolls_back(app: Windlass, database: Database) -> None:
    @app.task(name="snoozing", transaction=True, takes_context=True)
    def snoozing(ctx: Context) -> None:
        ctx.connection.execute(NOTE, ["once"])
        if not seen:
            seen.append(1)
            raise Snooze(0.01)

    seen: list[int] = []
    with app.worker():
        snoozing.enqueue().result(timeout=20)
    assert notes(database) == ["once"]


def test_a_result_that_cannot_be_stored_rolls_back(app: Windlass, database: Database) -> None:
    @app.task(name="bad", transaction=True, takes_context=True)
    def bad(ctx: Context) -> object:
        ctx.connection.execute(NOTE, ["bad"])
        return object()

    with app.worker():
        job = bad.enqueue()
        with pytest.raises(JobFailed):
            job.result(timeout=20)
    assert job.info().reason is Reason.BAD_RESULT
    assert notes(database) == []


def test_a_commit_that_the_database_refuses_fails_the_job(
    app: Windlass, database: Database
) -> None:
    """A deferred constraint is checked at the commit."""

    @app.task(name="twice", transaction=True, takes_context=True, retry=Retry(max_attempts=1))
    def twice(ctx: Context) -> None:
        for _ in range(2):
            ctx.connection.execute(NOTE, ["same"])

    with app.worker():
        job = twice.enqueue()
        with pytest.raises(JobFailed, match="UniqueViolation"):
            job.result(timeout=20)
    assert notes(database) == []


def test_a_statement_that_failed_is_not_hidden(app: Windlass, database: Database) -> None:
    """A COMMIT of an aborted transaction rolls back without an error."""

    @app.task(name="hiding", transaction=True, takes_context=True, retry=Retry(max_attempts=1))
    def hiding(ctx: Context) -> None:
        ctx.connection.execute(NOTE, ["lost"])
        with suppress(psycopg.errors.DivisionByZero):
            ctx.connection.execute("SELECT 1 / 0")

    with app.worker():
        job = hiding.enqueue()
        with pytest.raises(JobFailed, match="aborted transaction"):
            job.result(timeout=20)
    assert notes(database) == []


def test_a_commit_by_the_task_is_not_hidden(app: Windlass, database: Database) -> None:
    @app.task(name="early", transaction=True, takes_context=True, retry=Retry(max_attempts=1))
    def early(ctx: Context) -> None:
        with pytest.raises(psycopg.ProgrammingError):
            ctx.connection.commit()
        ctx.connection.execute("COMMIT")

    with app.worker():
        job = early.enqueue()
        with pytest.raises(JobFailed, match="outside of a transaction") as failed:
            job.result(timeout=20)
    assert "which the job ends in; found one" in str(failed.value)
    assert "Leave COMMIT and ROLLBACK to the end of the block, or of the task." in str(failed.value)


def test_a_rollback_of_a_savepoint(app: Windlass, database: Database) -> None:
    @app.task(name="saving", transaction=True, takes_context=True)
    def saving(ctx: Context) -> None:
        ctx.connection.execute(NOTE, ["kept"])
        with ctx.connection.transaction() as inner:
            ctx.connection.execute(NOTE, ["lost"])
            raise psycopg.Rollback(inner)

    with app.worker():
        saving.enqueue().result(timeout=20)
    assert notes(database) == ["kept"]


def test_a_connection_is_as_new_for_each_job(app: Windlass) -> None:
    """What a job set on its connection does not reach the next one."""

    @app.task(name="setting", transaction=True, takes_context=True)
    def setting(ctx: Context) -> list[Any]:
        ctx.connection.execute("SET work_mem = '123MB'")
        row = ctx.connection.execute("SELECT pg_backend_pid()").fetchone()
        ctx.connection.row_factory = dict_row
        return list(row)

    @app.task(name="reading", transaction=True, takes_context=True)
    def reading(ctx: Context) -> list[Any]:
        query = "SELECT pg_backend_pid(), current_setting('work_mem') <> '123MB'"
        return list(ctx.connection.execute(query).fetchone())

    with app.worker(slots=1):
        [pid] = setting.enqueue().result(timeout=20)
        assert reading.enqueue().result(timeout=20) == [pid, True]


def test_a_broken_idle_connection_is_replaced(app: Windlass, database: Database) -> None:
    @app.task(name="writing", transaction=True, takes_context=True)
    def writing(ctx: Context, body: str) -> int:
        ctx.connection.execute(NOTE, [body])
        return int(ctx.connection.info.backend_pid)

    @app.task(name="awriting", transaction=True, takes_context=True)
    async def awriting(ctx: Context, body: str) -> int:
        await ctx.connection.execute(NOTE, [body])
        return int(ctx.connection.info.backend_pid)

    with app.worker():
        for task in (writing, awriting):
            pid = task.enqueue(f"{task.name} 1").result(timeout=20)
            database.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
            job = task.enqueue(f"{task.name} 2")
            assert job.result(timeout=20) != pid
            assert job.info().attempts == 1


# ---------------------------------------------------------------------------------------- a block


def test_a_block_ends_the_job(app: Windlass, database: Database) -> None:
    states: list[State] = []

    @app.task(name="plain", takes_context=True)
    def plain(ctx: Context) -> str:
        transaction = ctx.transaction()
        with transaction as connection:
            connection.execute(NOTE, ["one"])
            transaction.result = "of the block"
        states.append(app.job(ctx.job_id).info().state)
        return "of the function"

    @app.task(name="coroutine", takes_context=True)
    async def coroutine(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, ["two"])
        states.append(app.job(ctx.job_id).info().state)

    with app.worker():
        jobs = [plain.enqueue(), coroutine.enqueue()]
        assert [job.result(timeout=20) for job in jobs] == ["of the block", None]
    assert notes(database) == ["one", "two"]
    assert states == [State.SUCCEEDED] * 2


def test_an_error_after_the_block_is_only_logged(
    app: Windlass, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="plain", takes_context=True)
    def plain(ctx: Context) -> None:
        with ctx.transaction() as connection:
            connection.execute(NOTE, ["one"])
        raise RuntimeError("afterwards")

    @app.task(name="coroutine", takes_context=True)
    async def coroutine(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, ["two"])
        raise RuntimeError("afterwards")

    with caplog.at_level(logging.ERROR, "windlass.worker"), app.worker():
        jobs = [plain.enqueue(), coroutine.enqueue()]
        for job in jobs:
            job.result(timeout=20)
    assert notes(database) == ["one", "two"]
    assert [job.info().attempts for job in jobs] == [1, 1]
    lines = [record for record in caplog.records if "keeping its success" in record.getMessage()]
    assert len(lines) == 2
    assert all(line.exc_info is not None for line in lines)


def test_a_block_that_failed_can_be_repeated_by_the_task(app: Windlass, database: Database) -> None:
    @app.task(name="repeating", takes_context=True)
    def repeating(ctx: Context) -> None:
        for number in range(2):
            try:
                with ctx.transaction() as connection:
                    connection.execute(NOTE, [str(number)])
                    if number == 0:
                        raise psycopg.errors.SerializationFailure
            except psycopg.errors.SerializationFailure:
                continue

    with app.worker():
        repeating.enqueue().result(timeout=20)
    assert notes(database) == ["1"]


def test_one_block_within_another_and_one_after_another(app: Windlass, database: Database) -> None:
    found: list[str] = []

    @app.task(name="nesting", transaction=True, takes_context=True)
    def nesting(ctx: Context) -> None:
        with pytest.raises(NoTransaction, match="in a transaction already"), ctx.transaction():
            pass
        found.append("nested")

    @app.task(name="again", takes_context=True)
    def again(ctx: Context) -> None:
        with ctx.transaction():
            pass
        with pytest.raises(NoTransaction, match="has ended"), ctx.transaction():
            pass
        found.append("again")

    with app.worker():
        for job in (nesting.enqueue(), again.enqueue()):
            job.result(timeout=20)
    until(lambda: sorted(found) == ["again", "nested"], "both")


def test_a_step_is_completed_before_the_block(app: Windlass, database: Database) -> None:
    """It outlives the block, which is rolled back."""
    charged: list[int] = []

    @app.task(name="pay", takes_context=True)
    def pay(ctx: Context) -> None:
        ctx.once("charge", charged.append, ctx.attempt)
        with ctx.transaction() as connection:
            connection.execute(NOTE, [f"attempt {ctx.attempt}"])
            if ctx.attempt == 1:
                raise RuntimeError("once")

    with app.worker():
        job = pay.enqueue()
        job.result(timeout=20)
    assert charged == [1]
    assert notes(database) == ["attempt 2"]


def test_a_step_in_a_transaction_is_refused(app: Windlass, database: Database) -> None:
    """It would stay although the writes of its function are rolled back."""

    @app.task(name="block", takes_context=True)
    def block(ctx: Context) -> None:
        with ctx.transaction() as connection:
            connection.execute(NOTE, ["block"])
            ctx.once("note", connection.execute, NOTE, ["step"])

    @app.task(name="whole", transaction=True, takes_context=True)
    async def whole(ctx: Context) -> None:
        await ctx.aonce("note", ctx.connection.execute, NOTE, ["step"])

    with app.worker():
        for job in (block.enqueue(), whole.enqueue()):
            with pytest.raises(JobFailed, match="was called in the transaction of job"):
                job.result(timeout=20)
    assert notes(database) == []


def test_a_step_after_the_end_of_the_job_is_refused(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []

    @app.task(name="late", takes_context=True)
    def late(ctx: Context) -> None:
        with ctx.transaction():
            pass
        ctx.once("charge", ran.append, 1)

    with app.worker():
        late.enqueue().result(timeout=20)
        until(lambda: "after its end was committed" in caplog.text, "the error in the log")
    assert "has ended with its transaction" in caplog.text
    assert ran == []


def test_a_blocking_block_in_a_coroutine(app: Windlass) -> None:
    @app.task(name="blocking", takes_context=True)
    async def blocking(ctx: Context) -> str:
        with pytest.raises(NoTransaction, match="async with"), ctx.transaction():
            pass
        return "refused"

    with app.worker():
        assert blocking.enqueue().result(timeout=20) == "refused"


def test_a_bad_result_of_a_block(app: Windlass, database: Database) -> None:
    errors: list[str] = []

    @app.task(name="bad", takes_context=True)
    def bad(ctx: Context) -> None:
        transaction = ctx.transaction()
        try:
            with transaction as connection:
                connection.execute(NOTE, ["bad"])
                transaction.result = object()
        except EncodeError as error:
            errors.append(str(error))

    with app.worker():
        job = bad.enqueue()
        with pytest.raises(JobFailed):
            job.result(timeout=20)
    assert (job.info().reason, notes(database)) == (Reason.BAD_RESULT, [])
    [error] = errors
    assert "was rolled back" in error


# ------------------------------------------------------------------------------------ stale claims


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stale_claim_rolls_back(
    app: Windlass, database: Database, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    """The session is lost while the transaction is open: another run writes, this one does not."""
    lost: list[type[BaseException]] = []
    inside = threading.Event()

    def lose() -> None:
        if not inside.is_set():
            inside.set()
            [session] = app.engine.sessions()
            app.engine.close(session.session, (), "a test")

    @app.task(name="plain", takes_context=True)
    def plain(ctx: Context) -> None:
        first = not inside.is_set()
        try:
            with ctx.transaction() as connection:
                connection.execute(NOTE, [f"{first}"])
                lose()
        except ClaimLost as error:
            lost.append(type(error))
            raise

    @app.task(name="coroutine", takes_context=True)
    async def coroutine(ctx: Context) -> None:
        first = not inside.is_set()
        try:
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, [f"{first}"])
                await asyncio.to_thread(lose)
        except ClaimLost as error:
            lost.append(type(error))
            raise

    with caplog.at_level(logging.WARNING, "windlass.worker"), app.worker():
        job = (coroutine if is_async else plain).enqueue()
        job.result(timeout=20)
        until(lambda: "rejected 1 stale result" in caplog.text, "the log line")
    assert lost == [ClaimLost]
    assert notes(database) == ["False"]
    assert "failed in attempt" not in caplog.text


# ------------------------------------------------------------------------------- engines without


def test_an_engine_without_transactions(app: Windlass) -> None:
    with Windlass("sqlite:///:memory:") as other:

        @other.task(name="moving", transaction=True)
        def moving() -> None: ...

        with pytest.raises(NoTransaction, match=r"moving.*postgresql://") as caught, other.worker():
            pass
        assert "ctx.job_id" in str(caught.value)


def test_a_block_on_an_engine_without_transactions() -> None:
    with Windlass("sqlite:///:memory:") as other:

        @other.task(name="moving", takes_context=True)
        def moving(ctx: Context) -> str:
            with pytest.raises(NoTransaction, match="PostgreSQL"), ctx.transaction():
                pass
            with pytest.raises(NoTransaction, match="transaction=True"):
                _ = ctx.connection
            return "refused"

        with other.worker():
            assert moving.enqueue().result(timeout=20) == "refused"
        assert moving() == "refused"


# ------------------------------------------------------------- commits whose reply was lost


class LostReply(psycopg.OperationalError):
    """What a driver raises when its connection breaks in COMMIT."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("was_committed", [True, False])
def test_a_commit_without_a_reply(
    app: Windlass,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
    was_committed: bool,
) -> None:
    """What happened is asked of the engine: the code runs again only if nothing was committed."""
    left = ["the first commit"]
    transaction = psycopg.AsyncTransaction if is_async else psycopg.Transaction
    commit = transaction._commit_gen

    def lose_reply(self: Any) -> Any:
        if not left:
            yield from commit(self)
            return
        left.clear()
        if was_committed:
            yield from commit(self)
        self._conn.pgconn.finish()
        raise LostReply

    monkeypatch.setattr(transaction, "_commit_gen", lose_reply)

    @app.task(name="plain", transaction=True, takes_context=True)
    def plain(ctx: Context) -> str:
        ctx.connection.execute(NOTE, [str(ctx.attempt)])
        return "done"

    @app.task(name="coroutine", transaction=True, takes_context=True)
    async def coroutine(ctx: Context) -> str:
        await ctx.connection.execute(NOTE, [str(ctx.attempt)])
        return "done"

    with app.worker():
        job = (coroutine if is_async else plain).enqueue()
        assert job.result(timeout=20) == "done"
    assert left == []
    assert notes(database) == (["1"] if was_committed else ["2"])
    assert job.info().attempts == (1 if was_committed else 2)


def test_the_engine_is_asked_until_it_answers(
    app: Windlass,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[int] = []
    find_verdicts = PostgresEngine.find_verdicts

    def away(self: PostgresEngine, outcomes: Any) -> Any:
        asked.append(1)
        if len(asked) < 3:
            raise EngineUnavailable("away")
        return find_verdicts(self, outcomes)

    monkeypatch.setattr(PostgresEngine, "find_verdicts", away)

    @app.task(name="killing", transaction=True, takes_context=True)
    def killing(ctx: Context) -> str:
        ctx.connection.execute(NOTE, [str(ctx.attempt)])
        if ctx.attempt == 1:
            ctx.connection.execute("SET CONSTRAINTS ALL DEFERRED")
            ctx.connection.execute(NOTE, [str(ctx.attempt)])
        return "done"

    with caplog.at_level(logging.WARNING, "windlass.worker"), app.worker():
        assert killing.enqueue().result(timeout=20) == "done"
    assert len(asked) == 3
    assert caplog.text.count("asking the engine for the outcome") == 1
    assert notes(database) == ["2"]


# ------------------------------------------------------------------- connections of the task itself


def test_a_blocking_connection_of_the_task(app: Windlass, database: Database) -> None:
    """The block begins and commits the transaction of each library."""
    url = app.settings.url
    alchemy = sqlalchemy.create_engine(url.replace(":", "+psycopg:", 1), poolclass=NullPool)

    @app.task(name="own", takes_context=True)
    def own(ctx: Context, kind: str) -> None:
        match kind:
            case "psycopg":
                with psycopg.connect(url) as connection, ctx.transaction(connection) as same:
                    assert same is connection
                    same.execute(NOTE, [kind])
            case "sqlalchemy":
                with alchemy.connect() as other, ctx.transaction(other):
                    other.exec_driver_sql(NOTE, (kind,))
            case "session":
                with Session(alchemy) as session, ctx.transaction(session):
                    session.execute(
                        sqlalchemy.text("INSERT INTO notes VALUES (:body)"), {"body": kind}
                    )
            case _:
                with (
                    django_connection(url) as django,
                    ctx.transaction(django),
                    django.cursor() as cursor,
                ):
                    cursor.execute(NOTE, [kind])

    kinds = ["django", "psycopg", "session", "sqlalchemy"]
    with app.worker():
        jobs = [own.enqueue(kind) for kind in kinds]
        assert [job.result(timeout=20) for job in jobs] == [None] * 4
    assert [job.info().attempts for job in jobs] == [1] * 4
    assert notes(database) == kinds


def test_an_async_connection_of_the_task(app: Windlass, database: Database) -> None:
    url = app.settings.url

    @app.task(name="own", takes_context=True)
    async def own(ctx: Context, kind: str) -> None:
        match kind:
            case "psycopg":
                async with (
                    await psycopg.AsyncConnection.connect(url) as connection,
                    ctx.transaction(connection),
                ):
                    await connection.execute(NOTE, [kind])
            case "asyncpg":
                other = await asyncpg.connect(url)
                async with ctx.transaction(other):
                    await other.execute("INSERT INTO notes VALUES ($1)", kind)
                await other.close()
            case _:
                engine = create_async_engine(url.replace(":", "+asyncpg:", 1), poolclass=NullPool)
                async with AsyncSession(engine) as session, ctx.transaction(session):
                    query = sqlalchemy.text("INSERT INTO notes VALUES (:body)")
                    await session.execute(query, {"body": kind})

    kinds = ["asyncpg", "psycopg", "session"]
    with app.worker():
        jobs = [own.enqueue(kind) for kind in kinds]
        assert [job.result(timeout=20) for job in jobs] == [None] * 3
    assert [job.info().attempts for job in jobs] == [1] * 3
    assert notes(database) == kinds


def test_connections_that_cannot_be_the_transaction(app: Windlass) -> None:
    """A connection in a transaction, and one of the other kind."""
    url = app.settings.url
    found: list[str] = []

    def refuse(block: JobTransaction[Any, Any]) -> None:
        with pytest.raises(InvalidConnection) as caught:
            block.__enter__()
        found.append(str(caught.value))

    @app.task(name="wrong", takes_context=True)
    def wrong(ctx: Context) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT 1")
            refuse(ctx.transaction(connection))
        alchemy = sqlalchemy.create_engine(url.replace(":", "+psycopg:", 1), poolclass=NullPool)
        with Session(alchemy) as session:
            session.execute(sqlalchemy.text("SELECT 1"))
            refuse(ctx.transaction(session))
            refuse(ctx.transaction(session.connection()))
        with django_connection(url) as django, transaction.atomic(using=django.alias):
            refuse(ctx.transaction(django))
        with sqlite3.connect(":memory:") as other:
            refuse(ctx.transaction(other))

    @app.task(name="awrong", takes_context=True)
    async def awrong(ctx: Context) -> None:
        with psycopg.connect(url) as connection, pytest.raises(InvalidConnection, match="async"):
            await ctx.transaction(connection).__aenter__()
        other = await asyncpg.connect(url)
        with pytest.raises(InvalidConnection, match="outside of a transaction"):
            async with other.transaction(), ctx.transaction(other):
                pass
        await other.close()

    with app.worker():
        for job in (wrong.enqueue(), awrong.enqueue()):
            job.result(timeout=20)
    assert len(found) == 5
    assert all("ctx.transaction(...) begins the transaction itself" in text for text in found[:4])
    assert "to sqlite" in found[4]


# ------------------------------------------------------------------ time-outs and cancelled jobs


@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_out_rolls_back(app: Windlass, database: Database, is_async: bool) -> None:
    """Also in the middle of a statement, whose connection is then closed."""

    @app.task(name="plain", timeout=0.3, transaction=True, takes_context=True)
    def plain(ctx: Context) -> None:
        ctx.connection.execute(NOTE, [str(ctx.attempt)])
        if ctx.attempt == 1:
            ctx.connection.execute("SELECT pg_sleep(5)")

    @app.task(name="coroutine", timeout=0.3, transaction=True, takes_context=True)
    async def coroutine(ctx: Context) -> None:
        await ctx.connection.execute(NOTE, [str(ctx.attempt)])
        if ctx.attempt == 1:
            await ctx.connection.execute("SELECT pg_sleep(5)")

    with app.worker():
        job = (coroutine if is_async else plain).enqueue()
        job.result(timeout=20)
    assert job.info().attempts == 2
    assert notes(database) == ["2"]
    sleeping = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(5)' AND state = 'active'"
    assert database.execute(sleeping) == []


def test_a_job_that_is_cancelled_rolls_back(app: Windlass, database: Database) -> None:
    inside = threading.Event()

    @app.task(name="waiting", transaction=True, takes_context=True)
    async def waiting(ctx: Context) -> None:
        await ctx.connection.execute(NOTE, ["one"])
        inside.set()
        await asyncio.sleep(60)

    with app.worker():
        job = waiting.enqueue()
        assert inside.wait(20)
        job.cancel()
        until(lambda: job.info().state is State.CANCELLED, "the cancellation")
    assert notes(database) == []


# --------------------------------------------------------------------------------- real processes


@pytest.mark.parametrize("runs_alone", [False, True])
def test_a_worker_with_processes(
    tmp_path: Path, app: Windlass, database: Database, runs_alone: bool
) -> None:
    """Also in a process for one job, which has the same engine."""
    with closing(Yard(tmp_path, "30s", "10s", 3, app.settings.url)) as yard:
        yard.start(app="tests.worker.apps.accounts:app")
        for statement in accounts.TABLES:
            database.execute(statement)
        job = app.task_named("accounts.alone" if runs_alone else "accounts.plain").enqueue(3)
        job.result(timeout=20)
    assert database.execute("SELECT id FROM balances WHERE amount = 1") == [(3,)]


def test_a_worker_on_an_engine_without_transactions(tmp_path: Path) -> None:
    """It says so at the start, and ends."""
    with closing(Yard(tmp_path, "30s", "10s", 3)) as yard:
        worker = yard.start(app="tests.worker.apps.accounts:app")
        assert worker.wait() != 0
        assert "accounts.plain" in worker.log()
        assert "transaction=True" in worker.log()


def test_a_sandbox_has_no_transactions(app: Windlass) -> None:
    @app.task(name="moving", transaction=True)
    def moving() -> None: ...

    with Sandbox(app) as box:
        moving.enqueue()
        with pytest.raises(NoTransaction, match="sandbox"):
            box.drain()

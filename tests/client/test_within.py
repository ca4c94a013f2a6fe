"""`using(connection=...)`: which jobs are stored on the connection of the caller, what the handle
of such a job says, and which apps refuse.

The engine stands for one whose database the caller shares: it keeps what `put_within` stores until
`commit`. That each library commits and rolls back is tested in `tests/client/connections`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from tests.app.hand import Hand
from tests.outbox.databases import sqlite_shop
from tests.postgres_server import shared_server
from windlass import (
    Cron,
    EnqueueCall,
    IdempotencyConflict,
    InvalidConnection,
    InvalidSchedule,
    JobNotFound,
    QueueFull,
    State,
    Task,
    Windlass,
)
from windlass import job as job_module
from windlass.engine.contract import (
    Capability,
    Dialect,
    Engine,
    NewJob,
    Placed,
    PutCode,
    QueueChange,
    SqlGenerator,
    SqlStatement,
)
from windlass.testing import Sandbox

#: For both kinds of databases.
NOTE = "INSERT INTO notes (id, body) VALUES (CAST($1 AS text), $2)"


class SharedEngine:
    """The engine of an app, with the operations of `TransactionVerbs`. It notes every put."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capabilities = engine.capabilities | {Capability.TRANSACTIONAL}
        self.dialect = Dialect.SQLITE
        self.is_committed = True  # otherwise jobs wait for `commit`
        self.uncommitted: list[NewJob] = []
        self.puts: list[tuple[str, int]] = []

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        self.puts.append(("put", len(jobs)))
        return self.engine.put(jobs)

    def put_within(self, jobs: Sequence[NewJob]) -> SqlGenerator[list[Placed]]:
        self.puts.append(("put_within", len(jobs)))
        for one in jobs:
            yield SqlStatement(NOTE, (one.id, one.payload))
        if self.is_committed:
            return self.engine.put(jobs)
        self.uncommitted += jobs
        return [Placed(one.id, PutCode.CREATED) for one in jobs]

    def commit(self) -> None:
        self.engine.put(self.uncommitted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@pytest.fixture
def engine(app: Windlass) -> SharedEngine:
    _ = app.engine
    engines: list[SharedEngine] = []

    def share(engine: Engine) -> Engine:
        engines.append(SharedEngine(engine))
        return cast(Engine, engines[0])

    app.wrap_engine(share)
    return engines[0]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE notes (id TEXT, body BLOB)")
        yield connection


@pytest.fixture
def send(app: Windlass) -> Task[[int], int]:
    return make_send(app)


def make_send(app: Windlass) -> Task[[int], int]:
    @app.task(name="send")
    def send(number: int) -> int:
        return number

    return send


def noted(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM notes ORDER BY rowid")]


# --------------------------------------------------------------------------- where a job is stored


def test_one_job(
    send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    job = send.using(connection=connection).enqueue(1)
    assert job.created
    assert noted(connection) == [job.id]
    assert engine.puts == [("put_within", 1)]
    assert job.info().state is State.READY


def test_many_jobs_are_stored_in_chunks(
    send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    jobs = send.using(connection=connection).enqueue_many((number,) for number in range(501))
    assert noted(connection) == [job.id for job in jobs]
    assert engine.puts == [("put_within", 500), ("put_within", 1)]


def test_each_call_goes_to_its_own_connection(
    app: Windlass, send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    """Also among the calls of one `enqueue_many`, whose order stays."""
    within = send.using(connection=connection)
    calls = [send.bind(1), within.bind(2), within.bind(3), send.using(priority=1).bind(4)]
    jobs = app.enqueue_many(calls)
    assert engine.puts == [("put", 1), ("put_within", 2), ("put", 1)]
    assert noted(connection) == [jobs[1].id, jobs[2].id]


def test_middleware_is_around_such_an_enqueue_too(
    app: Windlass, send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    seen: list[Any] = []

    @app.around_enqueue
    def note(call: EnqueueCall) -> Iterator[None]:
        yield
        seen.append(call.job)

    first = send.using(connection=connection).enqueue(1)
    others = send.using(connection=connection).enqueue_many([(2,)])
    assert seen == [first, *others]
    assert noted(connection) == [first.id, others[0].id]


@pytest.mark.parametrize("has_middleware", [False, True])
def test_coroutines(
    app: Windlass, send: Task[[int], int], engine: SharedEngine, has_middleware: bool
) -> None:
    """On the loop of the caller, where the connection belongs."""
    server = shared_server()
    database = server.new_database()
    with server.connect(database) as own:
        own.execute("CREATE TABLE notes (id text, body bytea); GRANT ALL ON notes TO PUBLIC")
    engine.dialect = Dialect.POSTGRESQL
    if has_middleware:

        @app.around_enqueue
        def nothing(_call: EnqueueCall) -> Iterator[None]:
            yield

    async def main() -> list[str]:
        async with await psycopg.AsyncConnection.connect(server.url(database)) as connection:
            within = send.using(connection=connection)
            first = await within.aenqueue(1)
            others = await within.aenqueue_many([(2,), (3,)])
        return [job.id for job in (first, *others)]

    ids = asyncio.run(main())
    with server.connect(database) as own:
        assert [row[0] for row in own.execute("SELECT id FROM notes")] == ids


def test_an_outbox_comes_first(tmp_path: Path) -> None:
    """The data of the app may be in another database than its jobs."""
    shop = sqlite_shop(tmp_path)
    engines: list[SharedEngine] = []

    def share(engine: Engine) -> Engine:
        engines.append(SharedEngine(engine))
        return cast(Engine, engines[-1])

    with Windlass(f"sqlite:///{tmp_path}/jobs.db", outbox=shop.url.url) as app:
        app.wrap_engine(share)
        with shop.connection() as connection:
            job = make_send(app).using(connection=connection).enqueue(1)
            connection.commit()
        assert shop.waiting() == [job.id]
        assert engines[0].puts == []


# ----------------------------------------------------------------------------------------- verdicts


def test_a_conflict_raises_at_once(
    send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    keyed = send.using(idempotency_key="k", connection=connection)
    first = keyed.enqueue(1)
    again = keyed.enqueue(1)
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(IdempotencyConflict):
        keyed.enqueue(2)
    with pytest.raises(IdempotencyConflict):
        send.enqueue_many([keyed.bind(2)])


def test_the_call_of_an_older_secret_is_no_conflict(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    secrets = ["a" * 32, "b" * 32]
    ids, url = [], f"sqlite:///{tmp_path}/jobs.db"
    for known in (secrets[:1], secrets[::-1]):
        with Windlass(url, secret=known, encrypt=True) as app:
            _ = app.engine
            app.wrap_engine(lambda engine: cast(Engine, SharedEngine(engine)))
            keyed = make_send(app).using(idempotency_key="k", connection=connection)
            ids.append(keyed.enqueue(1).id)
    assert ids[0] == ids[1]


def test_a_full_queue_is_refused_at_once(tmp_path: Path, connection: sqlite3.Connection) -> None:
    """The transaction of the caller must not wait for room."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Windlass(url, when_full="block", enqueue_timeout="1m") as app:
        app.engine.change_queue("default", QueueChange(max_waiting=1))
        app.wrap_engine(lambda engine: cast(Engine, SharedEngine(engine)))
        within = make_send(app).using(connection=connection)
        within.enqueue(1)
        began_at = time.monotonic()
        with pytest.raises(QueueFull, match=r"^The queue default is full: this call"):
            within.enqueue(2)
        assert time.monotonic() - began_at < 30


# --------------------------------------------------------------------- a handle before the commit


def test_before_the_commit_there_is_no_such_job(
    send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    engine.is_committed = False
    job = send.using(connection=connection).enqueue(1)
    (other,) = send.using(connection=connection).enqueue_many([(2,)])
    for call in (job.info, job.cancel, job.retry, other.info):
        with pytest.raises(JobNotFound, match="enqueued in a transaction") as caught:
            call()
        assert caught.value.is_pending
    engine.commit()
    assert job.info().state is State.READY
    assert job.cancel()


def test_a_job_that_was_found_once_is_an_ordinary_one(
    app: Windlass, send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    job = send.using(connection=connection).enqueue(1)
    job.cancel()
    assert job.info().state is State.CANCELLED
    engine.discard([job.id])
    with pytest.raises(JobNotFound, match="There is no job"):
        job.info()


def test_a_result_waits_for_the_commit(
    app: Windlass, send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    engine.is_committed = False
    job = send.using(connection=connection).enqueue(7)
    results: list[int] = []
    waiting = threading.Thread(target=lambda: results.append(job.result()))
    waiting.start()
    engine.commit()
    Hand(app).succeed(7)
    waiting.join(30)
    assert results == [7]


def test_the_time_out_of_a_result_says_that_there_is_no_commit(
    send: Task[[int], int], engine: SharedEngine, connection: sqlite3.Connection
) -> None:
    engine.is_committed = False
    job = send.using(connection=connection).enqueue(7)
    with pytest.raises(TimeoutError, match="never found if the transaction was rolled back"):
        job.result(timeout=0.1)


def test_a_result_without_a_time_out_does_not_wait_forever(
    send: Task[[int], int],
    engine: SharedEngine,
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_module, "APPEAR_S", 0.1)
    engine.is_committed = False
    job = send.using(connection=connection).enqueue(7)
    with pytest.raises(JobNotFound, match="never found if the transaction was rolled back"):
        job.result()


# ------------------------------------------------------------------------------------- what refuses


def test_an_engine_without_transactions_of_others_refuses(
    app: Windlass, send: Task[[int], int], connection: sqlite3.Connection
) -> None:
    within = send.using(connection=connection)
    for enqueue in (lambda: within.enqueue(1), lambda: within.enqueue_many([(1,)])):
        with pytest.raises(InvalidConnection, match=r"jobs\.db and without an outbox") as caught:
            enqueue()
        assert "setting outbox" in str(caught.value)
    with pytest.raises(InvalidConnection, match="without an outbox"):
        asyncio.run(within.aenqueue(1))
    assert list(app.jobs.list()) == []
    assert noted(connection) == []


def test_a_sandbox_of_such_an_app_refuses_too(
    app: Windlass, send: Task[[int], int], connection: sqlite3.Connection
) -> None:
    with Sandbox(app), pytest.raises(InvalidConnection, match="without an outbox"):
        send.using(connection=connection).enqueue(1)


def test_it_is_an_option_of_a_call(app: Windlass, connection: sqlite3.Connection) -> None:
    options: Any = {"connection": connection}
    with pytest.raises(TypeError, match="belongs to a call: write task"):
        app.task(name="other", **options)(noted)


def test_a_schedule_has_no_connection(
    app: Windlass, send: Task[[int], int], connection: sqlite3.Connection
) -> None:
    with pytest.raises(InvalidSchedule, match="connection is for a single call"):
        app.schedules.save("daily", send.using(connection=connection).bind(1), Cron("0 3 * * *"))

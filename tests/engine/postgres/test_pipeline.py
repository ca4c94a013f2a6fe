"""Statements that are sent together, on a real server: large ones, errors, interrupts, and a server
that freezes or ends the connection."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

import psutil
import psycopg
import pytest
from psycopg import errors
from psycopg.pq import PipelineStatus, TransactionStatus

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.proxy import Proxy, Side
from tests.worker.yard import until
from windlass.engine.postgres import connections as connections_module
from windlass.engine.postgres import pipeline as pipeline_module
from windlass.engine.postgres.connections import Connections, DeadlineConnection
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.notifications import Hints, run_hint
from windlass.engine.postgres.pipeline import Pipeline, Reply, pipelined
from windlass.engine.postgres.statements import PostgresStatements
from windlass.errors import EngineUnavailable

SOON_S: Final = 20.0
_WAITING: Final = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
_LOCK: Final = b"SELECT pg_advisory_xact_lock(7)"


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def engine(database: Database) -> PostgresEngine:
    return database.open(timeout_ms=20_000)


@pytest.fixture
def connection(engine: PostgresEngine) -> Iterator[DeadlineConnection]:
    pool = engine._connections
    with pool.connect(pool.address.conninfo, time.monotonic() + SOON_S) as connection:
        yield connection


def ask(connection: DeadlineConnection, text: bytes, *values: Any) -> list[tuple[Any, ...]]:
    with pipelined(connection) as pipeline:
        reply = pipeline.send(text, values, prepare=False)
    return reply.rows()


def send_all(connection: DeadlineConnection, *texts: bytes) -> None:
    """Send statements in one round trip."""
    with pipelined(connection) as pipeline:
        for text in texts:
            pipeline.send(text, prepare=True)


def is_usable(connection: DeadlineConnection) -> bool:
    """Whether a connection is as it was before its first use."""
    assert connection.pgconn.pipeline_status == PipelineStatus.OFF
    assert connection.info.transaction_status == TransactionStatus.IDLE
    return connection.execute("SELECT 1").fetchall() == ask(connection, b"SELECT 1") == [(1,)]


# --------------------------------------------------------------------------------------- sending


def test_nothing_is_sent_before_the_sync(database: Database) -> None:
    """So a process that is suspended before it leaves no transaction open."""
    with Proxy(database.server.port) as proxy:
        engine = database.open_url(database.server.url(database.name, port=proxy.port))
        pool = engine._connections
        deadline = time.monotonic() + SOON_S
        with pool.connect(pool.address.conninfo, deadline) as connection:
            ask(connection, b"SELECT 1")
            before, trips = proxy.passed[Side.REQUESTS], proxy.round_trips
            with pipelined(connection) as pipeline:
                for prepare in (False, True):
                    pipeline.send(b"SELECT $1::text", ["x"], prepare=prepare)
                assert select_pause(proxy) == before
            assert proxy.passed[Side.REQUESTS] > before
            assert proxy.round_trips == trips + 1


def select_pause(proxy: Proxy) -> int:
    """The bytes of requests, after the proxy had an opportunity to receive more."""
    proxy.heal()  # done by the thread that receives
    proxy.heal()
    return proxy.passed[Side.REQUESTS]


@pytest.mark.parametrize("prepare", [True, False], ids=["prepared", "plain"])
def test_large_statements_with_large_rows_do_not_block_each_other(
    connection: DeadlineConnection, prepare: bool
) -> None:
    """The server reads no further statement while nothing reads its replies."""
    large = "x" * 1_000_000
    text = b"SELECT repeat($1::text, 5), $2::bigint"
    with pipelined(connection) as pipeline:
        replies = [pipeline.send(text, [large, at], prepare=prepare) for at in range(40)]
    assert [reply.rows() for reply in replies] == [[(5 * large, at)] for at in range(40)]
    assert is_usable(connection)


def test_values_of_many_types_in_one_round_trip(connection: DeadlineConnection) -> None:
    """The statements share one object that adapts values."""
    values: list[list[Any]] = [
        [[b"a", None], None, 1],
        [[None, None], "text", -(1 << 63)],
        [[], "", None],
        [[b""], "a", 1 << 40],
    ]
    text = b"SELECT $1::bytea[], $2::text, $3::bigint"
    with pipelined(connection) as pipeline:
        replies = [
            pipeline.send(text, row, prepare=prepare) for row in values for prepare in (True, False)
        ]
    assert [reply.rows()[0] for reply in replies[::2]] == [tuple(row) for row in values]
    assert [reply.rows()[0] for reply in replies[1::2]] == [tuple(row) for row in values]


def test_a_reply_is_not_read_before_it_has_come(connection: DeadlineConnection) -> None:
    with pipelined(connection) as pipeline:
        reply = pipeline.send(b"SELECT 1", prepare=False)
        with pytest.raises(RuntimeError, match="before the sync"):
            reply.rows()
        with pytest.raises(RuntimeError, match="before the sync"):
            _ = reply.changed
    assert (reply.rows(), reply.changed) == ([(1,)], 1)


# ---------------------------------------------------------------------------------------- errors


def test_an_error_in_the_middle(connection: DeadlineConnection) -> None:
    """The first error is raised, and the server ignores the statements behind it."""
    connection.execute("CREATE TEMPORARY TABLE numbers (number bigint)")
    replies: list[Reply] = []

    def work() -> None:
        texts = (b"INSERT INTO numbers VALUES (1)", b"SELECT 1 / 0", b"SELECT 2", b"SELECT missing")
        with pipelined(connection) as pipeline:
            replies.extend(pipeline.send(text, prepare=True) for text in texts)

    with pytest.raises(errors.DivisionByZero):
        work()
    assert [reply.has_come for reply in replies] == [True, False, False, False]
    assert is_usable(connection)
    assert ask(connection, b"SELECT * FROM numbers") == []


def test_an_error_between_two_round_trips(connection: DeadlineConnection) -> None:
    def work() -> None:
        with pipelined(connection) as pipeline:
            for text in (b"BEGIN", b"SELECT 1 / 0"):
                pipeline.send(text, prepare=True)
                pipeline.sync()

    with pytest.raises(errors.DivisionByZero):
        work()
    assert connection.pgconn.pipeline_status == PipelineStatus.OFF
    connection.execute("ROLLBACK")
    assert is_usable(connection)


def test_an_error_of_the_caller_counts_before_those_of_the_server(
    connection: DeadlineConnection,
) -> None:
    def work() -> None:
        with pipelined(connection) as pipeline:
            pipeline.send(b"SELECT 1 / 0", prepare=True)
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        work()
    assert is_usable(connection)


def test_a_statement_without_an_entry_closes_the_connection(
    connection: DeadlineConnection,
) -> None:
    """An exception that hits `send` may have left one. Its reply must not go to the next caller."""

    def work() -> None:
        with pipelined(connection):
            connection.pgconn.send_query_params(b"SELECT 1", [])
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        work()
    assert connection.closed


def test_a_reply_that_nothing_waits_for_closes_the_connection(
    connection: DeadlineConnection,
) -> None:
    def work() -> None:
        with pipelined(connection) as pipeline:
            pipeline.send(b"SELECT 1", prepare=False)
            connection.pgconn.send_query_params(b"SELECT 2", [])
            pipeline.sync()

    with pytest.raises(psycopg.OperationalError, match="nothing waits for"):
        work()
    assert connection.closed


def test_a_hint_that_fails_leaves_its_connection_usable(engine: PostgresEngine) -> None:
    engine.put([new_job(1)])
    pool = engine._connections
    (before,) = pool._idle

    def fail(hints: Hints) -> None:
        hints.rows("tell_waiters", "{no number}", [])

    run_hint(pool, fail)
    assert pool._idle == [before]
    assert is_usable(before)


# ----------------------------------------------------------------------------- prepared statements


def prepared_names(connection: DeadlineConnection) -> set[str]:
    rows = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
    return {name for (name,) in rows}


def test_a_statement_is_prepared_once(connection: DeadlineConnection) -> None:
    for _ in range(2):
        with pipelined(connection) as pipeline:
            for _ in range(2):
                pipeline.send(b"SELECT $1::bigint", [1], prepare=True)
    assert prepared_names(connection) == {"windlass_1"}


def test_a_preparation_that_failed_is_repeated(connection: DeadlineConnection) -> None:
    """Also one that the server ignored, because a statement before it had failed."""
    texts = (b"SELECT * FROM late", b"SELECT 'ignored'")
    for _ in range(2):
        with pytest.raises(errors.UndefinedTable):
            send_all(connection, *texts)
    assert prepared_names(connection) == set()
    connection.execute("CREATE TEMPORARY TABLE late AS SELECT 1")
    with pipelined(connection) as pipeline:
        replies = [pipeline.send(text, prepare=True) for text in texts]
    assert [reply.rows() for reply in replies] == [[(1,)], [("ignored",)]]


def test_the_server_forgets_prepared_statements_when_there_are_many(
    connection: DeadlineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a process that runs for months fills the memory of the server: a statement with ten
    values that may be NULL has a thousand forms."""
    monkeypatch.setattr(pipeline_module, "MOST_PREPARED", 3)
    for _ in range(2):
        with pipelined(connection) as pipeline:
            replies = [
                pipeline.send(b"SELECT %d" % number, prepare=True) for number in [*range(10), 0]
            ]
        assert [reply.rows() for reply in replies] == [[(number,)] for number in [*range(10), 0]]
        assert len(prepared_names(connection)) <= 3
    for number in range(10):
        with pipelined(connection) as pipeline:
            reply = pipeline.send(b"SELECT %d" % number, prepare=True)
        assert reply.rows() == [(number,)]
        assert len(prepared_names(connection)) <= 3


# -------------------------------------------------------------------------------------- interrupts


class Interrupted(BaseException):
    """Raised by the handler of a signal."""


@contextmanager
def interrupted(when: Callable[[], object]) -> Iterator[None]:
    """Interrupt this thread by a signal once a condition is true."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    def interrupt() -> None:
        until(when, "the time to interrupt")
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_between_a_statement_and_its_reply(
    database: Database, engine: PostgresEngine
) -> None:
    """The reply would go to the next caller: the pool closes the connection."""
    engine.put([new_job(1)])
    pool = engine._connections
    (used,) = pool._idle
    with database.server.connect(database.name) as other, other.transaction():
        other.execute("LOCK TABLE windlass.jobs IN EXCLUSIVE MODE")
        with interrupted(lambda: database.execute(_WAITING)):
            engine.put([new_job(2)])
        assert used.closed
        assert (pool._idle, pool._taken) == ([], 0)
    engine.put([new_job(3)])
    assert engine.check() == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_between_two_statements(
    engine: PostgresEngine, interrupt: type[BaseException]
) -> None:
    def work(connection: DeadlineConnection) -> None:
        try:
            with pipelined(connection) as pipeline:
                pipeline.send(b"SELECT 1", prepare=True)
                raise interrupt
        finally:
            assert connection.closed

    pool = engine._connections
    with pytest.raises(interrupt):
        pool.run(work)
    assert (pool._idle, pool._taken) == ([], 0)


def test_a_connection_in_pipeline_mode_does_not_go_back(engine: PostgresEngine) -> None:
    """An interrupt may come just after the mode begins, or just before it ends."""

    def work(connection: DeadlineConnection) -> None:
        connection.pgconn.enter_pipeline_mode()
        raise Interrupted

    pool = engine._connections
    with pytest.raises(Interrupted):
        pool.run(work)
    assert (pool._idle, pool._taken) == ([], 0)


@pytest.mark.filterwarnings("ignore:.* was deleted while still open:ResourceWarning")
def test_an_interrupt_anywhere_keeps_no_place_in_the_pool(engine: PostgresEngine) -> None:
    """Otherwise Ctrl-C in a notebook, three times in a bad moment, would stop all later calls.
    Python handles signals at the begin of a function, and after each call. A connection may be
    lost, and is closed then: psycopg warns of that."""
    engine.stats()
    pool = engine._connections
    at = 0
    while is_interrupted(pool, at):
        gc.collect()
        assert pool._taken == 0, f"after {at} calls"
        assert not pool._waiting
        at += 1
    assert at > 10


def is_interrupted(pool: Connections, after: int) -> bool:
    """Use a connection, and interrupt that after a number of calls of the pool; return whether it
    made that number."""
    calls = iter(range(after + 1))

    def interrupt(frame: FrameType, event: str, _argument: object) -> None:
        is_pool = frame.f_code.co_filename == connections_module.__file__
        if is_pool and event in ("call", "c_return") and next(calls, None) == after:
            sys.setprofile(None)
            raise Interrupted

    sys.setprofile(interrupt)
    try:
        pool.run(lambda _: None)
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


# ---------------------------------------------------------------------------------- a lost server


@contextmanager
def frozen_backend(connection: DeadlineConnection) -> Iterator[None]:
    """Suspend the process of the server that serves a connection."""
    backend = psutil.Process(connection.info.backend_pid)
    backend.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            backend.resume()


@pytest.mark.parametrize("size", [1, 50_000_000], ids=["reading", "writing"])
def test_a_frozen_server_ends_the_call_at_the_deadline(
    connection: DeadlineConnection, size: int
) -> None:
    """Also while the buffers of the socket are full."""
    ask(connection, b"SELECT 1")
    with frozen_backend(connection):
        began = time.monotonic()
        connection.deadline = began + 0.3
        with pytest.raises(TimeoutError):
            ask(connection, b"SELECT length($1::text)", "x" * size)
        assert 0.3 <= time.monotonic() - began < 10
    assert connection.closed


def test_a_frozen_server_is_reported(database: Database) -> None:
    engine = database.open(timeout_ms=500)
    engine.put([new_job(1)])
    (used,) = engine._connections._idle
    with frozen_backend(used), pytest.raises(EngineUnavailable) as raised:
        engine.put([new_job(2)])
    assert not raised.value.unsent
    assert used.closed


def terminate(database: Database, connection: DeadlineConnection) -> None:
    """End a connection from the side of the server, and wait until its process has ended."""
    pid = connection.info.backend_pid
    database.execute(f"SELECT pg_terminate_backend({pid})")
    until(lambda: not psutil.pid_exists(pid), "the end of the process")


@pytest.mark.parametrize("size", [1, 10_000, 10_000_000])
@pytest.mark.parametrize("number", [1, 3])
def test_a_terminated_connection_keeps_its_reason(
    database: Database, connection: DeadlineConnection, size: int, number: int
) -> None:
    """The server sends it before it closes the connection. Large statements find the connection
    closed while they are sent."""

    def work() -> None:
        with pipelined(connection) as pipeline:
            pipeline.send(b"BEGIN", prepare=True)
            pipeline.sync()
            terminate(database, connection)
            for _ in range(number):
                pipeline.send(b"SELECT $1::text", ["x" * size], prepare=True)

    with pytest.raises(psycopg.OperationalError) as raised:
        work()
    assert raised.value.sqlstate == "57P01"
    assert connection.closed


@pytest.mark.parametrize(
    ("size", "reasons"),
    [(1, ["57P01"]), (50_000_000, ["57P01", None])],
    ids=["reading", "writing"],
)
def test_a_statement_that_is_terminated_keeps_the_reason(
    database: Database, connection: DeadlineConnection, size: int, reasons: list[str | None]
) -> None:
    """Also with replies to others before the reason. While statements behind it are sent, the
    reason may be lost: a socket that is closed before all was read resets the connection."""
    with database.server.connect(database.name) as other, other.transaction():
        other.execute(_LOCK)

        def end() -> None:
            until(lambda: database.execute(_WAITING), "the statement waits")
            terminate(database, connection)

        def work() -> None:
            with pipelined(connection) as pipeline:
                for text in (b"BEGIN", b"SELECT 1", _LOCK):
                    pipeline.send(text, prepare=True)
                pipeline.send(b"SELECT $1::text", ["x" * size], prepare=True)

        thread = threading.Thread(target=end)
        thread.start()
        with pytest.raises(psycopg.OperationalError) as raised:
            work()
        thread.join()
    assert raised.value.sqlstate in reasons
    assert connection.closed


def test_a_lost_connection_without_a_reason(database: Database) -> None:
    with Proxy(database.server.port) as proxy:
        engine = database.open_url(database.server.url(database.name, port=proxy.port))
        pool = engine._connections
        connection = pool.connect(pool.address.conninfo, time.monotonic() + SOON_S)
        proxy.swallow_reply()
        with pytest.raises(psycopg.OperationalError) as raised:
            ask(connection, b"SELECT 1")
    assert raised.value.sqlstate is None
    assert connection.closed


def test_a_transaction_that_the_server_ends_keeps_the_reason(
    database: Database, engine: PostgresEngine
) -> None:
    """The call is repeated on another connection."""
    calls: list[int] = []

    def work(db: PostgresStatements, _start: object) -> int:
        calls.append(1)
        if len(calls) == 1:
            terminate(database, db.pipeline.connection)
        ((one,),) = db.fetch(db.start_text("SELECT 1"))
        return int(one)

    assert engine._read(work) == 1
    assert len(calls) == 2


def test_a_pipeline_that_was_abandoned_sends_nothing(connection: DeadlineConnection) -> None:
    pipeline = Pipeline(connection)
    connection.pgconn.enter_pipeline_mode()
    pipeline.send(b"SELECT 1", prepare=True)
    pipeline.abandon()
    pipeline.end()
    assert connection.closed

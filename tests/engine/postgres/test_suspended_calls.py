"""Calls of processes that were suspended in the middle of a round trip are ended, and no others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import psycopg
import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.engine.postgres.round_trips import counted
from tests.engine.postgres.suspended_process import (
    CALL,
    CLAIMED,
    LEASE_MS,
    NONCE,
    REPORT_PART,
    REPORTED,
    SESSION,
    SuspendedProcess,
)
from tests.pgbouncer import PgBouncer
from tests.postgres_server import OWNER, SUPERUSER, WORKER
from tests.proxy import Proxy, Side
from tests.worker.yard import until
from windlass import EngineUnavailable, State, Windlass
from windlass.engine.contract import Beat, EndedCall, Plan, QueueChange
from windlass.engine.postgres.connections import IDLE_MS, call_mark
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.notifications import run_hint
from windlass.testing.contract.world import claim_jobs

#: Backends that wait for their client within a statement or a pipeline.
WAITING: Final = """
SELECT wait_event FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Client'
"""
#: The session of the suspended process, unless it is locked.
FREE_SESSION: Final = """
SELECT 1 FROM windlass.sessions WHERE session = 'suspended' FOR UPDATE SKIP LOCKED
"""

#: A row if no other transaction has locked the row of `meta`.
FREE_META: Final = "SELECT 1 FROM windlass.meta FOR UPDATE SKIP LOCKED"


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture(params=["direct", "pooler"])
def port(request: pytest.FixtureRequest, database: Database) -> Iterator[int]:
    """The port of the server, or of a pooler."""
    if request.param == "direct":
        yield database.server.port
        return
    bouncer = PgBouncer(database.server)
    yield bouncer.port
    bouncer.end()


def url_at(database: Database, port: int, *, is_pooled: bool) -> str:
    options = {"pooler": "transaction"} if is_pooled else {}
    return database.server.url(database.name, port=port, **options)


def open_at(database: Database, port: int) -> PostgresEngine:
    is_pooled = port != database.server.port
    url = url_at(database, port, is_pooled=is_pooled)
    return hasty(database.open_url(url, lease_ms=LEASE_MS))


def hasty(engine: PostgresEngine, limit_ms: int = 50) -> PostgresEngine:
    """Let an engine look at each call of `tend`, and end calls early."""
    engine._suspended_calls.look_s, engine._suspended_calls.limit_ms = 0.0, limit_ms
    return engine


def ended(engine: PostgresEngine, looks: int = 3) -> list[EndedCall]:
    return [call for _ in range(looks) for call in engine.tend().ended_calls]


def await_client_wait(database: Database, event: str) -> None:
    until(lambda: database.execute(WAITING) == [(event,)], f"the server waits: {event}")


def pass_a_lease(engine: PostgresEngine) -> None:
    """Let a lease pass in which another worker sends heartbeats."""
    for _ in range(4):
        engine.clock_offset_ms += LEASE_MS // 3
        engine.beat([Beat(session="other", info=b"here")])


# ------------------------------------------------------------------------------ suspended processes


def test_a_process_suspended_in_the_middle_of_a_report_keeps_no_locks(
    database: Database, port: int
) -> None:
    """The rest of a large round trip is missing: the server waits for it, with the session locked.
    The jobs go to others, and the process finds that out when it continues."""
    engine = open_at(database, port)
    engine.put([new_job(number) for number in range(REPORTED)])
    assert len(claim_jobs(engine, SESSION, NONCE, Plan(), REPORTED).claims) == REPORTED
    with Proxy(port) as proxy:
        url = url_at(database, proxy.port, is_pooled=port != database.server.port)
        with SuspendedProcess(url, "report", proxy, Side.REQUESTS, REPORT_PART) as process:
            await_client_wait(database, "ClientRead")
            assert not database.execute(FREE_SESSION)
            [call] = until(lambda: ended(engine, looks=1), "the call is ended")
            assert call.silent_ms >= 50
            until(lambda: database.execute(FREE_SESSION), "the session is free")
            pass_a_lease(engine)
            assert engine.tend().reaped == REPORTED
            assert process.resume() == f"stale:{REPORTED}"
    assert engine.check() == []


def test_a_process_suspended_while_it_receives_claims_keeps_no_locks(
    database: Database, port: int
) -> None:
    """The server waits until the process reads more of the replies, with the jobs locked."""
    engine = open_at(database, port)
    for number in range(CLAIMED):
        engine.put([new_job(number, payload=CALL)])
    engine.beat([Beat(session=SESSION, info=b"here")])
    with Proxy(port) as proxy:
        url = url_at(database, proxy.port, is_pooled=port != database.server.port)
        with SuspendedProcess(url, "claim", proxy, Side.REPLIES, len(CALL)) as process:
            await_client_wait(database, "ClientWrite")
            assert not database.execute(FREE_SESSION)
            until(lambda: ended(engine, looks=1), "the call is ended")
            until(lambda: database.execute(FREE_SESSION), "the session is free")
            assert process.resume() == f"claimed:{CLAIMED}"
    assert engine.check() == []


def test_a_session_that_is_locked_costs_no_other_session_its_lease(database: Database) -> None:
    """One child of a worker is suspended in a call; one heartbeat serves all children."""
    worker = database.open(timeout_ms=500)
    beats = [Beat(session=session, info=b"here") for session in ("a", SESSION, "z")]
    worker.beat(beats)
    query = "SELECT session, expires_ms FROM windlass.sessions ORDER BY session"
    before = dict(database.execute(query))
    with psycopg.connect(database.server.url(database.name)) as connection:
        assert connection.execute(FREE_SESSION).fetchall()
        worker.clock_offset_ms += 1_000
        with pytest.raises(EngineUnavailable):
            worker.beat(beats)
        after = dict(database.execute(query))
        assert [after[one] > before[one] for one in ("a", SESSION, "z")] == [True, False, True]
    assert [pulse.session for pulse in worker.beat(beats)] == ["a", SESSION, "z"]


def test_a_heartbeat_waits_for_sessions_that_are_locked_for_a_moment(database: Database) -> None:
    worker = database.open(timeout_ms=60_000)
    beats = [Beat(session=session, info=b"here") for session in ("a", SESSION, "z")]
    worker.beat(beats)
    database.execute("UPDATE windlass.sessions SET gone = 2 WHERE session = 'suspended'")
    with ThreadPoolExecutor() as threads:
        with psycopg.connect(database.server.url(database.name)) as connection:
            assert connection.execute(FREE_SESSION).fetchall()
            pulses = threads.submit(worker.beat, beats)
            locked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            until(lambda: database.execute(locked), "the heartbeat waits")
        found = [(pulse.session, pulse.alive) for pulse in pulses.result()]
    assert found == [("a", True), (SESSION, False), ("z", True)]


# ----------------------------------------------------------------------------------- which calls


class HalfSent:
    """Statements in a pipeline without the sync that ends it."""

    def __init__(self, url: str, mark: bytes) -> None:
        self._mark = mark
        self.connection = psycopg.connect(url, autocommit=True)
        self._server = self.connection.pgconn
        self._server.enter_pipeline_mode()
        self.send(b"BEGIN")
        self.send(b"LOCK TABLE windlass.jobs IN ROW EXCLUSIVE MODE")

    def send(self, statement: bytes) -> None:
        self._server.send_query_params(self._mark + statement, None)
        self._server.flush()

    @property
    def port(self) -> int:
        """The port of this side of the connection."""
        with socket.fromfd(self._server.socket, socket.AF_INET, socket.SOCK_STREAM) as own:
            return int(own.getsockname()[1])


@contextmanager
def half_sent(
    database: Database, user: str = WORKER, mark: bytes = call_mark("windlass", 0)
) -> Iterator[HalfSent]:
    url = database.server.url(database.name, user=user, application_name="half sent")
    half = HalfSent(url, mark)
    await_client_wait(database, "ClientRead")
    yield half
    half.connection.close()


def changes(database: Database) -> list[tuple[Any, ...]]:
    return database.execute(
        "SELECT pid, state_change, query_start, xact_start FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'half sent'"
    )


def test_a_call_is_ended_at_the_second_look_without_progress(database: Database) -> None:
    engine = hasty(database.open(), limit_ms=0)
    with half_sent(database) as half:
        assert ended(engine, looks=1) == []
        before = changes(database)
        half.send(b"SELECT 1")
        until(lambda: changes(database) != before, "the next statement has come")
        await_client_wait(database, "ClientRead")
        assert ended(engine, looks=1) == []
        [call] = ended(engine, looks=1)
        assert call.client == f"half sent at 127.0.0.1 port {half.port}"
        until(lambda: not database.execute(WAITING), "the server has ended it")
        assert ended(engine) == []


def test_a_call_is_not_ended_early(database: Database) -> None:
    engine = hasty(database.open(), limit_ms=IDLE_MS)
    with half_sent(database):
        assert ended(engine) == []


def test_a_call_that_may_take_longer_is_not_ended(database: Database) -> None:
    """A producer on a slow link has a longer `enqueue_timeout` than the workers, and sends one
    message for minutes."""
    engine = hasty(database.open(), limit_ms=0)
    with Proxy(database.server.port) as link:
        url = database.server.url(database.name, port=link.port)
        slow = database.open_url(url, timeout_ms=600_000)
        slow.put([new_job(2)])
        link.throttle(400_000)
        with ThreadPoolExecutor() as threads:
            put = threads.submit(slow.put, [new_job(3, payload=b"x" * 1_000_000)])
            await_client_wait(database, "ClientRead")
            while not put.done():
                assert ended(engine) == []
        assert put.result()
    assert engine.get([new_job(3).id]) != [None]


def in_a_copy(connection: psycopg.Connection[Any]) -> AbstractContextManager[object]:
    return connection.cursor().copy("COPY notes FROM STDIN")


@contextmanager
def in_a_pipeline(connection: psycopg.Connection[Any]) -> Iterator[None]:
    with connection.pipeline():
        connection.execute("INSERT INTO notes VALUES ('one')")
        connection.pgconn.send_flush_request()
        connection.pgconn.flush()
        yield


@pytest.mark.parametrize("is_app_named", [False, True])
@pytest.mark.parametrize("inside", [in_a_copy, in_a_pipeline])
def test_a_transaction_of_a_caller_is_not_ended(
    database: Database,
    inside: Callable[[psycopg.Connection[Any]], AbstractContextManager[object]],
    is_app_named: bool,
) -> None:
    """It has enqueued, so it has locks on our tables, and the server waits for its program."""
    database.execute("CREATE TABLE notes (note text)", f"GRANT ALL ON notes TO {WORKER}")
    engine = hasty(database.open(), limit_ms=0)
    name = "windlass" if is_app_named else "shop"
    with Windlass(database.server.url(database.name)) as app:
        send = app.task(name="send")(_send)
        with psycopg.connect(app.settings.url, application_name=name) as connection:
            send.using(connection=connection).enqueue(1)
            with inside(connection):
                await_client_wait(database, "ClientRead")
                assert ended(engine) == []
        assert [job.state for job in app.jobs.list()] == [State.READY]


def _send(number: int) -> int:
    return number


def test_a_call_that_waits_for_a_lock_is_not_ended(database: Database) -> None:
    engine = hasty(database.open(), limit_ms=0)
    other = database.open(timeout_ms=60_000)
    job = new_job(idempotency_key="key")
    with Windlass(database.server.url(database.name)) as app:
        send = app.task(name=job.task)(_send)
        with psycopg.connect(app.settings.url) as connection:
            send.using(connection=connection, idempotency_key="key").enqueue(1)
            waiting = threading.Thread(target=other.put, args=([job],))
            waiting.start()
            locked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            until(lambda: database.execute(locked), "the call waits")
            assert ended(engine) == []
            connection.rollback()
        waiting.join()
    assert [record is not None for record in engine.get([job.id])] == [True]


def test_a_call_in_another_schema_or_database_is_not_ended(database: Database) -> None:
    engine = hasty(database.open(), limit_ms=0)
    with (
        with_tables() as elsewhere,
        half_sent(database, mark=call_mark("windlass_2", 0)),
        half_sent(elsewhere),
    ):
        assert ended(engine) == []


@pytest.mark.parametrize("user", [OWNER, SUPERUSER])
def test_a_call_of_a_role_that_we_may_not_end(database: Database, user: str) -> None:
    """It is left alone, and maintenance continues. No right but theirs reaches superusers."""
    role = f"ender_of_{user}"
    database.execute(
        f"CREATE ROLE {role} LOGIN IN ROLE {WORKER}",
        *([f"GRANT pg_read_all_stats, pg_signal_backend TO {role}"] if user == SUPERUSER else []),
    )
    engine = hasty(database.open(role), limit_ms=0)
    try:
        with half_sent(database, user):
            listed: list[object] = []
            run_hint(
                engine._connections,
                lambda hints: listed.append(hints.rows("list_silent_calls", "/* windlass ")),
            )
            assert listed == [[]], "a refusal would be in the log of the server"
            assert ended(engine) == []
            assert database.execute(WAITING)
    finally:
        engine.shutdown()
        database.execute(f"DROP ROLE {role}")


def test_a_call_of_another_role_is_ended_with_the_rights_for_it(database: Database) -> None:
    role = "ender_of_all"
    database.execute(f"CREATE ROLE {role} LOGIN IN ROLE {WORKER}, pg_read_all_stats")
    database.execute(f"GRANT pg_signal_backend TO {role}")
    engine = hasty(database.open(role), limit_ms=0)
    try:
        with half_sent(database, OWNER):
            assert len(ended(engine)) == 1
    finally:
        engine.shutdown()
        database.execute(f"DROP ROLE {role}")


def test_a_call_is_ended_while_all_connections_wait_for_its_locks(database: Database) -> None:
    """An instance of the API has three, and many threads that wait for one of them."""
    engine = hasty(database.open(timeout_ms=60_000), limit_ms=0)
    engine.stats()
    with half_sent(database) as half, ThreadPoolExecutor() as threads:
        half.send(b"SELECT 1 FROM windlass.meta FOR UPDATE")
        until(lambda: not database.execute(FREE_META), "meta is locked")
        pause = QueueChange(paused=True)
        changes = [threads.submit(engine.change_queue, f"q{at}", pause) for at in range(5)]
        until(lambda: len(engine._connections._waiting) == 2, "the connections are busy")
        for _ in range(2):
            engine._suspended_calls.look()
        assert len(engine._suspended_calls.report()) == 1
        for change in changes:
            change.result()


# --------------------------------------------------------------------------------------- the cost


def test_a_look_is_seldom_and_takes_one_round_trip(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(database, monkeypatch) as trips:
        calls = trips.engine._suspended_calls
        assert calls.look_s == 10
        assert [trips.of(lambda _: calls.look()) for _ in range(3)] == [1, 0, 0]

"""What a caller sees of a connection that breaks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables
from tests.proxy import Proxy
from tests.worker.yard import until
from windlass.engine.postgres import connections
from windlass.engine.postgres.connections import DeadlineConnection
from windlass.engine.postgres.verbs import put
from windlass.engine.sql.wakeup import ReadyLine
from windlass.errors import EngineUnavailable


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


def test_a_broken_connection_is_replaced_without_a_warning_of_the_driver(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    server = database.server
    with Proxy(server.port) as proxy:
        url = server.url(database.name, port=proxy.port)
        engine = database.open_url(url)
        for number in range(2):
            engine.put([new_job()])  # a transaction that is sent as a whole
            proxy.reset()
            engine.put([new_job(idempotency_key=f"key-{number}")])  # and one with several replies
            proxy.reset()
        proxy.swallow_reply()
        engine.put([new_job(idempotency_key="later")])
    assert [record for record in caplog.records if record.name.startswith("psycopg")] == []


def test_a_connection_is_closed_that_does_not_get_its_settings(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[DeadlineConnection] = []

    def fail(self: DeadlineConnection, *_: object) -> None:
        made.append(self)
        raise TimeoutError

    monkeypatch.setattr(DeadlineConnection, "execute", fail)
    with pytest.raises(EngineUnavailable):
        database.open(timeout_ms=1).put([])
    assert [connection.closed for connection in made] == [True]


def test_callers_get_connections_in_turn(database: Database) -> None:
    """A thread that calls again and again leaves connections to others."""
    engine = database.open()
    pool = engine._connections
    is_over = threading.Event()

    def call_again_and_again() -> None:
        while not is_over.is_set():
            engine.put([])

    busy = [threading.Thread(target=call_again_and_again) for _ in range(pool._most)]
    others = [threading.Thread(target=engine.put, args=([],)) for _ in range(2 * pool._most)]
    for thread in [*busy, *others]:
        thread.start()
    for thread in others:
        thread.join(2)
    were_served = [not thread.is_alive() for thread in others]
    is_over.set()
    for thread in [*busy, *others]:
        thread.join()
    assert all(were_served)


def test_a_caller_that_waits_for_too_long_gives_its_turn_to_the_next(database: Database) -> None:
    pool = database.open()._connections
    soon, later = time.monotonic() + 0.1, time.monotonic() + 60
    held = [pool._take(later) for _ in range(pool._most)]
    with ThreadPoolExecutor() as threads:
        first = threads.submit(pool._take, soon)
        until(lambda: pool._waiting, "the first waits")
        second = threads.submit(pool._take, later)
        with pytest.raises(TimeoutError, match="busy"):
            first.result()
        pool._discard(held.pop())
        held.append(second.result(20))
    for connection in held:
        pool._discard(connection)
    assert (pool._taken, len(pool._waiting)) == (0, 0)


def test_a_process_that_is_stopped_in_a_transaction_keeps_no_locks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the transaction, and the process repeats the call when it continues."""
    monkeypatch.setattr(connections, "IDLE_MS", 50)
    engine = database.open()
    engine.put([new_job(1)])
    locks = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
    put_all, calls = put.put_all, []

    def put_late(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            assert database.execute(locks)
            until(lambda: not database.execute(locks), "the locks are free")
        return put_all(*arguments)

    monkeypatch.setattr(put, "put_all", put_late)
    job = new_job(2, idempotency_key="key")
    assert [placed.id for placed in engine.put([job])] == [job.id]
    assert len(calls) == 2


def test_a_call_that_gets_no_connection_says_so(database: Database) -> None:
    engine = database.open(timeout_ms=50)
    pool = engine._connections
    held = [pool._take(time.monotonic() + 60) for _ in range(pool._most)]
    with pytest.raises(EngineUnavailable, match="Other calls of this process use all") as raised:
        engine.put([])
    assert raised.value.unsent
    for connection in held:
        pool._discard(connection)


def test_a_signal_handler_goes_before_the_call_that_it_interrupts(database: Database) -> None:
    """All connections are busy, and the call waits for one."""
    engine = database.open(timeout_ms=20_000)
    pool = engine._connections
    held = [pool._take(time.monotonic() + 60) for _ in range(pool._most)]
    served: list[str] = []

    def handle(*_: object) -> None:
        engine.put([])
        served.append("handler")

    def interrupt() -> None:
        until(lambda: pool._waiting, "the call waits")
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: len(pool._waiting) == 2, "the handler waits too")
        pool._give_back(held.pop())

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        began = time.monotonic()
        engine.put([])
        served.append("call")
        assert time.monotonic() - began < 15
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
        for connection in held:
            pool._discard(connection)
    assert served == ["handler", "call"]


def test_a_put_does_not_wait_for_long_to_announce_its_jobs(database: Database) -> None:
    """All connections are busy, perhaps with calls that wait for a lock."""
    engine = database.open(timeout_ms=60_000)
    pool = engine._connections
    held = [pool._take(time.monotonic() + 60) for _ in range(pool._most)]
    began = time.monotonic()
    engine._wakeup.wake({ReadyLine("q"): 1})
    assert time.monotonic() - began < 20
    for connection in held:
        pool._discard(connection)


@pytest.mark.parametrize(("option", "idle_s"), [("", "30"), ("?keepalives_idle=7", "7")])
def test_idle_connections_are_probed(database: Database, option: str, idle_s: str) -> None:
    """A router on the way would forget them, and the next call would get no reply."""
    engine = database.open_url(database.server.url(database.name) + option)
    parameters = [engine._connections.run(lambda own: own.info.get_parameters())]
    with engine.transaction() as connection:
        parameters.append(connection.info.get_parameters())
    assert [one["keepalives_idle"] for one in parameters] == [idle_s] * 2


def test_the_server_probes_its_clients(database: Database) -> None:
    """Otherwise a machine that was lost in a transaction would keep its locks for two hours."""
    engine = database.open_url(database.server.url(database.name))
    names = ("idle", "interval", "count")
    query = ", ".join(f"current_setting('tcp_keepalives_{name}')" for name in names)
    shown = engine._connections.run(lambda own: own.execute(f"SELECT {query}".encode()).fetchone())
    assert shown == ("30", "10", "3")

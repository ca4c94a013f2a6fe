"""Wake-ups of callers that wait for the end of jobs, by notifications."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Final

import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables, without_tables
from tests.pgbouncer import PgBouncer
from tests.postgres_server import OWNER, PostgresServer, private_server, shared_server
from tests.worker.yard import until
from windlass.core.states import State
from windlass.engine.contract import JobEnd, Plan, Succeeded
from windlass.engine.postgres import result_wakeup
from windlass.engine.postgres.engine import PostgresEngine
from windlass.testing.contract.test_ends import Heard
from windlass.testing.contract.world import claim_jobs

NEVER_S: Final = 60.0
THREAD: Final = "windlass-results"


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


def watches(database: Database) -> list[str]:
    return [job_id for (job_id,) in database.execute("SELECT id FROM windlass.watches ORDER BY id")]


def put(engine: PostgresEngine, number: int = 1, first: int = 0) -> list[str]:
    jobs = [new_job(first + at) for at in range(number)]
    engine.put(jobs)
    return [job.id for job in jobs]


def end(engine: PostgresEngine, number: int = 1) -> None:
    """Claim jobs, and end them."""
    session = os.urandom(4).hex()
    claims = claim_jobs(engine, session, "nonce", Plan(), number).claims
    engine.finish([Succeeded(id=claim.id, token=claim.token) for claim in claims])


def test_a_watch_is_forgotten_when_its_caller_is_told(database: Database) -> None:
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 2), Heard()
    caller.watch(ids, heard.on_end)
    assert watches(database) == ids
    end(worker)
    heard.await_id(ids[0])
    assert watches(database) == ids[1:]


def test_an_end_right_after_the_read_is_heard(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 1), Heard()
    ends = caller.ends

    def read(asked: Sequence[str]) -> list[JobEnd | None]:
        found = ends(asked)
        end(worker)
        return found

    monkeypatch.setattr(caller, "ends", read)
    assert [one and one.state for one in caller.watch(ids, heard.on_end)] == [State.READY]
    heard.await_id(ids[0])


def test_an_ended_job_is_not_watched(database: Database) -> None:
    caller = database.open()
    ids = put(caller, 1)
    caller.cancel(ids)
    assert [one and one.state for one in caller.watch(ids, Heard().on_end)] == [State.CANCELLED]
    assert watches(database) == []


def test_a_watch_may_be_the_first_call() -> None:
    """The read that follows makes the tables."""
    server = shared_server()
    with without_tables(server) as database:
        engine = database.open(OWNER)
        assert engine.watch(["job"], Heard().on_end) == [None]


def test_only_the_processes_that_wait_for_a_job_are_told(database: Database) -> None:
    first, second, worker = database.open(), database.open(), database.open()
    ids = put(worker, 2)
    told: list[SimpleQueue[str]] = [SimpleQueue(), SimpleQueue()]
    first.watch(ids[:1], told[0].put)
    second.watch(ids[1:], told[1].put)
    end(worker, 2)
    assert [queue.get(timeout=10) for queue in told] == ids
    assert [queue.empty() for queue in told] == [True, True]


def test_more_ids_than_a_notification_holds_are_announced(database: Database) -> None:
    caller, worker = database.open(), database.open()
    ids = [f"{number:04}-{'x' * 60}" for number in range(400)]
    worker.put([new_job(id=job_id) for job_id in ids])
    told: SimpleQueue[str] = SimpleQueue()
    caller.watch(ids, told.put)
    end(worker, 400)
    assert sorted(told.get(timeout=10) for _ in ids) == ids


def test_a_process_that_found_no_watches_does_not_look_for_a_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 3), Heard()
    monkeypatch.setattr(result_wakeup, "UNWATCHED_S", NEVER_S)
    end(worker)
    caller.watch(ids, heard.on_end)
    end(worker)
    assert not heard.has_heard(ids[1])
    monkeypatch.setattr(result_wakeup, "UNWATCHED_S", 0.0)
    end(database.open())
    heard.await_id(ids[2])


def test_a_process_that_found_watches_looks_every_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_wakeup, "UNWATCHED_S", NEVER_S)
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 5), Heard()
    caller.watch(ids, heard.on_end)
    for job_id in ids:
        end(worker)
        heard.await_id(job_id)


def test_a_caller_listens_again_after_its_connection_was_killed(database: Database) -> None:
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 2), Heard()
    caller.watch(ids[:1], heard.on_end)
    database.server.terminate_backends(database.name)
    until(lambda: not has_thread(), "the thread ends")
    caller.watch(ids, heard.on_end)
    end(worker, 2)
    heard.await_id(ids[0])
    heard.await_id(ids[1])


def test_a_dead_connection_is_noticed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread asks the server from time to time whether it is there."""
    monkeypatch.setattr(result_wakeup, "PULSE_S", 0.05)
    caller, heard = database.open(), Heard()
    ids = put(caller)
    caller.watch(ids, heard.on_end)
    [(before,)] = database.execute(PULSES)
    until(lambda: database.execute(PULSES) != [(before,)], "a pulse")


#: When the connections of this user ran their last statement.
PULSES: Final = """
SELECT max(query_start)::text FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'windlass_worker'
"""


def has_thread() -> bool:
    return any(thread.name == THREAD for thread in threading.enumerate())


def test_the_thread_ends_when_nobody_waits(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_wakeup, "PULSE_S", 0.05)
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 2), Heard()
    caller.watch(ids[:1], heard.on_end)
    assert has_thread()
    monkeypatch.setattr(result_wakeup, "IDLE_S", 0.0)
    until(lambda: not has_thread(), "the thread ends")
    monkeypatch.setattr(result_wakeup, "IDLE_S", NEVER_S)
    caller.watch(ids, heard.on_end)
    end(worker)
    heard.await_id(ids[0])


def test_a_shut_down_engine_has_no_thread(database: Database) -> None:
    caller = database.open()
    caller.watch(put(caller), Heard().on_end)
    assert has_thread()
    caller.shutdown()
    assert not has_thread()


def test_a_forked_child_listens_for_itself(database: Database) -> None:
    caller, worker = database.open(), database.open()
    ids, heard = put(worker, 2), Heard()
    caller.watch(ids[:1], heard.on_end)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            in_child = Heard()
            caller.watch(ids[1:], in_child.on_end)
            in_child.await_id(ids[1])
            caller.shutdown()
            status = 0
        finally:
            os._exit(status)
    until(lambda: watches(database) == ids, "both wait")
    end(worker, 2)
    heard.await_id(ids[0])
    assert os.waitpid(child, 0)[1] == 0


def test_callers_behind_a_pooler_listen_at_the_server(
    server: PostgresServer, bouncer: PgBouncer
) -> None:
    with without_tables(server) as database:
        pooled = bouncer.url(database.name, user=OWNER, pooler="transaction")
        listen = f"127.0.0.1:{server.port}"
        direct = bouncer.url(database.name, user=OWNER, pooler="transaction", listen=listen)
        worker, polling, caller = map(database.open_url, (pooled, pooled, direct))
        ids, heard = put(worker), Heard()
        polling.watch(ids, heard.on_end)
        assert watches(database) == []
        assert not has_thread()
        caller.watch(ids, heard.on_end)
        assert watches(database) == ids
        end(worker)
        heard.await_id(ids[0])


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = private_server()
    yield server
    server.end()


@pytest.fixture
def bouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    bouncer = PgBouncer(server)
    yield bouncer
    bouncer.end()

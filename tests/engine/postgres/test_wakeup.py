"""Wake-ups for work by notifications: who is told, how often, and what a lost connection costs.

Most tests slow down polling, so that a job which is found was announced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import msgspec
import pytest

from tests.engine.conftest import new_job
from tests.engine.postgres.databases import Database, with_tables, without_tables
from tests.pgbouncer import PgBouncer
from tests.postgres_server import OWNER, Mode, PostgresServer, private_server
from tests.worker.yard import until
from windlass.core.ids import new_id
from windlass.engine.contract import NewJob, Plan, Succeeded, Waiter, WakeUp
from windlass.engine.postgres import notifications, wakeup
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.notifications import Listener, Throttle
from windlass.engine.sql.wakeup import News, ReadyLine
from windlass.testing.contract.test_wait import LONG_MS, SOON_S, in_thread
from windlass.testing.contract.world import claim_jobs

#: An interval that no test reaches.
NEVER_S: Final = 60.0
WORKER: Final = Waiter("worker", Plan())

decode_news: Final = msgspec.json.Decoder(list[News]).decode


@pytest.fixture
def database() -> Iterator[Database]:
    with with_tables() as database:
        yield database


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    server = private_server()
    yield server
    server.end()


@pytest.fixture
def bouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    bouncer = PgBouncer(server)
    yield bouncer
    bouncer.end()


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "POLL_FLOOR_S", NEVER_S)


def a_job(queue: str = "q", task: str = "t") -> NewJob:
    return new_job(id=new_id(time.time_ns() // 1_000_000), queue=queue, task=task)


def shown(database: Database) -> list[int]:
    """The numbers of the processes in the table."""
    return [number for (number,) in database.execute("SELECT number FROM windlass.waiters")]


def clear(engine: PostgresEngine) -> None:
    """End all ready jobs."""
    nonce = new_id(time.time_ns() // 1_000_000)
    claims = claim_jobs(engine, f"clear-{nonce}", nonce, Plan(), 500).claims
    engine.finish([Succeeded(id=claim.id, token=claim.token) for claim in claims])


@contextmanager
def waiting(
    engine: PostgresEngine, waiters: Sequence[Waiter] = (WORKER,)
) -> Iterator[list[WakeUp]]:
    """Wait in a thread, for each session until it is woken; the list has the wake-ups."""
    woken: list[WakeUp] = []
    is_over = threading.Event()

    def wait() -> None:
        while not is_over.is_set():
            known = {one.session for one in woken}
            left = [waiter for waiter in waiters if waiter.session not in known]
            woken.extend(engine.wait(left, 1_000))

    with in_thread(wait):
        try:
            yield woken
        finally:
            is_over.set()
            engine.nudge()


def await_wake_up(woken: Sequence[WakeUp]) -> None:
    until(lambda: woken, "a session is woken", SOON_S)


class FakeWorker:
    """A row in the table, and a connection that receives what is sent to it."""

    def __init__(self, database: Database, *, number: int = 1, holds: bool = True) -> None:
        self.number = number
        self._database = database
        self.connection = database.server.connect(database.name)
        self.connection.execute(f"LISTEN windlass_{number}".encode())
        if holds:
            self.connection.execute("SELECT pg_advisory_lock(%s)", [number])

    def show(self, *plans: Plan, lasts_ms: int = 60_000) -> None:
        packed = msgspec.json.encode(plans).decode()
        self.connection.execute(
            "INSERT INTO windlass.waiters "
            "VALUES (%s, extract(epoch FROM now()) * 1000 + %s, %s, %s)",
            [self.number, lasts_ms, self.number, packed],
        )

    def receive(self, number: int = 1) -> list[News]:
        """The contents of the next notifications."""
        payloads = self.connection.notifies(timeout=SOON_S, stop_after=number)
        return [one for payload in payloads for one in decode_news(payload.payload.encode())]

    def hears_nothing(self) -> bool:
        return not list(self.connection.notifies(timeout=0.1))


FakeWorkers = Callable[..., FakeWorker]


@pytest.fixture
def fake_worker(database: Database) -> Iterator[FakeWorkers]:
    made: list[FakeWorker] = []

    def make(number: int = 1, *, holds: bool = True) -> FakeWorker:
        made.append(FakeWorker(database, number=number, holds=holds))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


# ---------------------------------------------------------------------------------- the table


@pytest.mark.usefixtures("never_polls")
def test_a_worker_that_takes_one_job_after_the_other_writes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "RENEW_S", NEVER_S)
    monkeypatch.setattr(wakeup, "LINGER_S", NEVER_S)
    engine, putting = database.open(), database.open()
    alone = Waiter("", Plan(suspects=True))
    assert engine.wait([alone, WORKER], 0) == []
    read = "SELECT xmin::text, number FROM windlass.waiters"
    before = database.execute(read)
    for _ in range(5):
        with in_thread(engine.wait, [alone, WORKER], LONG_MS) as returned:
            assert not returned.wait(0.05)
            putting.put([a_job()])
            assert returned.wait(SOON_S)
        assert engine.wait([alone], 1) == []
        clear(engine)
    assert len(before) == 1
    assert database.execute(read) == before


def test_a_worker_that_stays_busy_is_not_shown(database: Database) -> None:
    engine = database.open()
    assert engine.wait([WORKER], 0) == []
    [number] = shown(database)
    engine.nudge()
    assert engine.wait([], LONG_MS) == []
    assert shown(database) == [number]  # it may be back at once
    assert engine.wait([], round(wakeup.LINGER_S * 2_000)) == []
    assert shown(database) == []


@pytest.mark.usefixtures("never_polls")
def test_a_worker_without_idle_sessions_is_not_shown_after_a_wait(database: Database) -> None:
    """It would get wake-ups while it does not wait, and forward them too late."""
    engine = database.open()
    assert engine.wait([WORKER], 0) == []
    assert len(shown(database)) == 1
    assert engine.wait([], 0) == []
    assert shown(database) == []


def test_the_row_of_a_worker_is_renewed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "RENEW_S", 0.05)
    engine = database.open()
    read = "SELECT max(until_ms) FROM windlass.waiters"
    assert engine.wait([WORKER], 0) == []
    [(before,)] = database.execute(read)
    assert engine.wait([WORKER], 200) == []
    [(after,)] = database.execute(read)
    assert after >= before + 50


def test_maintenance_removes_what_has_expired(database: Database, fake_worker: FakeWorkers) -> None:
    waiting, tending = database.open(), database.open()
    assert waiting.wait([WORKER], 0) == []
    [number] = shown(database)
    fake_worker(1, holds=False).show(Plan())
    fake_worker(2).show(Plan(), lasts_ms=0)
    database.execute(
        "INSERT INTO windlass.watches VALUES ('over', 1, 0), ('later', 1, 9000000000000)"
    )
    tending.tend()
    assert shown(database) == [number]
    assert database.execute("SELECT id FROM windlass.watches") == [("later",)]


def test_maintenance_returns_for_more_watches(database: Database) -> None:
    database.execute(
        "INSERT INTO windlass.watches SELECT n::text, 1, 0 FROM generate_series(1, 300) n"
    )
    engine = database.open()
    assert engine.tend().more
    assert not engine.tend().more
    assert database.execute("SELECT count(*) FROM windlass.watches") == [(0,)]


@pytest.mark.usefixtures("never_polls")
@pytest.mark.parametrize(("holds", "lasts_ms"), [(False, 60_000), (True, 0)])
def test_a_dead_process_swallows_no_wake_up(
    database: Database, fake_worker: FakeWorkers, holds: bool, lasts_ms: int
) -> None:
    """It was killed, or is frozen, and so has not renewed its row."""
    engine, putting = database.open(), database.open()
    numbers = range(1, 10)
    for number in numbers:
        fake_worker(number, holds=holds).show(Plan(), lasts_ms=lasts_ms)
    with waiting(engine) as woken:
        until(lambda: not {*shown(database)} <= {*numbers}, "the worker is shown")
        putting.put([a_job()])
        await_wake_up(woken)
    until(lambda: not {*shown(database)} & {*numbers}, "the rows are removed")


WAITING: Final = """
import sys
from windlass.engine.contract import EngineOptions, Plan, Waiter
from windlass.engine.url import open_engine
engine = open_engine(sys.argv[1], EngineOptions())
while True:
    engine.wait([Waiter("killed", Plan())], 10_000)
"""


@pytest.mark.usefixtures("never_polls")
def test_a_killed_worker_is_forgotten_at_once(database: Database, fake_worker: FakeWorkers) -> None:
    url = database.server.url(database.name)
    killed = subprocess.Popen([sys.executable, "-c", WAITING, url])
    until(lambda: shown(database), "the worker is shown")
    [number] = shown(database)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    lock = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
    until(lambda: not database.execute(lock), "the server knows")
    fake = fake_worker(number, holds=False)
    database.open().put([a_job()])
    assert shown(database) == []
    assert fake.hears_nothing()


# --------------------------------------------------------------------------- what is announced


def test_commits_that_follow_each_other_quickly_are_announced_together(
    database: Database, fake_worker: FakeWorkers
) -> None:
    worker, engine = fake_worker(), database.open()
    worker.show(Plan())
    began = time.monotonic()
    for _ in range(1_000):
        engine.put([a_job()])
    took_s = time.monotonic() - began
    numbers: list[int] = []
    while sum(numbers) < 1_000:
        numbers += [one.number for one in worker.receive()]
    assert sum(numbers) == 1_000
    assert len(numbers) <= Throttle.BURST + took_s / Throttle.SPACING_S + 1


def test_a_worker_that_has_left_is_passed_over(
    database: Database, fake_worker: FakeWorkers
) -> None:
    """Another process told it before, and tells it again without another look at the table."""
    first, second, engine = fake_worker(1), fake_worker(2), database.open()
    first.show(Plan())
    engine.put([a_job()])
    assert [one.number for one in first.receive()] == [1]
    database.execute("DELETE FROM windlass.waiters")
    second.show(Plan())
    engine.put([a_job(), a_job()])
    assert [one.number for one in second.receive()] == [2]
    assert first.hears_nothing()
    engine.put([a_job()])
    assert [one.number for one in second.receive()] == [1]


def test_what_a_worker_cannot_take_any_more_goes_to_another(
    database: Database, fake_worker: FakeWorkers
) -> None:
    """Of those that were told before, one is still there, and can take only some of the jobs."""
    first, second, engine = fake_worker(1), fake_worker(2), database.open()
    first.show(Plan(tasks=("t",)))
    second.show(Plan())
    engine.put([a_job(), a_job()])
    assert [one.tasks for one in first.receive()] == [{"t": 2}]
    database.execute("DELETE FROM windlass.waiters WHERE number = 2")
    third = fake_worker(3)
    third.show(Plan(queues=("q",)))
    engine.put([a_job(), a_job(), a_job(task="other"), a_job(task="other")])
    assert [one.tasks for one in first.receive()] == [{"t": 2}]
    assert [one.number for one in third.receive()] == [2]
    assert second.hears_nothing()


def test_jobs_of_several_lines_are_announced_by_one_notification(
    database: Database, fake_worker: FakeWorkers
) -> None:
    worker, engine = fake_worker(), database.open()
    worker.show(Plan())
    engine.put([a_job(queue=queue) for queue in ("a", "b", "b", "c+gpu")])
    assert {one.ready.line: one.number for one in worker.receive()} == {"a": 1, "b": 2}


@pytest.mark.usefixtures("never_polls")
def test_more_lines_than_a_notification_holds_make_a_worker_look(database: Database) -> None:
    engine, putting = database.open(), database.open()
    with waiting(engine) as woken:
        until(lambda: shown(database), "the worker is shown")
        putting.put([a_job(queue=f"{number}-{'long' * 20}") for number in range(200)])
        await_wake_up(woken)


@pytest.mark.usefixtures("never_polls")
def test_a_payload_of_another_version_makes_a_worker_look(database: Database) -> None:
    engine = database.open()
    assert engine.wait([WORKER], 0) == []
    [number] = shown(database)
    database.execute("UPDATE windlass.waiters SET number = 1")  # so that nothing is announced to it
    database.open().put([a_job()])
    assert engine.wait([WORKER], 50) == []
    database.execute(f"NOTIFY windlass_{number}, 'what is this?'")
    assert engine.wait([WORKER], LONG_MS) == [WakeUp("worker")]


def tell(database: Database, number: int, news: News) -> None:
    """Notify a process of jobs, as another one does."""
    payload = msgspec.json.encode([news]).decode()
    database.execute(f"NOTIFY windlass_{number}, '{payload}'")


def test_a_frozen_server_does_not_hold_a_worker_that_listens(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker polls instead, which has a deadline of its own."""
    with without_tables(server) as database, ThreadPoolExecutor() as threads:
        listener = Listener(database.open()._connections)
        monkeypatch.setattr(notifications, "_CALL_S", 0.2)
        server.freeze()
        try:
            asked = threads.submit(listener.run, "pulse")
            assert isinstance(asked.exception(SOON_S), TimeoutError)
        finally:
            server.thaw()
        listener.close()


def test_a_notification_that_comes_during_a_statement_is_kept(database: Database) -> None:
    listener = Listener(database.open()._connections)
    database.execute(f"NOTIFY windlass_{listener.number}, 'first'")
    listener.run("pulse")
    assert listener.receive() == ["first"]
    assert listener.receive() == []
    listener.close()


@pytest.mark.usefixtures("never_polls")
def test_news_without_tasks_make_a_worker_for_some_tasks_look(database: Database) -> None:
    engine, waiters = database.open(), [Waiter("worker", Plan(tasks=("t",)))]
    assert engine.wait(waiters, 0) == []
    [number] = shown(database)
    database.execute("UPDATE windlass.waiters SET number = 1")  # so that nothing is announced to it
    database.open().put([a_job()])
    assert engine.wait(waiters, 50) == []
    tell(database, number, News(ReadyLine("q"), 1))
    assert engine.wait(waiters, LONG_MS) == [WakeUp("worker")]


@pytest.mark.usefixtures("never_polls")
def test_a_worker_forwards_what_its_sessions_cannot_take(
    database: Database, fake_worker: FakeWorkers
) -> None:
    """It is not shown any more when another process reads to whom the rest can go."""
    engine, other = database.open(), fake_worker()
    assert engine.wait([WORKER], 0) == []
    [number] = shown(database)
    other.show(Plan())
    tell(database, number, News(ReadyLine("q"), 3))
    assert engine.wait([WORKER], LONG_MS) == [WakeUp("worker")]
    assert [(one.number, one.hops) for one in other.receive()] == [(2, 1)]
    assert shown(database) == [other.number]


def test_plans_of_another_version_are_passed_over(
    database: Database, fake_worker: FakeWorkers
) -> None:
    worker, engine = fake_worker(), database.open()
    worker.show(Plan())
    database.execute("UPDATE windlass.waiters SET plans = '{\"new\": true}'")
    engine.put([a_job()])
    assert worker.hears_nothing()


def test_a_put_succeeds_that_cannot_be_announced(database: Database) -> None:
    database.execute("DROP TABLE windlass.waiters")
    engine = database.open()
    engine.put([a_job()])
    assert len(claim_jobs(engine, "worker", "nonce", Plan(), 1).claims) == 1


def test_what_is_left_to_announce_is_announced_at_the_end(
    database: Database, fake_worker: FakeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Throttle, "SPACING_S", NEVER_S)
    worker, engine = fake_worker(), database.open()
    worker.show(Plan())
    for _ in range(Throttle.BURST + 2):
        engine.put([a_job()])
    assert [one.number for one in worker.receive(Throttle.BURST)] == [1] * Throttle.BURST
    assert worker.hears_nothing()
    engine.shutdown()
    assert [one.number for one in worker.receive()] == [2]


def test_the_thread_that_announces_ends_without_work(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Throttle, "IDLE_S", 0.05)
    engine = database.open()

    def has_thread() -> bool:
        return any(thread.name == "windlass-notify" for thread in threading.enumerate())

    while not has_thread():
        engine.put([a_job()])
    until(lambda: not has_thread(), "the thread ends")
    while not has_thread():
        engine.put([a_job()])


# ------------------------------------------------------------------------------ the connection


@pytest.mark.usefixtures("never_polls")
def test_a_worker_listens_again_after_its_connection_was_killed(database: Database) -> None:
    engine, putting = database.open(), database.open()
    with waiting(engine) as woken:
        until(lambda: shown(database), "the worker is shown")
        before = shown(database)
        putting.put([a_job()])
        await_wake_up(woken)
        clear(putting)
        woken.clear()
        database.server.terminate_backends(database.name)
        until(lambda: {*shown(database)} - {*before}, "the worker listens again")
        putting.put([a_job()])
        await_wake_up(woken)


@pytest.mark.usefixtures("never_polls")
def test_a_worker_looks_when_it_listens_again(database: Database) -> None:
    """What was announced in between is lost."""
    engine = database.open()
    with waiting(engine) as woken:
        until(lambda: shown(database), "the worker is shown")
        database.execute("UPDATE windlass.waiters SET number = 1")  # so that nothing is announced
        database.open().put([a_job()])
        assert not woken
        database.server.terminate_backends(database.name)
        await_wake_up(woken)


@pytest.mark.usefixtures("never_polls")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_worker_listens_again_after_a_restart(server: PostgresServer, mode: Mode) -> None:
    """After a crash the table is empty."""
    with without_tables(server) as database:
        engine, putting = database.open(OWNER), database.open(OWNER)
        putting.stats()
        with waiting(engine) as woken:
            until(lambda: shown(database), "the worker is shown")
            before = shown(database)
            server.restart(mode)
            until(lambda: {*shown(database)} - {*before}, "the worker listens again")
            putting.put([a_job()])
            await_wake_up(woken)


def test_without_a_connection_a_worker_polls(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "LASTS_S", 0.0)  # no worker is ever told
    monkeypatch.setattr(wakeup, "POLL_FLOOR_S", 0.05)
    engine = database.open()
    with waiting(engine) as woken:
        until(lambda: shown(database), "the worker is shown")
        database.open().put([a_job()])
        await_wake_up(woken)


def test_a_poll_wakes_no_session_for_jobs_that_are_being_announced(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "POLL_FLOOR_S", 0.01)
    monkeypatch.setattr(wakeup, "CONFIRM_S", NEVER_S)
    engine, putting = database.open(), database.open()
    waiters = [Waiter(f"worker-{number}", Plan()) for number in range(5)]
    for _ in range(5):
        assert engine.wait(waiters, 20) == []
        with in_thread(putting.put, [a_job()]):
            assert len(engine.wait(waiters, LONG_MS)) == 1
        clear(putting)


def test_a_session_that_begins_to_wait_looks_for_itself_when_others_poll(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "POLL_FLOOR_S", 0.0)
    monkeypatch.setattr(wakeup, "CONFIRM_S", NEVER_S)
    engine, other = database.open(), Waiter("other", Plan())
    assert engine.wait([WORKER], 0) == []
    database.execute("DELETE FROM windlass.waiters")  # so that nothing is announced
    database.open().put([a_job()])
    assert engine.wait([WORKER, other], LONG_MS) == [WakeUp("other")]


@pytest.mark.parametrize("listens", [True, False])
def test_a_poll_wakes_sessions_for_jobs_that_were_not_announced(
    database: Database, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    monkeypatch.setattr(wakeup, "POLL_FLOOR_S", 0.01)
    monkeypatch.setattr(wakeup, "CONFIRM_S", 0.2 if listens else NEVER_S)
    monkeypatch.setattr(wakeup, "LASTS_S", 0.0)  # no worker is ever told
    option = "" if listens else "?pooler=transaction"
    engine = database.open_url(database.server.url(database.name) + option)
    assert engine.wait([WORKER], 20) == []
    database.open().put([a_job()])
    began = time.monotonic()
    assert engine.wait([WORKER], LONG_MS) == [WakeUp("worker")]
    assert (time.monotonic() - began >= 0.15) is listens


def test_a_wait_without_waiters_only_sleeps(database: Database) -> None:
    engine = database.open()
    for _ in range(2):  # before the first connection, and after it
        began = time.thread_time()
        assert engine.wait([], 300) == []
        assert time.thread_time() - began < 0.1
        assert engine.wait([WORKER], 0) == []


@pytest.mark.usefixtures("never_polls")
def test_a_worker_without_jobs_only_sleeps(database: Database) -> None:
    engine = database.open()
    assert engine.wait([WORKER], 0) == []
    began = time.thread_time()
    assert engine.wait([WORKER], 300) == []
    assert time.thread_time() - began < 0.1


@pytest.mark.usefixtures("never_polls")
def test_a_forked_child_listens_for_itself(database: Database) -> None:
    engine, putting = database.open(), database.open()
    assert engine.wait([WORKER], 0) == []
    [parent] = shown(database)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert engine.wait([WORKER], 0) == []
            assert len(shown(database)) == 2
            engine.shutdown()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    putting.put([a_job()])
    assert engine.wait([WORKER], LONG_MS) == [WakeUp("worker")]
    assert shown(database) == [parent]


@pytest.mark.usefixtures("never_polls")
def test_an_engine_that_was_shut_down_leaves_no_connection(database: Database) -> None:
    engine = database.open()
    assert engine.wait([WORKER], 0) == []
    engine.shutdown()
    used = "SELECT 1 FROM pg_stat_activity WHERE usename = 'windlass_worker'"
    used = f"{used} AND datname = current_database()"
    until(lambda: not database.execute(used), "the connections end")
    assert engine.wait([WORKER], 0) == []  # it may be used again


# ------------------------------------------------------------------------------------- PgBouncer


@pytest.mark.usefixtures("never_polls")
def test_a_worker_behind_a_pooler_listens_at_the_server(
    server: PostgresServer, bouncer: PgBouncer
) -> None:
    listen = f"127.0.0.1:{server.port}"
    with without_tables(server) as database:
        url = bouncer.url(database.name, user=OWNER, pooler="transaction", listen=listen)
        engine, putting = database.open_url(url), database.open_url(url)
        putting.stats()
        with waiting(engine) as woken:
            until(lambda: shown(database), "the worker is shown")
            putting.put([a_job()])
            await_wake_up(woken)


def test_a_worker_behind_a_pooler_polls(server: PostgresServer, bouncer: PgBouncer) -> None:
    with without_tables(server) as database:
        url = bouncer.url(database.name, user=OWNER, pooler="transaction")
        engine, putting = database.open_url(url), database.open_url(url)
        putting.stats()
        with waiting(engine) as woken:
            putting.put([a_job()])
            await_wake_up(woken)
            assert shown(database) == []

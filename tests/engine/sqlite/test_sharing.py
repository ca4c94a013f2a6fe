"""Many threads and processes on one file: deadlines, group commit, wake-ups."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from math import inf
from pathlib import Path

import apsw
import pytest

from tests.engine.conftest import OpenEngine, hold_the_lock, new_job
from tests.soon import is_once
from windlass.core.states import State
from windlass.engine.contract import EngineOptions, NewJob, Plan, Waiter
from windlass.engine.sqlite import database as connection_module
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.errors import EngineError, EngineUnavailable
from windlass.testing.contract.world import claim_jobs

REPLACED = "jobs.db was removed or replaced while it was in use"
PRODUCER = """
import sys
from pathlib import Path
from windlass.engine.contract import EngineOptions, NewJob
from windlass.engine.sqlite import database as connection_module
from windlass.engine.sqlite.engine import SQLiteEngine
engine = SQLiteEngine(Path(sys.argv[1]), EngineOptions())
for n in range(int(sys.argv[3])):
    engine.put([NewJob(id=f"{sys.argv[2]}-{n}", task="t", queue="q", payload=b"x")])
"""


def await_requests(engine: SQLiteEngine, number: int) -> None:
    deadline = time.monotonic() + 5
    while len(engine._database._requests) < number and time.monotonic() < deadline:
        time.sleep(0.001)


def test_processes_write_side_by_side(path: Path, engine: SQLiteEngine) -> None:
    command = [sys.executable, "-c", PRODUCER, str(path)]
    producers = [subprocess.Popen([*command, f"p{n}", "50"]) for n in range(4)]
    assert [producer.wait(timeout=60) for producer in producers] == [0] * 4
    assert engine.stats().queues == {"q": {State.READY: 200}}
    assert engine.check() == []


def test_a_held_lock_costs_an_error_and_never_a_hang(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(1)])
    with hold_the_lock(path):
        started = time.monotonic()
        with pytest.raises(EngineUnavailable, match=r"within 0\.5 s: another process holds"):
            engine.put([new_job(2)])
        elapsed = time.monotonic() - started
        assert [record is not None for record in engine.get(["job-000001"])] == [True]
    engine.put([new_job(3)])
    assert 0.4 < elapsed < 3.0
    assert engine.get(["job-000002"]) == [None], "a caller that gave up must not be served later"


def test_what_piles_up_behind_the_lock_is_committed_at_once(
    path: Path, open_engine: OpenEngine
) -> None:
    engine = open_engine()
    engine.put([new_job(0)])
    commits: list[None] = []
    connection = engine._database._write_connection
    assert connection is not None

    def count() -> bool:
        commits.append(None)
        return False

    connection.set_commit_hook(count)
    with ThreadPoolExecutor(16) as pool:
        with hold_the_lock(path):
            puts = [pool.submit(engine.put, [new_job(number)]) for number in range(1, 17)]
            await_requests(engine, 16)
        assert all(put.result()[0].id for put in puts)
    connection.set_commit_hook(None)
    assert len(commits) <= 2
    assert engine.stats().queues == {"q": {State.READY: 17}}


def test_one_bad_request_of_a_group_spoils_no_other(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(0)])
    bad = new_job(1, payload=None)
    with ThreadPoolExecutor(2) as pool:
        with hold_the_lock(path):
            good = pool.submit(engine.put, [new_job(2)])
            failing = pool.submit(engine.put, [bad])
            await_requests(engine, 2)
        assert good.result()[0].id == "job-000002"
        assert failing.exception() is not None
    assert engine.get(["job-000001"]) == [None]
    assert engine.check() == []


def test_a_full_disk_fails_all_of_a_group_and_stores_none(path: Path, engine: SQLiteEngine) -> None:
    """SQLite rolls back the whole transaction; later requests must not be stored alone."""
    engine.put([new_job(0)])
    limit_pages(engine, 30)
    with ThreadPoolExecutor(3) as pool:
        with hold_the_lock(path):
            puts = []
            for number, size in enumerate((10, 400_000, 10), 1):
                puts.append(pool.submit(engine.put, [new_job(number, payload=b"x" * size)]))
                await_requests(engine, number)
        errors = [put.exception() for put in puts]
    assert [type(error) for error in errors] == [EngineUnavailable] * 3
    assert all("disk is full" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 3, "each caller may add notes to its own"
    assert engine.stats().queues == {"q": {State.READY: 1}}
    engine.put([new_job(4)])
    assert engine.check() == []


def limit_pages(engine: SQLiteEngine, more: int) -> None:
    """Simulate a full disk after this many more pages."""

    def limit(connection: apsw.Connection) -> None:
        connection.pragma("max_page_count", int(connection.pragma("page_count")) + more)

    engine._database.write(limit)


def test_a_caller_that_gave_up_leaves_nothing_behind(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(0)])
    with hold_the_lock(path):
        for number in (1, 2):
            with pytest.raises(EngineUnavailable):
                engine.put([new_job(number)])
        assert engine._database._requests == []


class Interrupting:
    """A connection on which a signal interrupts the caller right after the transaction began."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str) -> apsw.Cursor:
        cursor = self._connection.execute(statement)
        if statement.startswith("BEGIN"):
            raise KeyboardInterrupt
        return cursor

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.mark.parametrize("kind", ["writer", "reader"])
def test_an_interrupted_call_leaves_no_transaction_open(
    engine: SQLiteEngine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put([new_job(1)])
    connection = getattr(engine._database, f"_{kind}")()

    def call() -> None:
        engine.put([new_job(2)]) if kind == "writer" else engine.get(["x"])

    with monkeypatch.context() as patched:
        patched.setattr(engine._database, f"_{kind}", lambda: Interrupting(connection))
        with pytest.raises(KeyboardInterrupt):
            call()
    call()


def test_a_replaced_file_is_noticed(
    path: Path, open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a worker would continue on a file that no other process can see."""
    monkeypatch.setattr(connection_module, "FILE_LOOK_S", 0.0)
    engine = open_engine()
    engine.put([new_job(1)])
    remove_files(path)
    other = open_engine()
    other.put([new_job(2)])
    with pytest.raises(EngineUnavailable, match=REPLACED):
        engine.stats()
    assert engine.get(["job-000001", "job-000002"])[0] is None
    assert engine.get(["job-000002"]) != [None]
    engine.put([new_job(3)])
    assert other.stats().queues == {"q": {State.READY: 2}}


@pytest.mark.parametrize("verb", ["put", "get"])
def test_a_removed_file_is_reported_and_created_again(
    path: Path, engine: SQLiteEngine, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> object:
        return engine.put([new_job(2)]) if verb == "put" else engine.get(["job-000001"])

    engine.put([new_job(1)])
    remove_files(path)
    monkeypatch.setattr(engine._database, "_next_look", 0.0)
    with pytest.raises(EngineUnavailable, match=REPLACED) as caught:
        use()
    assert caught.value.unsent
    # As for another thread that has already checked for tables.
    with monkeypatch.context() as patch:
        patch.setattr(engine, "migrate", lambda: None)
        with pytest.raises(EngineUnavailable, match=REPLACED):
            use()
    use()
    assert [engine.tend().emptied for _ in range(2)] == [True, False]  # reported once
    assert engine.check() == []


def test_a_reader_that_finds_no_tables_reports_the_removed_file(
    path: Path, engine: SQLiteEngine
) -> None:
    """Before any check of the file. The reader has not read since the first write, as in a process
    that only enqueues."""
    engine.put([new_job(1)])
    engine._database._next_look = inf
    remove_files(path)
    with pytest.raises(EngineUnavailable, match=REPLACED):
        engine.stats()


def test_what_is_migrated_is_the_file_of_before_if_another_is_found_meanwhile(
    path: Path, engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put([new_job(1)])
    database, read = engine._database, engine._database.read

    def read_and_replace(work: Callable[[apsw.Connection], int]) -> int:
        version = read(work)
        remove_files(path)
        database._next_look = 0.0
        with pytest.raises(EngineUnavailable, match=REPLACED):
            read(work)
        return version

    with monkeypatch.context() as patch:
        patch.setattr(database, "read", read_and_replace)
        engine.migrate()
    engine.put([new_job(2)])
    assert engine.stats().queues == {"q": {State.READY: 1}}


def test_a_file_that_was_closed_may_be_removed(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(1)])
    engine.shutdown()
    remove_files(path)
    engine._database._next_look = 0.0
    engine.put([new_job(2)])
    assert engine.stats().queues == {"q": {State.READY: 1}}


def remove_files(path: Path) -> None:
    for file in path.parent.glob("jobs.db*"):
        if file.is_file():
            file.unlink()


def test_nothing_of_sqlite_lives_through_a_fork(path: Path, open_engine: OpenEngine) -> None:
    """Two engines on one file, as in the child of a worker; one of them is reading."""
    engines = [open_engine(), open_engine()]
    for engine in engines:
        engine.put([new_job(1)])
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            engines[1].get(["job-000001"])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        inherited = [has_open_connection_after_fork(engines) for _ in range(8)]
    finally:
        stop.set()
        thread.join()
    assert inherited == [False] * 8


def has_open_connection_after_fork(engines: list[SQLiteEngine]) -> bool:
    pid = os.fork()
    if pid == 0:
        paths = {engine._database.location for engine in engines}
        os._exit(int(any(connection.filename in paths for connection in apsw.connections())))
    return os.waitpid(pid, 0)[1] != 0


def test_shutdown_has_a_deadline_too(path: Path, engine: SQLiteEngine) -> None:
    engine.put([new_job(1)])
    with hold_the_lock(path):
        with pytest.raises(EngineUnavailable):
            engine.put([new_job(2)])
        started = time.monotonic()
        engine.shutdown()
        elapsed = time.monotonic() - started
    assert elapsed < 5.0
    assert engine.get(["job-000001"]) != [None]
    engine.put([new_job(3)])
    assert engine.get(["job-000003"]) != [None]


def test_a_lock_file_that_cannot_be_opened_ends_no_thread(
    path: Path, engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put([new_job(0)])
    database = engine._database

    @contextmanager
    def fail_to_wait(*, wait: bool) -> Iterator[bool]:
        if wait:
            raise EngineError("no lock file")
        yield False

    with monkeypatch.context() as broken:
        broken.setattr(database, "_file_lock", fail_to_wait)
        with pytest.raises(EngineError, match="no lock file"):
            engine.put([new_job(1)])
    with hold_the_lock(path), pytest.raises(EngineUnavailable):
        engine.put([new_job(2)])
    engine.put([new_job(3)])
    assert engine.get(["job-000003"]) != [None]


def test_a_put_wakes_exactly_as_many_waiters_as_it_has_jobs(open_engine: OpenEngine) -> None:
    producer = open_engine()
    producer.migrate()
    waiters = [open_engine() for _ in range(3)]
    numbers = count()
    assert is_once(lambda: is_one_woken(producer, waiters, new_job(next(numbers))))


def is_one_woken(producer: SQLiteEngine, waiters: list[SQLiteEngine], job: NewJob) -> bool:
    """Whether one is woken soon: before any of them would have polled."""
    woken = [threading.Event() for _ in waiters]
    ready = threading.Barrier(len(waiters) + 1)

    def wait(waiter: SQLiteEngine, event: threading.Event) -> None:
        waiter.migrate()
        ready.wait()
        if waiter.wait([Waiter("worker", Plan(queues=("q",)))], timeout_ms=400):
            event.set()

    threads = [
        threading.Thread(target=wait, args=pair) for pair in zip(waiters, woken, strict=True)
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    folder = Path(f"{producer._database.location}.wake")
    deadline = time.monotonic() + 5
    while len(list(folder.glob("*.idle"))) < len(waiters) and time.monotonic() < deadline:
        time.sleep(0.001)
    started = time.monotonic()
    producer.put([job])
    while not any(event.is_set() for event in woken) and time.monotonic() < deadline:
        time.sleep(0.0005)
    elapsed = time.monotonic() - started
    for thread in threads:
        thread.join()
    assert claim_jobs(producer, "other", f"nonce-{job.id}", Plan(), 1).claims
    return sum(event.is_set() for event in woken) == 1 and elapsed < 0.2


WAITER = """
import sys
from pathlib import Path
from windlass.engine.contract import EngineOptions, Plan, Waiter
from windlass.engine.sqlite import database as connection_module
from windlass.engine.sqlite.engine import SQLiteEngine
engine = SQLiteEngine(Path(sys.argv[1]), EngineOptions())
while True: engine.wait([Waiter("worker", Plan())], 500)
"""


def leave_a_dead_socket(path: Path) -> Path:
    """Make the socket of a waiter that was killed while it waited."""
    process = subprocess.Popen([sys.executable, "-c", WAITER, str(path)])
    folder = path.with_name("jobs.db.wake")
    deadline = time.monotonic() + 20
    while not list(folder.glob("*.idle")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.wait()
    [left] = folder.glob("*.idle")
    assert len(list(folder.iterdir())) == 2  # and its plan
    return left


def test_a_commit_removes_the_sockets_of_killed_workers(path: Path, engine: SQLiteEngine) -> None:
    left = leave_a_dead_socket(path)
    engine.put([new_job(1)])
    assert list(left.parent.iterdir()) == []


def test_a_worker_that_starts_to_wait_removes_the_sockets_of_killed_ones(
    path: Path, open_engine: OpenEngine
) -> None:
    left = leave_a_dead_socket(path)
    busy = left.rename(left.with_suffix(".busy"))
    living, newcomer = open_engine(), open_engine()
    for engine in (living, newcomer):
        engine.wait([Waiter("worker", Plan())], timeout_ms=1)
    names = [file.name for file in left.parent.iterdir()]
    assert busy.name not in names
    assert len(names) == 4, "the living are left alone"
    assert sum(name.endswith(".plan") for name in names) == 2


def test_a_worker_has_a_bounded_number_of_sockets(path: Path, engine: SQLiteEngine) -> None:
    """Remote workers may have any number of plans; each further one takes the place of another."""
    plans = [Plan(tasks=(f"task-{number}",)) for number in range(120)]
    for plan in plans:
        engine.wait([Waiter("worker", plan)], timeout_ms=0)
    folder = path.with_name("jobs.db.wake")
    assert len(list(folder.glob("*.busy"))) + len(list(folder.glob("*.idle"))) == 100
    assert len(list(folder.glob("*.plan"))) == 100
    waiters = [Waiter(f"worker-{number}", plan) for number, plan in enumerate(plans)]
    engine.wait(waiters, timeout_ms=0)
    assert len(list(folder.glob("*.idle"))) == 100
    engine.put([new_job(task="task-119")])
    assert [woken.session for woken in engine.wait(waiters, timeout_ms=2_000)] == ["worker-119"]


def test_a_wake_up_for_very_many_tasks_fits_into_a_datagram(open_engine: OpenEngine) -> None:
    waiting, putting = open_engine(), open_engine()
    names = [f"{'task-' * 20}{number:03}" for number in range(100)]
    waiters = [Waiter("worker", Plan(tasks=tuple(names)))]
    numbers = count()

    def is_woken_soon() -> bool:
        waiting.wait(waiters, timeout_ms=0)
        putting.put([new_job(next(numbers), task=name) for name in names])
        started = time.monotonic()
        woken = waiting.wait(waiters, timeout_ms=5_000) or waiting.wait(waiters, timeout_ms=5_000)
        elapsed = time.monotonic() - started
        assert woken
        assert len(claim_jobs(putting, "other", f"{next(numbers):06}", Plan(), 100).claims) == 100
        return elapsed < 0.2

    assert is_once(is_woken_soon)


def test_a_path_too_long_for_a_socket_wakes_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 30)
    folder.mkdir()
    engines = [SQLiteEngine(folder / "jobs.db", EngineOptions()) for _ in range(2)]
    waiter, producer = engines
    waiter.migrate()
    producer.migrate()
    wake, numbers = Path(f"{producer._database.location}.wake"), count(1)

    def is_woken() -> bool:
        """Whether a wait ends before it would poll."""
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(waiter.wait, [Waiter("worker", Plan())], 400)
            deadline = time.monotonic() + 5
            while not (wake.is_dir() and list(wake.glob("*.idle"))) and time.monotonic() < deadline:
                time.sleep(0.001)
            producer.put([new_job(number := next(numbers))])
            woken = bool(waiting.result())
        assert claim_jobs(producer, "other", f"{number:06}", Plan(), 1).claims
        return woken

    try:
        assert is_once(is_woken)
    finally:
        for engine in engines:
            engine.shutdown()

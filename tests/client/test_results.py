"""Callers that wait for results: woken at once, however many there are, and reading little."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.proxy import Proxy, Side
from tests.redis_server import shared_server
from tests.soon import is_once
from tests.worker.yard import until
from windlass import Job, JobCancelled, Windlass
from windlass import job as job_module
from windlass.engine.postgres import result_wakeup as postgres_wakeup
from windlass.engine.redis import result_wakeup as redis_wakeup
from windlass.engine.sqlite import result_wakeup as sqlite_wakeup

PLACES: Final = ("sqlite-file", "redis", "redis-4", "postgres")
#: A look that no test waits for: what comes earlier was brought by a wake-up.
NEVER_MS: Final = 60_000
#: What a wake-up may take, typically.
PROMPT_S: Final = 0.05

Ask = Callable[[Job[Any], float], Any]


def ask_plainly(job: Job[Any], timeout: float) -> Any:
    return job.result(timeout)


def ask_in_a_coroutine(job: Job[Any], timeout: float) -> Any:
    return asyncio.run(job.aresult(timeout))


@pytest.fixture(params=[ask_plainly, ask_in_a_coroutine], ids=["plain", "coroutine"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


def make_app(url: str) -> Windlass:
    app = Windlass(url)
    app.task(name="echo")(echo)
    return app


def echo(text: str) -> str:
    return text


@pytest.fixture
def app(url: str) -> Iterator[Windlass]:
    with make_app(url) as app:
        yield app


@pytest.fixture
def hand(url: str) -> Iterator[Hand]:
    """Ends jobs through an engine object of its own, as another process would."""
    with make_app(url) as other:
        yield Hand(other)


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers look when they begin to wait, and then only when they are woken."""
    monkeypatch.setattr(job_module, "FIRST_LOOK_MS", NEVER_MS)
    monkeypatch.setattr(job_module, "LAST_LOOK_MS", NEVER_MS)


def await_waiter(app: Windlass, job: Job[Any], number: int = 1) -> None:
    """Wait until this many callers wait, and have polled once while waiting."""
    waiters = app.result_waiters

    def are_there() -> bool:
        return len(waiters._wakers.get(job.id, ())) >= number

    until(are_there, "a caller that waits")
    time.sleep(0.05)  # the look that follows is not to be seen from outside


# ----------------------------------------------------------------------------------------- wake-ups


@pytest.mark.usefixtures("only_woken")
def test_a_caller_is_woken_by_the_end_of_its_job(app: Windlass, hand: Hand, ask: Ask) -> None:
    job = app.tasks["echo"].enqueue("x")
    with ThreadPoolExecutor() as threads:
        result = threads.submit(ask, job, 15)
        await_waiter(app, job)
        hand.succeed("done")
        assert result.result(timeout=10) == "done"
    assert app.result_waiters._wakers == {}


@pytest.mark.usefixtures("only_woken")
def test_a_caller_is_woken_when_its_job_is_cancelled(app: Windlass, hand: Hand, ask: Ask) -> None:
    job = app.tasks["echo"].enqueue("x")
    with ThreadPoolExecutor() as threads:
        result = threads.submit(ask, job, 15)
        await_waiter(app, job)
        hand.app.job(job.id).cancel()
        with pytest.raises(JobCancelled):
            result.result(timeout=10)


def test_a_caller_has_the_result_at_once(app: Windlass, hand: Hand, ask: Ask) -> None:
    def measure(threads: ThreadPoolExecutor) -> float:
        job = app.tasks["echo"].enqueue("x")
        result = threads.submit(ask, job, 15)
        await_waiter(app, job)
        began = time.monotonic()
        hand.succeed("done")
        assert result.result(timeout=10) == "done"
        return time.monotonic() - began

    with ThreadPoolExecutor() as threads:
        assert is_once(lambda: median(measure(threads) for _ in range(5)) < PROMPT_S, tries=3)


@pytest.mark.usefixtures("only_woken")
def test_many_callers_wait_for_many_jobs(app: Windlass, hand: Hand) -> None:
    """Two threads and two coroutines for each job."""
    jobs = [app.tasks["echo"].enqueue(str(number)) for number in range(10)]

    async def wait_for_all() -> list[Any]:
        return await asyncio.gather(*(job.aresult(15) for job in jobs * 2))

    with ThreadPoolExecutor(30) as threads:
        results = [threads.submit(job.result, 15) for job in jobs * 2]
        in_loop = threads.submit(asyncio.run, wait_for_all())
        for job in jobs:
            await_waiter(app, job, 4)
        for _ in jobs:
            hand.succeed("done")
        assert [result.result(timeout=10) for result in results] == ["done"] * 20
        assert in_loop.result(timeout=10) == ["done"] * 20
    assert sum(thread.name == "windlass-results" for thread in threading.enumerate()) == 1


@pytest.mark.usefixtures("only_woken")
def test_in_memory_a_caller_is_woken_too(ask: Ask) -> None:
    with make_app("sqlite:///:memory:") as app, ThreadPoolExecutor() as threads:
        job = app.tasks["echo"].enqueue("x")
        result = threads.submit(ask, job, 15)
        await_waiter(app, job)
        Hand(app).succeed("done")
        assert result.result(timeout=10) == "done"


@pytest.mark.usefixtures("only_woken")
def test_parent_and_child_of_a_fork_are_woken_each(app: Windlass, hand: Hand) -> None:
    jobs = [app.tasks["echo"].enqueue("x") for _ in range(2)]
    gate = os.pipe()
    with ThreadPoolExecutor() as threads:
        of_parent = threads.submit(jobs[0].result, 15)
        await_waiter(app, jobs[0])
        pid = os.fork()
        if pid == 0:
            os._exit(wait_in_child(app, jobs[1], gate[1]))
        os.read(gate[0], 1)
        for _ in jobs:
            hand.succeed("done")
        assert of_parent.result(timeout=10) == "done"
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for end in gate:
        os.close(end)


def wait_in_child(app: Windlass, job: Job[Any], ready: int) -> int:
    """The exit code: 0 when the result came."""

    def tell() -> None:
        await_waiter(app, job)
        os.write(ready, b"1")

    threading.Thread(target=tell, daemon=True).start()
    try:
        return 0 if job.result(20) == "done" else 1
    except BaseException:  # noqa: BLE001  # the test runner must not continue in the child
        return 2


# ----------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_waiting_reads_little_however_long_the_arguments_are(partitions: int, ask: Ask) -> None:
    server = shared_server()
    with Proxy(server.port) as proxy:
        url = f"{server.url()}&partitions={partitions}".replace(str(server.port), str(proxy.port))
        with make_app(url) as app:
            job = app.tasks["echo"].enqueue("x" * 1_000_000)
            before = proxy.passed[Side.REPLIES]
            with pytest.raises(TimeoutError):
                ask(job, 2)
            assert proxy.passed[Side.REPLIES] - before < 5_000


def test_a_caller_that_is_cut_off_from_wake_ups_looks_by_itself() -> None:
    server = shared_server()
    with Proxy(server.port) as proxy, ThreadPoolExecutor() as threads:
        url = server.url()
        with (
            make_app(url.replace(str(server.port), str(proxy.port))) as app,
            make_app(url) as other,
        ):
            hand = Hand(other)
            for _ in range(2):  # the second time it has subscribed again
                job = app.tasks["echo"].enqueue("x")
                result = threads.submit(job.result, 15)
                await_waiter(app, job)
                proxy.reset()
                hand.succeed("done")
                assert result.result(timeout=10) == "done"


def test_a_process_that_waits_no_more_keeps_nothing(
    app: Windlass, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_wakeup, "PULSE_S", 0.05)
    monkeypatch.setattr(redis_wakeup, "IDLE_S", 0.1)
    monkeypatch.setattr(sqlite_wakeup, "IDLE_S", 0.1)
    monkeypatch.setattr(postgres_wakeup, "PULSE_S", 0.05)
    monkeypatch.setattr(postgres_wakeup, "IDLE_S", 0.1)

    started: list[str] = []
    start = threading.Thread.start

    def note_start(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    def has_thread() -> bool:
        return any(thread.name == "windlass-results" for thread in threading.enumerate())

    monkeypatch.setattr(threading.Thread, "start", note_start)
    for round_number in (1, 2):
        job = app.tasks["echo"].enqueue("x")

        def is_watched(job: Job[Any] = job, number: int = round_number) -> bool:
            with pytest.raises(TimeoutError):
                job.result(0.05)
            return started.count("windlass-results") == number

        until(is_watched, "the thread of a call that waits")
        until(lambda: not has_thread(), "the end of the thread")
        hand.succeed("done")
        assert job.result(10) == "done"
    assert list(tmp_path.glob("jobs.db.ends/*")) == []


def test_the_socket_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with make_app(url) as app:
        job = app.tasks["echo"].enqueue("x")
        pid = os.fork()
        if pid == 0:
            app.result_waiters.watch(app.engine, [job.id])
            os._exit(0)
        os.waitpid(pid, 0)
        assert len(list((tmp_path / "jobs.db.ends").iterdir())) == 1
        Hand(app).succeed("done")
        assert list((tmp_path / "jobs.db.ends").iterdir()) == []

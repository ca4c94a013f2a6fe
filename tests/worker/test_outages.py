"""Workers whose Redis server dies, drops its clients or freezes; `proofs` has longer ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.proxy import Proxy
from tests.redis_server import RedisServer, private_server
from tests.worker.yard import Worker, Yard, until
from windlass.core.states import State
from windlass.engine.redis.client.pool import MOST_CALLS

#: After an outage work resumes within this many seconds.
RESUMED_S = 5.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = private_server("--appendfsync", "always")
    yield server
    server.end()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def yard(server: RedisServer, tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path, "2s", "5s", 3, server.url(namespace="outages"))
    yield yard
    yard.close()


def load(yard: Yard, number: int) -> None:
    call = yard.script.plain.bind
    yard.script.plain.enqueue_many(call(f"job-{n}", ["sleep:0.02"]) for n in range(number))


def await_progress(yard: Yard) -> None:
    before = yard.count(State.SUCCEEDED)
    until(lambda: yard.count(State.SUCCEEDED) > before + 5, "a busy worker")


def resume(yard: Yard, label: str) -> None:
    """A job that comes before all others is run in time."""
    job = yard.script.plain.using(priority=100).enqueue(label, [])
    until(lambda: yard.record(job).state is State.SUCCEEDED, f"work resumes: {label}", RESUMED_S)


def end(yard: Yard, worker: Worker, jobs: int) -> None:
    """All jobs have run once, and the worker stops on a signal."""
    yard.await_count(State.SUCCEEDED, jobs)
    assert len(yard.events("start")) == jobs
    assert worker.stop() == 0


def test_work_goes_on_after_a_server_was_killed(server: RedisServer, yard: Yard) -> None:
    load(yard, 300)
    worker = yard.start()
    for number in range(3):
        await_progress(yard)
        server.kill()
        time.sleep(0.3)  # an outage, and not only a broken connection
        server.start()
        resume(yard, f"probe-{number}")
    end(yard, worker, 303)
    assert "lost its data" not in worker.log()


def test_work_goes_on_after_all_clients_were_killed(server: RedisServer, yard: Yard) -> None:
    load(yard, 300)
    worker = yard.start()
    for number in range(10):
        await_progress(yard)
        for kind in ("normal", "pubsub"):
            server.tell("CLIENT", "KILL", "TYPE", kind)
        resume(yard, f"probe-{number}")
    end(yard, worker, 310)


def test_a_job_outlives_an_outage_of_more_than_a_lease(
    server: RedisServer, proxy: Proxy, yard: Yard
) -> None:
    """The lease is 2 s. The second worker is free to take the job over, and must not."""
    url = server.url(port=proxy.port, namespace="outages")
    workers = [yard.start(slots=1, url=url), yard.start(slots=1, url=url)]
    job = yard.plain("long", "sleep:4")
    yard.await_start("long")
    proxy.freeze()
    time.sleep(3.0)
    proxy.heal()
    resume(yard, "probe")
    record = yard.await_state(job, State.SUCCEEDED)
    assert (record.counters.starts, record.counters.losses) == (1, 0)
    end(yard, workers[0], 2)
    assert workers[1].stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_worker_whose_server_comes_back_empty_says_so_and_goes_on(
    server: RedisServer, tmp_path: Path, partitions: int
) -> None:
    yard = Yard(tmp_path, "30s", "5s", 3, server.url(namespace="lost", partitions=partitions))
    worker = yard.start(app="tests.worker.apps.scheduled:app")
    until(lambda: "ticked" in yard.lines(), "a run")
    far = yard.script.plain.using(run_after="1h").enqueue("far", [])
    server.restart_empty()
    worker.await_log("engine lost its data: the jobs in redis 127")
    ticked = len(yard.lines())
    until(lambda: len(yard.lines()) > ticked + 1, "its schedule again", RESUMED_S)
    until(yard.app.engine.sessions, "its session again", RESUMED_S)
    assert yard.app.engine.get([far.id]) == [None]
    assert worker.stop() == 0
    assert worker.log().count("without its data") == 1
    assert "Traceback" not in worker.log()
    yard.close()


@pytest.mark.slow
def test_a_worker_starts_and_stops_while_its_server_is_away(
    server: RedisServer, proxy: Proxy, tmp_path: Path
) -> None:
    url = server.url(namespace="outages")
    yard = Yard(tmp_path, "2s", "1s", 3, url)
    proxy.refuse()
    worker = yard.start(url=url.replace(f":{server.port}/", f":{proxy.port}/"))
    worker.await_log("lost connection to engine")
    proxy.heal()
    resume(yard, "first")
    yard.plain("running", "sleep:60")
    yard.await_start("running")
    proxy.vanish()
    started = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - started < 12.5  # ten seconds after its grace
    proxy.heal()
    yard.close()


@pytest.mark.slow
def test_a_worker_whose_server_was_never_there_says_so_and_stops_soon(tmp_path: Path) -> None:
    """Nothing was claimed, so the worker does not wait for calls under way."""
    yard = Yard(tmp_path, "2s", "25s", 3)
    worker = yard.start(url="redis://127.0.0.1:1/0")
    worker.await_log("not answered within 1 s, still waiting: redis 127.0.0.1:1/0")
    worker.await_log("waiting for the engine to answer: The Redis server at")
    started = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - started < 3.0
    assert "killing" not in worker.log()
    yard.close()


def test_the_processes_of_a_worker_have_at_most_four_connections_each(
    server: RedisServer, yard: Yard
) -> None:
    """A child has two engine objects: the fetcher's and the app's, by which its jobs enqueue."""
    worker = yard.start(slots=10)
    until(lambda: b"cmd=subscribe" in server.tell("CLIENT", "LIST"), "a child that waits")
    for number in range(20):
        yard.plain(f"job-{number}", *[f"enqueue:from-{number}-{n}" for n in range(10)])
    most = 0
    while yard.count(State.SUCCEEDED) < 20 * 11:
        pids = [worker.pid, *worker.children()]
        most = max(most, *(connections_of(pid, server.port) for pid in pids))
    assert 2 <= most <= MOST_CALLS + 1
    assert worker.stop() == 0


def connections_of(pid: int, port: int) -> int:
    """How many of its connections lead there."""
    found = psutil.Process(pid).net_connections("tcp")
    return len([connection for connection in found if connection.raddr[1:] == (port,)])

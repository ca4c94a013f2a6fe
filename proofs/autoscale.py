"""A worker with `--autoscale 2..8` follows a load step, and no job is lost or interrupted.

1. On three engines: 900 jobs of a second, and some that run for longer than the load. The worker
   scales from 2 to 8 children and back to 2 with its usual periods. Each job starts once.
2. A Redis or PostgreSQL server freezes while the worker has to scale up, and again while it has to
   scale down: the number of children stays, `/v1/scale` answers 503 and never a number. Afterwards
   the worker scales.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, TypeAlias

import httpx

from tests.contract.variants import fresh_url
from tests.http.server_process import ServerProcess
from tests.postgres_server import OWNER, PostgresServer
from tests.redis_server import RedisServer, private_server
from tests.worker.yard import Worker, Yard, until
from windlass import Job, State
from windlass.worker.supervisor.scale_policy import SCALE_PERIODS, ScalePeriods

LEAST: Final = 2
MOST: Final = 8
SLOTS: Final = 2
JOBS: Final = 900
LONG_JOBS: Final = 6
LONG_S: Final = 100.0
#: The first step up comes this soon, in seconds: a look, the start of children, a busy machine.
UP_S: Final = 15.0
#: The last step down comes this long after the last job, in seconds.
DOWN_S: Final = 180.0
FROZEN_S: Final = 20.0
#: Periods of the second proof: the outage begins before the first look, and is longer than any.
SHORT: Final = ScalePeriods(look_s=5.0, rest_s=5.0, hold_s=10.0, step_s=5.0)

FreezableServer: TypeAlias = RedisServer | PostgresServer


def prove(folder: Path) -> Iterator[str]:
    for engine in ("sqlite-file", "redis", "postgres"):
        place = folder / engine
        place.mkdir()
        with closing(Yard(place, "30s", "10s", 3, fresh_url(engine, place))) as yard:
            for line in follow_step(yard):
                yield f"{engine}: {line}"


def follow_step(yard: Yard) -> Iterator[str]:
    worker = start(yard, SCALE_PERIODS)
    curve = Curve(worker)
    jobs = load(yard, LONG_JOBS, LONG_S, "long") + load(yard, JOBS, 1.0)
    curve.watch(lambda: curve.last == MOST, UP_S, f"{MOST} children")
    ended = LONG_JOBS + JOBS
    curve.watch(lambda: yard.count(State.SUCCEEDED) == ended, 300.0, "the end of all jobs")
    curve.watch(lambda: curve.last == LEAST, DOWN_S, f"{LEAST} children")
    assert curve.most == MOST
    yield f"children by second: {curve}"
    yield check(yard, worker, jobs)


def prove_frozen(folder: Path) -> Iterator[str]:
    redis = private_server()
    url = redis.url(namespace="autoscale")
    yield from (f"redis: {line}" for line in prove_frozen_on(folder / "redis", redis, url))
    postgres = PostgresServer()
    url = postgres.url(postgres.new_database(), user=OWNER)
    yield from (f"postgres: {line}" for line in prove_frozen_on(folder / "postgres", postgres, url))


def prove_frozen_on(folder: Path, server: FreezableServer, url: str) -> Iterator[str]:
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(end, server)
        yard = stack.enter_context(closing(Yard(folder, "60s", "10s", 3, url)))
        api = ServerProcess("tests.http.shop_app:app", folder / "serve.log", "--url", url)
        stack.callback(api.kill)
        worker = start(yard, SHORT)
        jobs = load(yard, SLOTS * LEAST, FROZEN_S + 20, "long")
        until(lambda: len(yard.events("start")) == SLOTS * LEAST, "busy slots")
        jobs += load(yard, JOBS, 0.1)
        yield freeze(server, worker, api, LEAST, "with a backlog")
        until(lambda: len(worker.children()) == MOST, f"{MOST} children", 30)
        yield f"then from {LEAST} to {MOST} children"
        yard.await_count(State.SUCCEEDED, len(jobs), 120)
        yield freeze(server, worker, api, MOST, "without a job")
        until(lambda: len(worker.children()) == LEAST, f"{LEAST} children", 60)
        yield f"then from {MOST} to {LEAST} children"
        yield check(yard, worker, jobs)


def freeze(
    server: FreezableServer, worker: Worker, api: ServerProcess, number: int, when: str
) -> str:
    """Freeze the server. Ask for the demand, and watch the children."""
    server.freeze()
    try:
        end = time.monotonic() + FROZEN_S
        statuses = []
        while time.monotonic() < end:
            statuses.append(httpx.get(f"{api.url}/v1/scale", timeout=30).status_code)
            assert len(worker.children()) == number, f"the number changes {when}"
            time.sleep(0.5)
        assert set(statuses) == {503}, statuses
    finally:
        server.thaw()
    until(lambda: httpx.get(f"{api.url}/v1/scale", timeout=30).status_code == 200, "the demand")
    return (
        f"frozen for {FROZEN_S:g} s {when}: {number} children all the time, /v1/scale answered "
        f"503 {len(statuses)} times, then 200"
    )


def end(server: FreezableServer) -> None:
    """End a server, frozen or not."""
    server.thaw()
    server.end()


def start(yard: Yard, periods: ScalePeriods) -> Worker:
    worker = yard.start(processes=LEAST, most_processes=MOST, slots=SLOTS, periods=periods)
    worker.await_log("ready")
    until(lambda: len(worker.children()) == LEAST, f"{LEAST} children")
    return worker


def load(yard: Yard, number: int, seconds: float, name: str = "job") -> list[Job[str]]:
    bind = yard.script.plain.bind
    calls = (bind(f"{name}-{n}", [f"sleep:{seconds:g}"]) for n in range(number))
    return list(yard.script.plain.enqueue_many(calls))


def check(yard: Yard, worker: Worker, jobs: list[Job[str]]) -> str:
    """Check that each job started once, and that none was interrupted."""
    starts = [line.label for line in yard.events("start")]
    assert len(starts) == len(set(starts)) == len(jobs), "run twice, or never"
    records = [yard.record(job) for job in jobs]
    assert {record.state for record in records} == {State.SUCCEEDED}
    assert {record.counters.interruptions for record in records} == {0}
    assert worker.stop() == 0
    log = worker.log()
    assert "died" not in log
    assert "handed back" not in log
    return f"{len(jobs)} jobs, each started once, 0 lost, 0 interrupted"


class Curve:
    """The number of children over time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._began_at = time.monotonic()
        self._points = [(0.0, len(worker.children()))]

    @property
    def last(self) -> int:
        return self._points[-1][1]

    @property
    def most(self) -> int:
        return max(number for _, number in self._points)

    def watch(self, find: Callable[[], bool], seconds: float, what: str) -> None:
        """Note the number of children until something is true."""
        end = time.monotonic() + seconds
        while not find():
            assert time.monotonic() < end, f"not within {seconds:g} s: {what}; {self}"
            number = len(self._worker.children())
            if number != self.last:
                self._points.append((time.monotonic() - self._began_at, number))
            time.sleep(0.1)

    def __str__(self) -> str:
        return ", ".join(f"{at:.0f} s: {number}" for at, number in self._points)

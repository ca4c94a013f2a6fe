"""Workers over HTTP: a thousand idle long polls on one instance, and the throughput of turns.

1. 1,000 sessions wait with long polls of 20 s. The instance stays small and quiet, and a new job
   reaches one of them at once.
2. One client drains no-op jobs with `/v1/turn` in batches of 100; a native worker with one child
   drains as many.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from tests.contract.variants import fresh_url
from tests.http.server_process import ServerProcess
from tests.postgres_server import OWNER, PostgresServer
from tests.redis_server import RedisServer
from tests.worker.yard import Yard, until
from windlass import State, Windlass

POLLS: Final = 1_000
WAIT_S: Final = 20
QUIET_S: Final = 25.0
SAMPLES: Final = 200
MOST_MB: Final = 150
MOST_CPU: Final = 5.0  # % of a core
MOST_P50_MS: Final = 10.0
#: Drain this many jobs.
JOBS: Final = 50_000
BATCH: Final = 100
APP: Final = "tests.http.shop_app:app"
TASK: Final = "remote.noop"


class Session(NamedTuple):
    """A connection of a worker, and its session."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    id: str


def prove_idle(folder: Path) -> Iterator[str]:
    for engine in ("redis", "postgres"):
        own = folder / engine
        own.mkdir()
        for line in _prove_idle(own, fresh_url(engine, own)):
            yield f"{engine}: {line}"


def _prove_idle(folder: Path, url: str) -> Iterator[str]:
    server = None
    try:
        environment = {"WINDLASS_LEASE": "10m"}  # heartbeats are not what is measured
        options = ("--url", url, "--rate-limit", "100000")
        server = ServerProcess(APP, folder / "log", *options, environment=environment)
        with Windlass(url) as app:
            idle, latencies = asyncio.run(_measure(server, app))
        yield from _judge(idle, latencies)
        assert server.stop() == 0, server.log()
    finally:
        if server is not None:
            server.kill()


class Idle(NamedTuple):
    """The cost of an instance whose clients all wait."""

    memory_mb: float
    cpu: float  # % of a core


def _judge(idle: Idle, latencies: list[float]) -> Iterator[str]:
    p50, p99 = statistics.median(latencies), sorted(latencies)[int(len(latencies) * 0.99)]
    yield (
        f"{POLLS} idle long polls: {idle.memory_mb:.0f} MB, {idle.cpu:.1f} % of a core; "
        f"{SAMPLES} jobs reached one of them after {p50:.1f} ms (p50), {p99:.1f} ms (p99)"
    )
    assert idle.memory_mb < MOST_MB
    assert idle.cpu < MOST_CPU
    assert p50 < MOST_P50_MS


async def _measure(server: ServerProcess, app: Windlass) -> tuple[Idle, list[float]]:
    found: asyncio.Queue[float] = asyncio.Queue()
    sessions = [await _open(server.port) for _ in range(POLLS)]
    polls = [asyncio.create_task(_poll(session, found)) for session in sessions]
    await asyncio.sleep(2.0)  # until all of them wait
    process = psutil.Process(server.pid)
    before = sum(process.cpu_times()[:2])
    await asyncio.sleep(QUIET_S)  # the time over which the cost is taken
    cpu = (sum(process.cpu_times()[:2]) - before) / QUIET_S * 100
    memory_mb = process.memory_full_info().pss / 1e6
    task = app.task_named(TASK, queue="remote")
    latencies = []
    for _ in range(SAMPLES):
        await asyncio.to_thread(task.enqueue, time.monotonic())
        latencies.append((await asyncio.wait_for(found.get(), 30)) * 1000)
    for poll in polls:
        poll.cancel()
    for session in sessions:
        session.writer.close()
    return Idle(memory_mb, cpu), latencies


async def _open(port: int) -> Session:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = {"name": "proof", "tasks": [TASK], "queues": ["remote"], "slots": BATCH}
    session = Session(reader, writer, "")
    answer = await _ask(session, "/v1/sessions", body)
    return session._replace(id=answer["session"])


async def _poll(session: Session, found: asyncio.Queue[float]) -> None:
    """Poll, and put how long each job took from its enqueue."""
    nonce = 1
    outcomes: list[dict[str, Any]] = []
    while True:
        body = {"session": session.id, "nonce": nonce, "limit": 1, "wait_s": WAIT_S}
        answer = await _ask(session, "/v1/turn", {**body, "outcomes": outcomes})
        outcomes = [_succeeded(claim) for claim in answer["claims"]]
        nonce += 1
        for claim in answer["claims"]:
            found.put_nowait(time.monotonic() - claim["args"][0])


def _succeeded(claim: dict[str, Any]) -> dict[str, Any]:
    return {"id": claim["id"], "token": claim["token"], "outcome": "succeeded"}


async def _ask(session: Session, path: str, body: object) -> Any:
    """Send a request on the connection of the session, and return the body of the answer."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    session.writer.write(head.encode() + data)
    lines = (await session.reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    answer = await session.reader.readexactly(int(headers["content-length"]))
    assert lines[0].split()[1] in ("200", "201"), (lines[0], answer)
    return json.loads(answer)


# ------------------------------------------------------------------------------------------- turns


def prove_turns(folder: Path) -> Iterator[str]:
    redis, postgres = RedisServer("--appendfsync", "everysec"), PostgresServer(fsync=True)
    urls: dict[str, Callable[[], str]] = {
        "redis": redis.url,
        "postgres": lambda: postgres.url(postgres.new_database(), user=OWNER),
    }
    try:
        for name, fresh in urls.items():
            own = folder / name
            own.mkdir()
            yield f"{name}: {_compare(own, fresh(), fresh())}"
    finally:
        redis.end()
        postgres.end()


def _compare(folder: Path, url: str, native_url: str) -> str:
    """The rates of a client and of a native worker, each on an empty engine."""
    server = ServerProcess(APP, folder / "log", "--url", url, "--rate-limit", "100000")
    try:
        with Windlass(url) as app:
            task = app.task_named(TASK, queue="remote")
            task.enqueue_many(task.bind(number) for number in range(JOBS))
            over_http = asyncio.run(_drain(server.port))
    finally:
        server.kill()
    native = _drain_natively(folder, native_url)
    return (
        f"{JOBS} no-op jobs: {over_http:,.0f}/s by one client with /v1/turn and batches of "
        f"{BATCH}, {native:,.0f}/s by a native worker with one child: {over_http / native:.0%}"
    )


async def _drain(port: int) -> float:
    """The rate of one client that has one request at a time."""
    session = await _open(port)
    nonce, done = 1, 0
    outcomes: list[dict[str, Any]] = []
    began = time.monotonic()
    while done < JOBS:
        body = {"session": session.id, "nonce": nonce, "limit": BATCH, "wait_s": 0}
        answer = await _ask(session, "/v1/turn", {**body, "outcomes": outcomes})
        assert set(answer["verdicts"]) <= {"ok"}, answer["verdicts"]
        done += len(outcomes)
        outcomes = [_succeeded(claim) for claim in answer["claims"]]
        nonce += 1
    rate = JOBS / (time.monotonic() - began)
    session.writer.close()
    return rate


def _drain_natively(folder: Path, url: str) -> float:
    with closing(Yard(folder, "30s", "5s", 3, url)) as yard:
        noop = yard.app.task_named("benchmarks.tasks.nothing")
        noop.enqueue_many(noop.bind(number) for number in range(JOBS))
        yard.start(app="benchmarks.tasks:app", slots=10)
        until(lambda: yard.count(State.SUCCEEDED), "the first jobs", 60)
        first, began = yard.count(State.SUCCEEDED), time.monotonic()
        yard.await_count(State.SUCCEEDED, JOBS, seconds=120)
        return (JOBS - first) / (time.monotonic() - began)

"""Metrics with a million stored jobs: how long a scrape takes, on every engine.

1. A server with some jobs is scraped, each time with a new snapshot of the engine: scrapes are more
   than a second apart.
2. A million jobs of 50 tasks in 20 queues are stored, and the same is measured again.
3. 20 scrapers at once share one snapshot.
4. A worker with 200 tasks is scraped.
5. Workers run 20,000 jobs with failures and retries, and their counts are compared with the ledger
   of the jobs.
"""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.http.server_process import ServerProcess
from tests.postgres_server import OWNER, PostgresServer
from tests.redis_server import RedisServer
from tests.telemetry.scrape import find_url, scrape
from tests.worker.yard import Worker, Yard, until
from windlass import State, Windlass

JOBS: Final = 1_000_000
BATCH: Final = 10_000
QUEUES: Final = 20
TASKS: Final = 50
WORKER_TASKS: Final = 200
#: The number of scrapes; each one reads the engine.
SCRAPES: Final = 40
#: The time between them, in seconds: longer than a snapshot is shared.
APART_S: Final = 1.05
SCRAPERS: Final = 20
#: Jobs of the recount: of ten, two fail once and one fails in all of its three attempts.
RECOUNTED: Final = 20_000
MOST_MS: Final = 50.0
#: The most by which a million jobs may make a scrape more expensive, in processor time. The time of
#: the slowest scrapes says more about other programs of the machine.
MOST_GROWTH: Final = 2.0
#: A worker with many tasks has some 5,000 series, which take 30 ms of one core.
MOST_WORKER_MS: Final = 200.0


class Times(NamedTuple):
    """How long scrapes took, in milliseconds."""

    p50: float
    p99: float
    #: Processor time of server and engine for each scrape; other programs do not change it.
    cpu: float = 0.0

    @classmethod
    def of(cls, times_s: list[float], cpu_s: float = 0.0) -> Times:
        ordered = sorted(times_s)
        p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        return cls(p50 * 1000, p99 * 1000, cpu_s / len(ordered) * 1000)

    def __str__(self) -> str:
        cpu = f", {self.cpu:.1f} ms of one core" if self.cpu else ""
        return f"{self.p50:.1f} ms (p50), {self.p99:.1f} ms (p99){cpu}"


def prove_sqlite(folder: Path) -> Iterator[str]:
    yield from _prove_engine(folder, f"sqlite:///{folder / 'jobs.db'}?durability=normal")
    yield from _prove_worker(folder)


def prove_redis(folder: Path) -> Iterator[str]:
    redis = RedisServer("--appendonly", "no")
    try:
        yield from _prove_engine(folder, redis.url(), redis.pid)
    finally:
        redis.end()


def prove_postgres(folder: Path) -> Iterator[str]:
    postgres = PostgresServer()
    try:
        url = postgres.url(postgres.new_database(), user=OWNER)
        yield from _prove_engine(folder, url, postgres.pid)
    finally:
        postgres.end()


def _prove_engine(folder: Path, url: str, *engine: int) -> Iterator[str]:
    with Windlass(url) as app:
        _store(app, 1_000)
        server = ServerProcess("tests.http.shop_app:app", folder / "log", "--url", url)
        try:
            address = f"{server.url}/metrics"
            few = _measure(address, server.pid, *engine)
            _store(app, JOBS - 1_000)
            many = _measure(address, server.pid, *engine)
            shared = _measure_shared(address)
            found = scrape(address)
        finally:
            server.kill()
    stored = sum(found.samples("windlass_queue_jobs").values())
    series = sum(not line.startswith("#") for line in found.text.splitlines())
    yield f"with 1,000 stored jobs a scrape takes {few}"
    yield f"with {stored:,.0f} stored jobs a scrape takes {many}, {series} series"
    yield f"{SCRAPERS} scrapers at once: {shared}"
    assert stored == JOBS
    assert sum(found.samples("windlass_jobs_enqueued_total").values()) == JOBS
    assert many.cpu < MOST_GROWTH * few.cpu + 5.0, "the cost does not grow with the stored jobs"
    assert many.p50 < MOST_MS


def _store(app: Windlass, number: int) -> None:
    tasks = [app.task_named(f"proof.t{n}", queue=f"q{n % QUEUES}") for n in range(TASKS)]
    for begin in range(0, number, BATCH):
        numbers = range(begin, min(begin + BATCH, number))
        app.enqueue_many(tasks[n % TASKS].bind(n) for n in numbers)


def _measure(address: str, *pids: int) -> Times:
    _time_scrape(address)  # the first one imports the library
    times_s, before_s = [], _cpu_s(pids)
    for _ in range(SCRAPES):
        time.sleep(APART_S)  # each scrape is to read the engine
        times_s.append(_time_scrape(address))
    return Times.of(times_s, _cpu_s(pids) - before_s)


def _cpu_s(pids: Sequence[int]) -> float:
    """Also that of child processes: PostgreSQL has one for each connection."""
    first = [psutil.Process(pid) for pid in pids]
    children = [child for process in first for child in process.children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in [*first, *children])


def _measure_shared(address: str) -> Times:
    time.sleep(APART_S)
    with ThreadPoolExecutor(SCRAPERS) as pool:
        return Times.of(list(pool.map(_time_scrape, [address] * SCRAPERS)))


def _time_scrape(address: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(address, timeout=30) as answer:
        answer.read()
    return time.perf_counter() - began


def _prove_worker(folder: Path) -> Iterator[str]:
    with closing(Yard(folder, "30s", "5s", 3, f"sqlite:///{folder / 'worker.db'}")) as yard:
        tasks = [yard.app.task_named(f"task{n}") for n in range(WORKER_TASKS)]
        yard.app.enqueue_many(task.bind() for task in tasks)
        worker = yard.start(app="proofs.metrics_app:app", metrics=":0")
        address = _await_address(worker)
        yard.await_count(State.SUCCEEDED, WORKER_TASKS)
        name = "windlass_jobs_finished_total"
        until(lambda: sum(scrape(address).samples(name).values()) == WORKER_TASKS, "the counts")
        times = Times.of([_time_scrape(address) for _ in range(SCRAPES)])
        series = sum(not line.startswith("#") for line in scrape(address).text.splitlines())
    yield f"a scrape of a worker with {WORKER_TASKS} tasks takes {times}, {series} series"
    assert times.p50 < MOST_WORKER_MS


# ----------------------------------------------------------------------------------------- recount


def prove_recount(folder: Path) -> Iterator[str]:
    with closing(Yard(folder, "30s", "10s", 3)) as yard:
        plain = yard.script.plain
        plain.enqueue_many(plain.bind(f"j{n}", _steps(n)) for n in range(RECOUNTED))
        workers = [yard.start(processes=2, slots=10, metrics=":0") for _ in range(2)]
        addresses = [_await_address(worker) for worker in workers]
        yard.await_count(State.DEAD, RECOUNTED // 10, seconds=300)
        yard.await_count(State.SUCCEEDED, RECOUNTED - RECOUNTED // 10, seconds=300)
        starts = sum(line.startswith("start ") for line in yard.lines())
        dead, ended = RECOUNTED // 10, RECOUNTED - RECOUNTED // 10
        expected = {"succeeded": ended, "retried": starts - RECOUNTED, "dead": dead}
        until(lambda: _add_up(addresses) == expected, f"{expected}, not {_add_up(addresses)}")
    yield f"{starts:,} runs of {RECOUNTED:,} jobs in two workers: {expected}, as in the ledger"
    assert starts == RECOUNTED + RECOUNTED // 10 * 2 + RECOUNTED // 10 * 2


def _await_address(worker: Worker) -> str:
    return until(lambda: find_url(worker.log()), "the address of the metrics")


def _steps(number: int) -> list[str]:
    if number % 10 == 0:
        return ["fail"]
    return ["fail_before:2"] if number % 10 in (1, 2) else []


def _add_up(addresses: list[str]) -> dict[str, int]:
    """Runs by outcome, of all workers."""
    counts: Counter[str] = Counter()
    for address in addresses:
        for (outcome, *_), number in (
            scrape(address).samples("windlass_jobs_finished_total").items()
        ):
            counts[outcome] += int(number)
    return {outcome: number for outcome, number in counts.items() if number}

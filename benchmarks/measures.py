"""The measures, each on a database of its own.

Rates are jobs a second. A drain is timed from the moment the first jobs have ended until all have,
so that the start of the interpreter does not count.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from benchmarks.stage import (
    await_succeeded,
    cpu_s,
    family,
    fresh_app,
    succeeded,
    worker,
)

DRAIN_JOBS = 20_000
SINGLE_ENQUEUES = 3_000
BULK_JOBS = 50_000
PICK_UPS = 300
IDLE_S = 10.0
IMPORTS = 9


class Figure(msgspec.Struct, frozen=True):
    """One measured number."""

    name: str
    value: float
    unit: str


def enqueue_single(durability: str) -> Iterator[Figure]:
    with fresh_app(durability) as app:
        task = app.tasks["benchmarks.tasks.nothing"]
        task.enqueue(0)
        started = time.perf_counter()
        for number in range(SINGLE_ENQUEUES):
            task.enqueue(number)
        elapsed = time.perf_counter() - started
    yield Figure(f"enqueue one by one, {durability}", SINGLE_ENQUEUES / elapsed, "jobs/s")


def enqueue_bulk(durability: str) -> Iterator[Figure]:
    with fresh_app(durability) as app:
        task = app.tasks["benchmarks.tasks.nothing"]
        started = time.perf_counter()
        task.enqueue_many(task.bind(number) for number in range(BULK_JOBS))
        elapsed = time.perf_counter() - started
    yield Figure(f"enqueue in bulk, {durability}", BULK_JOBS / elapsed, "jobs/s")


def drain(task_name: str, durability: str) -> Iterator[Figure]:
    with fresh_app(durability) as app:
        task = app.tasks[f"benchmarks.tasks.{task_name}"]
        task.enqueue_many(task.bind(number) for number in range(DRAIN_JOBS))
        with worker(processes=1) as process:
            first = await_succeeded(app, 1)
            before, cpu_before = succeeded(app), cpu_s(process)
            last = await_succeeded(app, DRAIN_JOBS)
            cpu = cpu_s(process) - cpu_before
        done = DRAIN_JOBS - before
    kind = "async" if task_name.endswith("async") else "sync"
    yield Figure(f"drain, one child, {kind}, {durability}", done / (last - first), "jobs/s")
    yield Figure(f"worker CPU, {kind}, {durability}", cpu / done * 1e6, "us/job")


def pick_up() -> Iterator[Figure]:
    """From the call of enqueue to the first line of the task, with an idle worker."""
    with fresh_app() as app, worker(processes=1):
        task = app.tasks["benchmarks.tasks.started_at"]
        task.enqueue().result(timeout=30)
        latencies = []
        for _ in range(PICK_UPS):
            time.sleep(random.uniform(0.005, 0.03))
            enqueued_ns = time.time_ns()
            latencies.append((task.enqueue().result(timeout=30) - enqueued_ns) / 1e6)
    cuts = statistics.quantiles(latencies, n=100)
    yield Figure("pick-up p50", statistics.median(latencies), "ms")
    yield Figure("pick-up p99", cuts[98], "ms")


def idle() -> Iterator[Figure]:
    """A worker with one child and nothing to do, against an interpreter that only sleeps."""
    with fresh_app() as app, worker(processes=1) as process:
        app.tasks["benchmarks.tasks.nothing"].enqueue(0).result(timeout=30)
        interpreter = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            time.sleep(1)
            before = cpu_s(process)
            time.sleep(IDLE_S)
            used = cpu_s(process) - before
            memory = sum(member.memory_full_info().pss for member in family(process))
        finally:
            interpreter.kill()
            interpreter.wait()
    yield Figure("idle CPU of a whole worker", used / IDLE_S * 100, "% of a core")
    yield Figure("idle memory of a whole worker", memory / 1e6, "MB")


def import_time() -> Iterator[Figure]:
    code = "import time; t = time.perf_counter(); import windlass; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(IMPORTS)
    ]
    yield Figure("import windlass", statistics.median(runs) * 1000, "ms")


MEASURES: dict[str, Callable[[], Iterator[Figure]]] = {
    "enqueue-single-full": lambda: enqueue_single("full"),
    "enqueue-single-normal": lambda: enqueue_single("normal"),
    "enqueue-bulk-full": lambda: enqueue_bulk("full"),
    "drain-sync-full": lambda: drain("nothing", "full"),
    "drain-async-full": lambda: drain("nothing_async", "full"),
    "drain-sync-normal": lambda: drain("nothing", "normal"),
    "pick-up": pick_up,
    "idle": idle,
    "import": import_time,
}

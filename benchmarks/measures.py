"""The benchmarks, each in a separate stage, and the settings for which each one runs.

Rates are jobs a second. A drain is timed from the moment the first jobs have ended until all have,
so that the start of the interpreter does not count; its worker has one child with ten slots.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from benchmarks.stage import (
    SETTINGS,
    await_succeeded,
    cpu_s,
    family,
    on_stage,
    succeeded,
    worker,
)

#: Large enough to hide the start-up work of a worker, small enough that Redis does not start to
#: rewrite its append-only file.
DRAIN_JOBS: Final = 40_000
STORED_JOBS: Final = 20_000
SINGLE_ENQUEUES: Final = 3_000
BULK_JOBS: Final = 50_000
KEYED_JOBS: Final = 2_000
KEYED_SINGLES: Final = 500
QUEUES: Final = ("first", "second", "third")
PICK_UPS: Final = 300
IDLE_S: Final = 10.0
IMPORTS: Final = 9
#: The setting of benchmarks without an engine.
NO_ENGINE: Final = ""


class Taken(NamedTuple):
    """One measured number."""

    name: str
    value: float
    unit: str


class Measure(NamedTuple):
    take: Callable[[str], Iterator[Taken]]
    settings: tuple[str, ...]


def enqueue_single(setting: str) -> Iterator[Taken]:
    with on_stage(setting) as stage:
        task = stage.app.tasks["benchmarks.tasks.nothing"]
        task.enqueue(0)
        started = time.perf_counter()
        for number in range(SINGLE_ENQUEUES):
            task.enqueue(number)
        elapsed = time.perf_counter() - started
    yield Taken("enqueue one by one", SINGLE_ENQUEUES / elapsed, "jobs/s")


def enqueue_bulk(setting: str) -> Iterator[Taken]:
    with on_stage(setting) as stage:
        task = stage.app.tasks["benchmarks.tasks.nothing"]
        started = time.perf_counter()
        task.enqueue_many(task.bind(number) for number in range(BULK_JOBS))
        elapsed = time.perf_counter() - started
    yield Taken("enqueue in bulk", BULK_JOBS / elapsed, "jobs/s")


def enqueue_keyed(setting: str) -> Iterator[Taken]:
    """Jobs with an idempotency key, in calls of many and one by one, and scheduled ones."""
    with on_stage(setting) as stage:
        task = stage.app.tasks["benchmarks.tasks.nothing"]
        keyed = (task.using(idempotency_key=f"bulk-{at}").bind(at) for at in range(KEYED_JOBS))
        started = time.perf_counter()
        stage.app.enqueue_many(keyed)
        yield Taken("enqueue keyed in bulk", KEYED_JOBS / (time.perf_counter() - started), "jobs/s")
        started = time.perf_counter()
        for number in range(KEYED_SINGLES):
            task.using(idempotency_key=f"single-{number}").enqueue(number)
        elapsed = time.perf_counter() - started
        yield Taken("enqueue keyed one by one", KEYED_SINGLES / elapsed, "jobs/s")
        later = task.using(run_after="1h")
        started = time.perf_counter()
        for number in range(KEYED_SINGLES):
            later.enqueue(number)
        elapsed = time.perf_counter() - started
        yield Taken("enqueue scheduled one by one", KEYED_SINGLES / elapsed, "jobs/s")


def drain_queues(setting: str) -> Iterator[Taken]:
    """Drain several queues with a worker that serves every queue."""
    with on_stage(setting) as stage:
        task = stage.app.tasks["benchmarks.tasks.nothing"]
        tasks = [task.using(queue=name) for name in QUEUES]
        calls = (tasks[number % len(tasks)].bind(number) for number in range(DRAIN_JOBS))
        stage.app.enqueue_many(calls)
        with worker(processes=1):
            first = await_succeeded(stage.app, 1)
            before = succeeded(stage.app)
            last = await_succeeded(stage.app, DRAIN_JOBS)
    yield Taken("drain three queues", (DRAIN_JOBS - before) / (last - first), "jobs/s")


def drain(setting: str, task_name: str, kind: str) -> Iterator[Taken]:
    with on_stage(setting) as stage:
        task = stage.app.tasks[f"benchmarks.tasks.{task_name}"]
        task.enqueue_many(task.bind(number) for number in range(DRAIN_JOBS))
        with worker(processes=1) as process:
            first = await_succeeded(stage.app, 1)
            before = succeeded(stage.app)
            cpu_before, server_before = cpu_s(process), stage.server_cpu_s()
            last = await_succeeded(stage.app, DRAIN_JOBS)
            cpu, server = cpu_s(process) - cpu_before, stage.server_cpu_s() - server_before
        done = DRAIN_JOBS - before
    yield Taken(f"drain, one child, {kind}", done / (last - first), "jobs/s")
    yield Taken(f"worker CPU, {kind}", cpu / done * 1e6, "us/job")
    if server:
        yield Taken(f"server CPU, {kind}", server / done * 1e6, "us/job")


def pick_up(setting: str) -> Iterator[Taken]:
    """From the call of enqueue to the first line of the task, with an idle worker."""
    with on_stage(setting) as stage, worker(processes=1):
        task = stage.app.tasks["benchmarks.tasks.started_at"]
        task.enqueue().result(timeout=30)
        latencies = []
        for _ in range(PICK_UPS):
            time.sleep(random.uniform(0.005, 0.03))
            enqueued_ns = time.time_ns()
            latencies.append((task.enqueue().result(timeout=30) - enqueued_ns) / 1e6)
    cuts = statistics.quantiles(latencies, n=100)
    yield Taken("pick-up p50", statistics.median(latencies), "ms")
    yield Taken("pick-up p99", cuts[98], "ms")


def stored(setting: str) -> Iterator[Taken]:
    """Stored bytes per job: queued, and finished with a stored result."""
    with on_stage(setting) as stage:
        task = stage.app.tasks["benchmarks.tasks.nothing"]
        empty = stage.stored_bytes()
        task.enqueue_many(task.bind(number) for number in range(STORED_JOBS))
        queued = stage.stored_bytes()
        with worker(processes=1):
            await_succeeded(stage.app, STORED_JOBS)
        finished = stage.stored_bytes()
    yield Taken("stored for a queued job", (queued - empty) / STORED_JOBS, "bytes")
    yield Taken("stored for a finished job", (finished - empty) / STORED_JOBS, "bytes")


def idle(setting: str) -> Iterator[Taken]:
    """CPU and memory of an idle worker with one child. A second interpreter sleeps meanwhile, so
    that memory pages shared by all interpreters are not counted for the worker alone."""
    with on_stage(setting) as stage, worker(processes=1) as process:
        stage.app.tasks["benchmarks.tasks.nothing"].enqueue(0).result(timeout=30)
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
    yield Taken("idle CPU of a whole worker", used / IDLE_S * 100, "% of a core")
    yield Taken("idle memory of a whole worker", memory / 1e6, "MB")


def import_time(_setting: str) -> Iterator[Taken]:
    code = "import time; t = time.perf_counter(); import windlass; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(IMPORTS)
    ]
    yield Taken("import windlass", statistics.median(runs) * 1000, "ms")


_ALL: Final = tuple(SETTINGS)
_USUAL: Final = ("sqlite full", "redis everysec", "postgres fsync")

MEASURES: Final[dict[str, Measure]] = {
    "enqueue-single": Measure(enqueue_single, _ALL),
    "enqueue-bulk": Measure(enqueue_bulk, _ALL),
    "enqueue-keyed": Measure(enqueue_keyed, _USUAL),
    "drain-queues": Measure(drain_queues, _USUAL),
    "drain-sync": Measure(lambda setting: drain(setting, "nothing", "sync"), _ALL),
    "drain-async": Measure(lambda setting: drain(setting, "nothing_async", "async"), _USUAL),
    "pick-up": Measure(pick_up, _USUAL),
    "stored": Measure(stored, _USUAL),
    "idle": Measure(idle, _USUAL),
    "import": Measure(import_time, (NO_ENGINE,)),
}

"""The workloads: the same code for all systems, which differ in their adapters only.

A workload gives numbers by the names of `measures`. A drain is timed from the moment when a tenth
of its jobs has run, so that the start of the worker does not count.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from benchmarks.peers.deployment import PROGRESS, START_TIME, Deployment, PeerError, deployed
from benchmarks.peers.limits import limit
from benchmarks.peers.processes import ProcessTree
from benchmarks.peers.subjects import InstalledSystem, PeerWorkload, Taken
from benchmarks.peers.systems import ASYNC, SYNC, System

KILLED_TASKS: Final = 20
KILL_AFTER_S: Final = 0.5
#: Between two jobs, at random: pollers must not fall into step.
GAP_S: Final = (0.005, 0.03)
#: Jobs before those that count.
WARM_UP: Final = 20


def enqueue(subject: InstalledSystem, method: str, measure: str, count: int) -> Taken:
    with (
        deployed(subject.system, subject.installation) as deployment,
        deployment.producer() as producer,
    ):
        task = subject.system.task("noop")
        producer.call(method, task, 100)
        return {measure: count / producer.call(method, task, count)["seconds"]}


def drain(subject: InstalledSystem, task: str, kind: str, processes: int) -> Taken:
    system, count = subject.system, subject.sizes.drain(subject.system)
    with deployed(system, subject.installation) as deployment:
        deployment.fill(system.task(task, kind), count)
        with deployment.workers(processes, kind) as workers:
            name = kind if task == "noop" else task
            return _timed_drain(deployment, workers, count, f"{name}-{processes}")


def _timed_drain(deployment: Deployment, workers: ProcessTree, count: int, name: str) -> Taken:
    began = deployment.await_marks(count // 10, workers)
    done_before, cpu_before = deployment.marks(), deployment.cpu_s(workers)
    elapsed = deployment.await_marks(count, workers) - began
    done, cpu = count - done_before, deployment.cpu_s(workers) - cpu_before
    return {f"drain-{name}": done / elapsed, f"cpu-{name}": cpu / done * 1e6}


def pick_up(subject: InstalledSystem) -> Taken:
    """From the call of enqueue to the first line of the task, with an idle worker."""
    with deployed(subject.system, subject.installation) as deployment:
        with deployment.producer() as producer, deployment.workers() as workers:
            called = []
            for number in range(subject.sizes.pick_ups + WARM_UP):
                called.append(producer.call("single", "start_time")["at_ns"])
                deployment.await_marks(number + 1, workers, START_TIME)
                time.sleep(random.uniform(*GAP_S))
        started = map(int, deployment.read_marks())
        delays = [(start - call) / 1e6 for call, start in zip(called, started, strict=True)]
    cuts = statistics.quantiles(delays[WARM_UP:], n=100)
    return {"pick-up-p50": statistics.median(delays[WARM_UP:]), "pick-up-p99": cuts[98]}


def stored(subject: InstalledSystem) -> Taken:
    """Per queued job, with three short arguments, and with a text of 105 characters among them."""
    return {
        "stored": _stored_bytes(subject, "three"),
        "stored-long": _stored_bytes(subject, "three_long"),
    }


def _stored_bytes(subject: InstalledSystem, task: str) -> float:
    count = subject.sizes.stored
    method = "bulk" if subject.system.has_bulk else "single"
    with (
        deployed(subject.system, subject.installation) as deployment,
        deployment.producer() as producer,
    ):
        producer.call(method, task, 100)
        before = deployment.store.stored_bytes()
        producer.call(method, task, count)
        return (deployment.store.stored_bytes() - before) / count


def idle(subject: InstalledSystem) -> Taken:
    """A worker with one process that ran one job, and has none left."""
    with deployed(subject.system, subject.installation) as deployment:
        deployment.fill("start_time", 1)
        with deployment.workers() as workers:
            deployment.await_marks(1, workers, START_TIME)
            time.sleep(2)
            before = workers.cpu_s()
            time.sleep(subject.sizes.idle_s)
            used = workers.cpu_s() - before
            memory = workers.memory_bytes() / 1e6
    return {"idle-cpu": used / subject.sizes.idle_s * 100, "idle-memory": memory}


def import_time(subject: InstalledSystem) -> Taken:
    command = subject.installation.fill(IMPORTS[subject.system.language](subject.system.imports))
    return {"import": statistics.median(_seconds(command, subject)) * 1000}


def _seconds(command: list[str], subject: InstalledSystem) -> Iterator[float]:
    for _ in range(subject.sizes.imports):
        variables = {**os.environ, **subject.installation.variables}
        done = subprocess.run(command, capture_output=True, check=True, env=variables)
        yield float(done.stdout)


def _import_python(statement: str) -> list[str]:
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    return ["{python}", "-c", code]


def _import_node(name: str) -> list[str]:
    code = f"const t = process.hrtime.bigint(); require('{name}'); "
    return ["node", "-e", code + "console.log(Number(process.hrtime.bigint() - t) / 1e9)"]


def _import_ruby(name: str) -> list[str]:
    clock = "Process.clock_gettime(Process::CLOCK_MONOTONIC)"
    return ["ruby", "-e", f"t = {clock}; require '{name}'; puts {clock} - t"]


IMPORTS: Final[dict[str, Callable[[str], list[str]]]] = {
    "Python": _import_python,
    "JavaScript": _import_node,
    "Ruby": _import_ruby,
}


def recovery(subject: InstalledSystem) -> Taken:
    """Kill a worker in the middle of its tasks, start another, and count what has not ended."""
    with deployed(subject.system, subject.installation) as deployment:
        deployment.fill("second", KILLED_TASKS)
        with deployment.workers() as first:
            deployment.await_marks(1, first, PROGRESS)
            time.sleep(KILL_AFTER_S)
            first.kill()
        with deployment.workers() as second:
            return _await_ends(deployment, second, subject.sizes.recovery_s)


def _await_ends(deployment: Deployment, workers: ProcessTree, timeout_s: float) -> Taken:
    began = time.monotonic()
    while (left := KILLED_TASKS - _ended(deployment)) and time.monotonic() - began < timeout_s:
        if not workers.is_running:
            raise PeerError(f"the second worker ended; {deployment.log_end()}")
        time.sleep(0.1)
    elapsed = time.monotonic() - began
    return {"unfinished": left} if left else {"unfinished": 0, "recovery": elapsed}


def _ended(deployment: Deployment) -> int:
    return len({line for line in deployment.read_marks() if line.startswith("e")})


def _has_kind(kind: str) -> Callable[[System], bool]:
    return lambda system: kind in system.kinds


def _drains() -> Iterator[tuple[str, PeerWorkload]]:
    for processes in (1, 2):
        for kind in (SYNC, ASYNC):
            take = partial(drain, task="noop", kind=kind, processes=processes)
            yield f"drain-{kind}-{processes}", PeerWorkload(take, _has_kind(kind))
        take = partial(_drain_io, processes=processes)
        yield f"drain-io-{processes}", PeerWorkload(take)


def _drain_io(subject: InstalledSystem, processes: int) -> Taken:
    """With coroutines, where a system has them: more tasks wait at the same time."""
    kind = ASYNC if ASYNC in subject.system.kinds else SYNC
    return drain(subject, "io", kind, processes)


def _single(subject: InstalledSystem) -> Taken:
    return enqueue(subject, "single", "enqueue", subject.sizes.single)


def _bulk(subject: InstalledSystem) -> Taken:
    return enqueue(subject, "bulk", "bulk", subject.sizes.bulk)


def _concurrent(subject: InstalledSystem) -> Taken:
    return enqueue(subject, "concurrent", "concurrent", subject.sizes.concurrent)


WORKLOADS: Final[dict[str, PeerWorkload]] = {
    "enqueue": PeerWorkload(_single),
    "bulk": PeerWorkload(_bulk, lambda system: system.has_bulk),
    "limit": PeerWorkload(limit, lambda system: system.is_ours and not system.is_on_postgres),
    "concurrent": PeerWorkload(_concurrent, lambda system: system.has_concurrent),
    **dict(_drains()),
    "pick-up": PeerWorkload(pick_up),
    "stored": PeerWorkload(stored, most_rounds=3),
    "idle": PeerWorkload(idle, most_rounds=3),
    "import": PeerWorkload(import_time, most_rounds=3),
    "recovery": PeerWorkload(recovery, most_rounds=3, is_parallel=True),
}

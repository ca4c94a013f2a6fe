"""A place to measure in: a fresh database in a folder of its own, and a worker on it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from windlass import State, Windlass

ROOT = Path(__file__).parent.parent


@contextmanager
def fresh_app(durability: str = "full") -> Iterator[Windlass]:
    """The app of `benchmarks.tasks` on a database of its own."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        os.environ["WINDLASS_URL"] = f"sqlite:///{folder}/bench.db?durability={durability}"
        sys.modules.pop("benchmarks.tasks", None)
        app: Windlass = importlib.import_module("benchmarks.tasks").app
        with app:
            yield app


@contextmanager
def worker(processes: int = 1, slots: int = 10) -> Iterator[psutil.Process]:
    """A worker on the current database; it is told to stop at the end."""
    command = [sys.executable, "-m", "windlass", "worker", "benchmarks.tasks:app"]
    process = subprocess.Popen(
        [*command, "-p", str(processes), "-c", str(slots)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a worker and its children, in seconds."""
    times = [member.cpu_times() for member in family(process)]
    return sum(time_.user + time_.system for time_ in times)


def succeeded(app: Windlass) -> int:
    counts = app.engine.stats().queues.values()
    return sum(count.get(State.SUCCEEDED, 0) for count in counts)


def await_succeeded(app: Windlass, number: int, timeout_s: float = 120) -> float:
    """The moment, on the monotonic clock, at which so many jobs had succeeded."""
    deadline = time.monotonic() + timeout_s
    while succeeded(app) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{succeeded(app)} of {number} jobs after {timeout_s} s")
        time.sleep(0.01)
    return time.monotonic()

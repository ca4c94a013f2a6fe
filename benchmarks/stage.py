"""Places to measure in: a fresh database or server in a folder of its own, and a worker on it.

A setting is an engine and how careful it is: `sqlite full`, `redis everysec` and so on. Each one is
a `Stage`: it gives the app of `benchmarks.tasks`, and knows how much it stores and, where there is
a server, how much of a processor that has used.
"""

from __future__ import annotations

import compileall
import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw
import psutil

from tests.redis_server import RedisServer
from windlass import State, Windlass

ROOT: Final = Path(__file__).parent.parent
#: How often to look whether jobs have ended, in seconds: seldom enough to cost next to nothing.
LOOK_S: Final = 0.01


def compile_sources() -> None:
    """Let what is measured run from bytecode, as an installed package does. Sources that were
    changed are otherwise compiled by every process that is started, where the environment forbids
    to write bytecode."""
    compileall.compile_dir(ROOT / "src", quiet=1)


class Stage(ABC):
    """One engine with nothing in it, and an app on it."""

    url: str
    app: Windlass

    @abstractmethod
    def stored_bytes(self) -> int:
        """What is stored now, whatever it is."""

    def server_cpu_s(self) -> float:
        """What a server of its own has used; an embedded engine has none."""
        return 0.0

    @abstractmethod
    def close(self) -> None: ...


class SQLiteStage(Stage):
    def __init__(self, durability: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="windlass-bench-")
        self._path = f"{self._folder.name}/bench.db"
        self.url = f"sqlite:///{self._path}?durability={durability}"

    def stored_bytes(self) -> int:
        self.app.engine.migrate()
        connection = apsw.Connection(self._path)
        used = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
        size = used * int(connection.pragma("page_size"))
        connection.close()
        return size

    def close(self) -> None:
        self._folder.cleanup()


class RedisStage(Stage):
    def __init__(self, fsync: str) -> None:
        self._server = RedisServer("--appendfsync", fsync)
        # By no user in particular: to check rights at every step would be measured too.
        self.url = f"redis://127.0.0.1:{self._server.port}/0?namespace=bench"

    def stored_bytes(self) -> int:
        self.app.engine.migrate()
        return int(self._info("memory", "used_memory"))

    def server_cpu_s(self) -> float:
        return float(self._info("cpu", "used_cpu_user")) + float(self._info("cpu", "used_cpu_sys"))

    def close(self) -> None:
        self._server.end()

    def _info(self, part: str, field: str) -> str:
        (value,) = re.findall(
            rf"^{field}:(\S+)", self._server.tell("INFO", part).decode(), re.MULTILINE
        )
        return str(value)


#: In the order in which they are shown.
SETTINGS: Final[dict[str, Callable[[], Stage]]] = {
    "sqlite full": lambda: SQLiteStage("full"),
    "sqlite normal": lambda: SQLiteStage("normal"),
    "redis everysec": lambda: RedisStage("everysec"),
    "redis always": lambda: RedisStage("always"),
}


@contextmanager
def on_stage(setting: str) -> Iterator[Stage]:
    """A stage of its own, gone at the end; workers started meanwhile are on it too."""
    stage = SETTINGS[setting]()
    try:
        os.environ["WINDLASS_URL"] = stage.url
        sys.modules.pop("benchmarks.tasks", None)
        stage.app = importlib.import_module("benchmarks.tasks").app
        with stage.app:
            yield stage
    finally:
        stage.close()


@contextmanager
def worker(processes: int = 1, slots: int = 10) -> Iterator[psutil.Process]:
    """A worker on the current stage; it is told to stop at the end."""
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
        time.sleep(LOOK_S)
    return time.monotonic()

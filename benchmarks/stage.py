"""Benchmark stages: a new database or server in a separate folder, and a worker on it.

A setting is an engine with its durability: `sqlite full`, `redis everysec` and so on. Each one is
a `Stage`: it has the app of `benchmarks.tasks`, and reports stored bytes and, if there is a
server, the CPU time of the server.
"""

from __future__ import annotations

import compileall
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw
import psutil

from tests.postgres_server import OWNER, PostgresServer, find_program
from tests.redis_server import RedisServer
from windlass import State, Windlass

ROOT: Final = Path(__file__).parent.parent
#: The polling interval for finished jobs, in seconds: long enough to cost almost nothing.
LOOK_S: Final = 0.01


def compile_sources() -> None:
    """Compile the sources, so that benchmarks run from bytecode like an installed package.

    Otherwise every started process would compile changed sources, if the environment forbids
    writing bytecode."""
    compileall.compile_dir(ROOT / "src", quiet=1)


class Stage(ABC):
    """One empty engine, and an app on it."""

    url: str
    app: Windlass

    @abstractmethod
    def stored_bytes(self) -> int:
        """The number of bytes stored now."""

    def server_cpu_s(self) -> float:
        """The CPU time of the server; None for an embedded engine."""
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
        # Without a Redis user: otherwise the check of rights would be measured too.
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


class PostgresStage(Stage):
    """A server with its own settings for durability: a commit is on the disk."""

    def __init__(self) -> None:
        self._server = PostgresServer(fsync=True, autovacuum="on", shared_buffers="128MB")
        self._database = self._server.new_database()
        self.url = self._server.url(self._database, user=OWNER)

    def stored_bytes(self) -> int:
        self.app.engine.migrate()
        return self.app.engine.space().used

    def server_cpu_s(self) -> float:
        return cpu_s(psutil.Process(self._server.pid))

    def close(self) -> None:
        self._server.end()


#: In the order in which they are shown.
SETTINGS: Final[dict[str, Callable[[], Stage]]] = {
    "sqlite full": lambda: SQLiteStage("full"),
    "sqlite normal": lambda: SQLiteStage("normal"),
    "redis everysec": lambda: RedisStage("everysec"),
    "redis always": lambda: RedisStage("always"),
    "postgres fsync": PostgresStage,
}


def can_measure(setting: str) -> bool:
    """Whether the server of a setting is installed."""
    if setting.startswith("redis"):
        return shutil.which("redis-server") is not None
    if setting.startswith("postgres"):
        with suppress(FileNotFoundError):
            return bool(find_program("postgres"))
        return False
    return True


@contextmanager
def on_stage(setting: str) -> Iterator[Stage]:
    """A temporary stage; workers started meanwhile use it too."""
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
    """A worker on the current stage, stopped at the end."""
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
    """The monotonic time at which `number` jobs had succeeded."""
    deadline = time.monotonic() + timeout_s
    while succeeded(app) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{succeeded(app)} of {number} jobs after {timeout_s} s")
        time.sleep(LOOK_S)
    return time.monotonic()

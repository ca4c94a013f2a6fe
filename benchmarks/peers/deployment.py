"""One system in operation: an empty store, a file of marks, a producer and workers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.environments import ROOT, Installation
from benchmarks.peers.processes import ProcessTree
from benchmarks.peers.stores import STORES, Store
from benchmarks.peers.systems import System

#: The polling interval for marks, in seconds: one system call each.
LOOK_S: Final = 0.001
#: The lengths of the lines that tasks write.
RAN: Final = len(".\n")
START_TIME: Final = len("00000000000000000000\n")
PROGRESS: Final = len("b000\n")


class PeerError(Exception):
    """A system did not do what a workload asked for."""


class ProducerProcess:
    """A program that enqueues on request; see `adapters/protocol.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read()

    def call(self, method: str, task: str, count: int = 1) -> dict[str, Any]:
        assert self._process.stdin
        request = {"do": method, "task": task, "count": count}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": "the producer ended"}
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply


class Deployment:
    """A system with an empty store, in which producers and workers can be started."""

    def __init__(self, system: System, installation: Installation) -> None:
        self.system = system
        self.store: Store = STORES[system.store]()
        self._installation = installation
        self._folder = tempfile.TemporaryDirectory(prefix="peers-")
        self._marks = Path(self._folder.name) / "marks"
        self._log = Path(self._folder.name) / "log"
        self._marks.touch()
        self.url = self.store.url_for(system.environment)
        self._prepare()

    def _prepare(self) -> None:
        """Make the tables of systems that do not make them by themselves."""
        if self.system.prepare:
            self._run([part.replace("{url}", self.url) for part in self.system.prepare])

    def _run(self, command: list[str]) -> None:
        subprocess.run(
            self._installation.fill(command),
            check=True,
            capture_output=True,
            cwd=ROOT,
            env=self._variables(),
        )

    def _variables(self) -> dict[str, str]:
        own = {"PEER_URL": self.url, "PEER_MARKS": str(self._marks), "PYTHONPATH": str(ROOT)}
        if self.system.environment == "pgqueuer":
            own["PGDSN"] = self.url
        return {**os.environ, **own, **self._installation.variables}

    @contextmanager
    def producer(self, url: str = "") -> Iterator[ProducerProcess]:
        """A running producer. Another url leads through a proxy."""
        command = self._installation.fill(list(self.system.producer))
        variables = {**self._variables(), **({"PEER_URL": url} if url else {})}
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=variables,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            yield ProducerProcess(process)
        except PeerError as error:
            error.add_note(self.log_end())
            raise
        finally:
            process.kill()
            process.communicate()

    def fill(self, task: str, count: int) -> None:
        """Enqueue jobs, before anything is measured."""
        with self.producer() as producer:
            producer.call("bulk" if self.system.has_bulk else "single", task, count)

    @contextmanager
    def workers(self, processes: int = 1, kind: str = "") -> Iterator[ProcessTree]:
        """Running workers, killed at the end: the store is not used again."""
        tree = self.start_workers(processes, kind)
        try:
            yield tree
        finally:
            tree.kill()

    def start_workers(self, processes: int = 1, kind: str = "") -> ProcessTree:
        commands = map(self._installation.fill, self.system.worker_commands(processes, kind))
        with self._log.open("ab") as log:
            return ProcessTree(commands, self._variables(), ROOT, log)

    def marks(self, length: int = RAN) -> int:
        """How many lines tasks have written."""
        return self._marks.stat().st_size // length

    def await_marks(
        self, count: int, workers: ProcessTree, length: int = RAN, timeout_s: float = 120
    ) -> float:
        """The monotonic time at which tasks had written `count` lines."""
        deadline = time.monotonic() + timeout_s
        while self.marks(length) < count:
            if time.monotonic() > deadline or not workers.is_running:
                state = (
                    f"{self.marks(length)} of {count} tasks ran, then the time or the worker ended"
                )
                raise PeerError(f"{state}; {self.log_end()}")
            time.sleep(LOOK_S)
        return time.monotonic()

    def read_marks(self) -> list[str]:
        return self._marks.read_text().split()

    def log_end(self) -> str:
        lines = (
            self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        )
        return (
            f"the log ends with: {' / '.join(lines[-3:])[-300:]}" if lines else "the log is empty"
        )

    def cpu_s(self, workers: ProcessTree) -> float:
        return workers.cpu_s() + self.store.cpu_s()

    def close(self) -> None:
        self.store.close()
        self._folder.cleanup()


@contextmanager
def deployed(system: System, installation: Installation) -> Iterator[Deployment]:
    deployment = Deployment(system, installation)
    try:
        yield deployment
    finally:
        deployment.close()

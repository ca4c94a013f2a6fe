"""The yard in which tests run real workers: an app, a ledger, and processes to start and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from tests.worker.apps.scripted import LEDGER, TRAP, Script
from windlass.app import Windlass
from windlass.core.states import State
from windlass.engine.contract import JobRecord
from windlass.job import Job
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.scale_policy import SCALE_PERIODS, ScalePeriods

PROJECT = Path(__file__).parent.parent.parent
#: Long enough for a loaded machine; nothing waits for it unless something is broken.
DEADLINE_S = 20.0

T = TypeVar("T")

_SERVE = """
import sys, msgspec
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.scale_policy import ScalePeriods
from windlass.worker.supervisor.supervisor import Supervisor
options = msgspec.json.decode(sys.argv[1], type=WorkerOptions)
periods = msgspec.json.decode(sys.argv[2], type=ScalePeriods)
sys.exit(Supervisor(options, periods).run())
"""


def until(find: Callable[[], T], what: str, seconds: float = DEADLINE_S) -> T:
    """Wait for something to be true, and give it."""
    end = time.monotonic() + seconds
    while not (found := find()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.005)
    return found


class LedgerLine(NamedTuple):
    """A line of the ledger about a job."""

    event: str
    label: str
    attempt: int
    pid: int


class Worker:
    """A worker in a process group of its own."""

    def __init__(
        self,
        options: WorkerOptions,
        environment: dict[str, str],
        log: Path,
        within: Sequence[str] = (),
        periods: ScalePeriods = SCALE_PERIODS,
    ) -> None:
        self._log = log
        self.options = options
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *within,
                    *(sys.executable, "-c", _SERVE),
                    *(msgspec.json.encode(argument).decode() for argument in (options, periods)),
                ],
                cwd=PROJECT,
                env={**os.environ, **environment},
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self._log.read_text()

    def await_log(self, text: str) -> None:
        until(lambda: text in self.log(), f"{text!r} in the log:\n{self.log()}")

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = DEADLINE_S) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def destroy(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Yard:
    """One test's app, ledger and workers."""

    def __init__(
        self,
        folder: Path,
        lease: str,
        grace: str,
        max_crashes: int,
        url: str | None = None,
        kill_after: str = "5s",
    ) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.trap = folder / "trap"
        self.ledger.touch()
        url = url or f"sqlite:///{folder / 'jobs.db'}"
        self._environment = {
            "WINDLASS_URL": url,
            "WINDLASS_LEASE": lease,
            "WINDLASS_SHUTDOWN_GRACE": grace,
            "WINDLASS_MAX_CRASHES": str(max_crashes),
            "WINDLASS_KILL_AFTER": kill_after,
            LEDGER: str(self.ledger),
            TRAP: str(self.trap),
        }
        self.app = Windlass(url, lease=lease, enqueue_timeout=2)
        self.script = Script(self.app)
        self.workers: list[Worker] = []

    def start(
        self,
        *,
        app: str = "tests.worker.apps.scripted:app",
        queues: Sequence[str] = (),
        processes: int = 1,
        most_processes: int | None = None,
        periods: ScalePeriods = SCALE_PERIODS,
        slots: int = 4,
        url: str | None = None,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        burst: bool = False,
        labels: Sequence[str] = (),
        log_level: str | None = None,
        metrics: str | None = None,
        environment: dict[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> Worker:
        """Start a worker. `within` is a command that runs its remaining arguments."""
        options = WorkerOptions(
            app,
            tuple(queues),
            processes,
            slots,
            url,
            max_jobs=max_jobs,
            max_memory=max_memory,
            burst=burst,
            labels=tuple(labels),
            log_level=log_level,
            metrics=metrics,
            most_processes=most_processes,
        )
        log = self.folder / f"worker-{len(self.workers)}.log"
        environment = {**self._environment, **(environment or {})}
        worker = Worker(options, environment, log, within, periods)
        self.workers.append(worker)
        return worker

    # ------------------------------------------------------------------------------------ jobs

    def plain(self, label: str, *steps: str) -> Job[str]:
        return self.script.plain.enqueue(label, list(steps))

    def coroutine(self, label: str, *steps: str) -> Job[str]:
        return self.script.coroutine.enqueue(label, list(steps))

    def process(self, label: str, *steps: str) -> Job[str]:
        return self.script.process.enqueue(label, list(steps))

    def record(self, job: Job[str] | str) -> JobRecord:
        [record] = self.app.engine.get([job if isinstance(job, str) else job.id])
        assert record is not None
        return record

    def await_state(self, job: Job[str] | str, state: State) -> JobRecord:
        until(lambda: self.record(job).state is state, f"{state} of {job}: {self.record(job)}")
        return self.record(job)

    def count(self, state: State) -> int:
        return sum(counts.get(state, 0) for counts in self.app.engine.stats().queues.values())

    def await_count(self, state: State, number: int, seconds: float = DEADLINE_S) -> None:
        until(lambda: self.count(state) == number, f"{number} {state}", seconds)

    # ---------------------------------------------------------------------------------- ledger

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    def events(self, event: str, label: str | None = None) -> list[LedgerLine]:
        parts = [line.split() for line in self.lines() if line.startswith(f"{event} ")]
        lines = [
            LedgerLine(kind, name, int(attempt), int(pid)) for kind, name, attempt, pid in parts
        ]
        return [line for line in lines if label in (None, line.label)]

    def await_start(self, label: str, number: int = 1) -> LedgerLine:
        """The given start of a job, the first being 1."""
        until(lambda: len(self.events("start", label)) >= number, f"start {number} of {label}")
        return self.events("start", label)[number - 1]

    # ------------------------------------------------------------------------------------- end

    def close(self) -> None:
        for worker in self.workers:
            worker.destroy()
        problems = self.app.engine.check()
        self.app.close()
        assert problems == []

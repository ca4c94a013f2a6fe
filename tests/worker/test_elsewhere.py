"""A worker without features of Linux: no prctl, no memfd_create, no /proc."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.yard import Worker, Yard, until
from windlass import State

LINE = "without what Linux alone has"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """What a worker asks of the system does not depend on the engine."""
    yard = Yard(tmp_path, lease="2s", grace="10s", max_crashes=3)
    yield yard
    yard.close()


@pytest.fixture
def worker(yard: Yard) -> Worker:
    worker = yard.start(
        environment={"PYTHONPATH": str(Path(__file__).parent / "without_linux")},
        max_memory=10 * 2**30,
    )
    worker.await_log("ready: ")
    return worker


def test_it_runs_jobs_and_stops(yard: Yard, worker: Worker) -> None:
    jobs = [yard.plain("a"), yard.coroutine("b"), yard.process("c")]
    for job in jobs:
        yard.await_state(job, State.SUCCEEDED)
    assert worker.log().count(LINE) == 3, "the supervisor, a shared child and one for the process"
    assert worker.stop() == 0
    assert "retrying" not in worker.log()


def test_children_end_with_a_supervisor_that_was_killed(yard: Yard, worker: Worker) -> None:
    job = yard.plain("a", f"await:{yard.folder / 'gate'}")
    yard.await_start("a")
    [child] = worker.children()
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not is_alive(child), "the end of the child")
    (yard.folder / "gate").touch()
    yard.start().await_log("ready: ")
    assert yard.await_state(job, State.SUCCEEDED).counters.losses == 1


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != b"Z"

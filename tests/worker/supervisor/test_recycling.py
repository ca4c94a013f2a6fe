"""Recycling of children: in whole workers, and the choice of the child alone."""

from __future__ import annotations

import os
import subprocess
import time
from logging import WARNING
from pathlib import Path
from typing import cast

import pytest

from tests.worker.apps.slow_start import IMPORT_S
from tests.worker.conftest import MakeYard
from tests.worker.yard import Worker, Yard, until
from windlass.core.states import State
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.child_health import Recycling
from windlass.worker.supervisor.child_process import (
    LEAST_SHARE,
    ChildProcess,
    _ask_memory_of,
    memory_of,
)
from windlass.worker.supervisor.retirement import Retirements

MB = 1_000_000

# -------------------------------------------------------------------------------- whole workers


@pytest.mark.local
def test_after_so_many_jobs_a_child_is_replaced_without_a_gap(yard: Yard) -> None:
    worker = yard.start(app="tests.worker.apps.slow_start:app", slots=2, max_jobs=20)
    yard.plain("first")
    yard.await_start("first")
    jobs, longest_s = serve_until_replaced(yard)
    yard.await_count(State.SUCCEEDED, jobs + 1)
    assert longest_s < IMPORT_S
    starts = [line.label for line in yard.events("start")]
    assert len(starts) == len(set(starts)) == jobs + 1
    assert "retires: it has ended " in worker.log()
    until(lambda: shared_memories(worker) == 1, "the memory of the first child to be freed")
    assert worker.stop() == 0
    assert "handing back" not in worker.log()


def shared_memories(worker: Worker) -> int:
    """How many children the supervisor shares memory with."""
    found = (os.path.realpath(file) for file in Path(f"/proc/{worker.pid}/fd").iterdir())
    return sum("windlass-slots" in name for name in found)


def serve_until_replaced(yard: Yard) -> tuple[int, float]:
    """How many jobs that took, and the longest time without a start or an end of one."""
    jobs = seen = 0
    longest_s, came_at = 0.0, time.monotonic()
    while len({line.pid for line in yard.events("start")}) < 2:
        if 2 * jobs - seen < 20:
            jobs += 1
            yard.plain(f"job{jobs}", "sleep:0.01")
        now, lines = time.monotonic(), len(yard.lines())
        if lines > seen:
            longest_s, seen, came_at = max(longest_s, now - came_at), lines, now
        time.sleep(0.002)  # or the worker would be short of time
    return jobs, longest_s


@pytest.mark.local
def test_a_child_that_has_grown_is_replaced_and_finishes_its_jobs_first(
    make_yard: MakeYard,
) -> None:
    yard = make_yard(grace="100ms")  # which is none of its business
    gate = yard.folder / "gate"
    worker = yard.start(max_memory=200 * MB)
    glutton = yard.plain("glutton", "hoard:250", f"await:{gate}")
    first = yard.await_start("glutton").pid
    worker.await_log(f"child {first} retires: it uses ")
    until(lambda: len(worker.children()) == 2, "the replacement")
    second = next(pid for pid in worker.children() if pid != first)
    until(lambda: run_other(yard) == second, "jobs that run in it")
    gate.touch()
    assert glutton.result(timeout=20) == "glutton done"
    until(lambda: worker.children() == [second], "the end of the old one")
    assert len(yard.events("start", "glutton")) == 1
    assert yard.record(glutton).counters.interruptions == 0


def run_other(yard: Yard) -> int:
    """The process in which another job has run."""
    yard.await_state(yard.plain("other"), State.SUCCEEDED)
    return yard.events("start", "other")[-1].pid


# ------------------------------------------------------------------------------ the choice alone


class Table:
    def __init__(self) -> None:
        self.jobs = 0
        self.running: list[str] = []

    def ended(self) -> int:
        return self.jobs

    def occupied(self) -> list[str]:
        return self.running


class Wooden:
    """As much of a child as is looked at."""

    def __init__(self, pid: int, *, age_s: float = 0.0) -> None:
        self.pid = pid
        self.session = "some"
        self.share = 1.0
        self.is_retiring = self.is_leaving = False
        self.started_at = time.monotonic() - age_s
        self.table = Table()
        self.bytes: int | None = 0

    def memory(self) -> int | None:
        return self.bytes


class Retired:
    """Notes who is to be replaced."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.reasons: dict[int, str] = {}

    def are_waiting(self) -> bool:
        return bool(self.waiting)

    def retire(self, child: Wooden, why: str, *, is_patient: bool) -> None:
        assert is_patient
        child.is_retiring = True
        self.waiting.append(child.pid)
        self.reasons[child.pid] = why


class Office:
    def __init__(
        self,
        *,
        processes: int = 2,
        max_jobs: int | None = None,
        max_age_ms: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        options = WorkerOptions(
            "app",
            processes=processes,
            max_jobs=max_jobs,
            max_age_ms=max_age_ms,
            max_memory=max_memory,
        )
        self.retired = Retired()
        self._recycling = Recycling(options, cast(Retirements, self.retired))

    def look(self, *children: Wooden) -> list[int]:
        self._recycling.look([cast(ChildProcess, child) for child in children])
        return list(self.retired.reasons)


def test_without_limits_nobody_is_replaced() -> None:
    child = Wooden(1, age_s=1e6)
    child.table.jobs, child.bytes = 10**9, 10**12
    assert Office().look(child) == []


def test_the_share_of_a_child_counts_for_jobs_and_age() -> None:
    young, old, busy = Wooden(1, age_s=8.9), Wooden(2, age_s=9.1), Wooden(3)
    young.share = old.share = busy.share = LEAST_SHARE
    busy.table.jobs = 90
    assert Office(max_age_ms=10_000).look(young, old) == [2]
    assert Office(max_jobs=100).look(young, busy) == [3]


def test_they_go_one_after_another() -> None:
    office = Office(processes=2, max_age_ms=1_000)
    children = [Wooden(pid, age_s=5) for pid in (1, 2, 3)]
    assert office.look(*children) == [1]
    assert office.look(*children) == [1], "the first one's replacement is not ready"
    office.retired.waiting.clear()
    assert office.look(*children) == [1, 2]
    office.retired.waiting.clear()
    assert office.look(*children) == [1, 2], "as many are retiring as there are processes"
    assert office.look(*children[1:]) == [1, 2, 3]


def test_a_child_that_has_not_begun_is_let_alone() -> None:
    child = Wooden(1, age_s=5)
    child.session = ""
    assert Office(max_age_ms=1_000).look(child) == []


def test_a_child_that_leaves_is_not_recycled() -> None:
    child = Wooden(1, age_s=5)
    child.is_leaving = True
    assert Office(max_age_ms=1_000).look(child) == []


def test_memory_counts_once_a_job_was_there(caplog: pytest.LogCaptureFixture) -> None:
    office, child = Office(max_memory=100 * MB), Wooden(1)
    child.bytes = 101 * MB
    with caplog.at_level(WARNING, "windlass.worker"):
        assert office.look(child) == office.look(child) == []
    [record] = caplog.records
    assert "uses 101 MB of memory before its first job, more than its limit of 100 MB" in (
        record.getMessage()
    )
    child.table.running.append("job")
    assert office.look(child) == [1]
    assert office.retired.reasons[1] == "it uses 101 MB of memory"


def test_memory_that_nobody_knows_is_no_reason() -> None:
    child = Wooden(1)
    child.bytes, child.table.jobs = None, 1
    assert Office(max_memory=1).look(child) == []


def test_the_memory_of_a_process_is_known() -> None:
    block = b"x" * (50 * MB)
    mine, asked = memory_of(os.getpid()), _ask_memory_of(os.getpid())
    assert mine is not None
    assert mine > len(block)
    assert asked is not None
    assert 0.7 < asked / mine < 1.3


def test_of_a_process_that_is_gone_it_is_not() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert memory_of(process.pid) is None
    assert _ask_memory_of(process.pid) is None

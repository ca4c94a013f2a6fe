"""100,000 jobs, where every tenth fails while it holds a megabyte: no process grows.

On each engine, with one child; half of the jobs are plain functions and half are coroutines. The
proof compares the resident set after the first 10,000 jobs with the one at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.burdened import FAILING, declare
from tests.contract.variants import fresh_url
from tests.worker.yard import Worker, Yard, until
from windlass import State
from windlass.worker.supervisor.child_process import memory_of

JOBS: Final = 100_000
WARM: Final = 10_000
MB: Final = 1024 * 1024
CHILD_BYTES: Final = 20 * MB
SUPERVISOR_BYTES: Final = 1 * MB
#: The time limit per engine, in seconds.
DEADLINE_S: Final = 900.0


def prove(folder: Path) -> Iterator[str]:
    for engine in ("sqlite-file", "redis", "redis-4", "postgres"):
        place = folder / engine
        place.mkdir()
        yield f"{engine}: {prove_on(fresh_url(engine, place), place)}"


def prove_on(url: str, folder: Path) -> str:
    with closing(Yard(folder, lease="30s", grace="10s", max_crashes=3, url=url)) as yard:
        enqueue(yard)
        worker = yard.start(app="proofs.burdened:app", slots=10)
        await_ended(yard, WARM)
        [child] = worker.children()
        before = memory(worker)
        await_ended(yard, JOBS)
        after = memory(worker)
        assert worker.children() == [child], "the child was replaced"
        assert yard.count(State.DEAD) == JOBS // FAILING
        grown = [late - early for early, late in zip(before, after, strict=True)]
        told = ", ".join(
            f"{name} {early / MB:.1f} MB and {late / MB:.1f} MB"
            for name, early, late in zip(("supervisor", "child"), before, after, strict=True)
        )
        assert grown[0] <= SUPERVISOR_BYTES, told
        assert grown[1] <= CHILD_BYTES, told
        return f"{JOBS} jobs, {yard.count(State.DEAD)} failed; {told}"


def enqueue(yard: Yard) -> None:
    for task, first in zip(declare(yard.app), (0, JOBS // 2), strict=True):
        numbers = range(first, first + JOBS // 2)
        for start in range(0, len(numbers), 5_000):
            task.enqueue_many(task.bind(number) for number in numbers[start : start + 5_000])


def await_ended(yard: Yard, number: int) -> None:
    def ended() -> bool:
        return yard.count(State.SUCCEEDED) + yard.count(State.DEAD) >= number

    until(ended, f"{number} jobs ended", seconds=DEADLINE_S)


def memory(worker: Worker) -> tuple[int, int]:
    """The resident set of the supervisor and its child."""
    [child] = worker.children()
    found = [memory_of(pid) for pid in (worker.pid, child)]
    return found[0] or 0, found[1] or 0

"""Many time-outs of each kind of stuck job: every job fails as expected, and no slot is lost.

On two engines. One worker with one child of 4 slots; time-outs of 200 ms, killed 200 ms later. For
every stuck job there is a harmless one. After each kind, as many jobs as there are slots run at
once, and the worker has as many processes and open files as before.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from tests.contract.variants import fresh_url
from tests.worker.yard import Worker, Yard, until
from windlass import Reason, Retry, State
from windlass.job import Job

SLOTS: Final = 4
TIMEOUT: Final = "200ms"


class Kind(NamedTuple):
    what: str
    task: str
    step: str
    number: int = 200


KINDS: Final = (
    Kind("a coroutine that sleeps", "coroutine", "sleep:60"),
    Kind("a thread that spins in Python", "plain", "spin:60"),
    Kind("a thread in time.sleep", "plain", "sleep:60"),
    Kind("a thread in a call of C that lets go of the interpreter", "plain", "call:60"),
    Kind("a thread that swallows every exception", "plain", "swallow"),
    Kind("a coroutine that swallows every cancellation", "coroutine", "swallow"),
    Kind("a process of its own in time.sleep", "process", "sleep:60"),
    Kind("a process of its own that swallows every exception", "process", "swallow"),
    Kind("a coroutine that blocks its loop", "coroutine", "block:60"),
    Kind("a call of C that keeps the interpreter to itself", "plain", "hold:60"),
)


def prove(folder: Path) -> Iterator[str]:
    for engine in ("sqlite-file", "postgres"):
        own = folder / engine
        own.mkdir()
        for line in prove_on(own, fresh_url(engine, own)):
            yield f"{engine}: {line}"


def prove_on(folder: Path, url: str) -> Iterator[str]:
    with closing(Yard(folder, "5s", "2s", 3, url, kill_after="200ms")) as yard:
        worker = yard.start(slots=SLOTS)
        files: list[int] = []
        for kind in KINDS:
            yield from prove_kind(yard, worker, kind)
            until(lambda: len(worker.children()) == 1, "one child", seconds=60)
            files.append(open_files(worker))
        yield f"open files of the supervisor after each of them: {files}"
        # Hundreds of processes were replaced. Some files are opened at their first use, and
        # what is left of a process is closed when the interpreter collects it.
        assert max(files) < files[0] + 20
        assert worker.stop() == 0
    yield "windlass check: records, indexes and counters agree"


def prove_kind(yard: Yard, worker: Worker, kind: Kind) -> Iterator[str]:
    began_at = time.monotonic()
    children_before = worker.log().count(" retires: ") + worker.log().count("killing child ")
    innocent, stuck = enqueue(yard, kind)
    until(lambda: all(is_final(yard, stuck)), f"the end of {kind.what}", seconds=900)
    until(lambda: all(is_final(yard, innocent)), "the end of the others", seconds=60)
    reasons = Counter(yard.record(job).reason for job in stuck)
    charged = sum(yard.record(job).counters.crashes for job in [*stuck, *innocent])
    failed = sum(yard.record(job).state is not State.SUCCEEDED for job in innocent)
    replaced = worker.log().count(" retires: ") + worker.log().count("killing child ")
    assert_all_slots_work(yard)
    yield (
        f"{kind.what}: {reasons[Reason.TIMED_OUT]} of {kind.number} timed out, {failed} others "
        f"failed, {charged} crashes charged, {replaced - children_before} processes replaced, "
        f"{SLOTS} of {SLOTS} slots work ({time.monotonic() - began_at:.0f} s)"
    )
    assert reasons == {Reason.TIMED_OUT: kind.number}
    assert not failed
    assert not charged
    assert all(yard.record(job).counters.attempt == 1 for job in stuck)


def enqueue(yard: Yard, kind: Kind) -> tuple[list[Job[str]], list[Job[str]]]:
    """Enqueue the harmless jobs, then all stuck ones at once: a process that holds the interpreter
    lock in the middle of a transaction also holds the lock of a SQLite file until it is killed."""
    plain, numbers = yard.script.plain, range(kind.number)
    task = getattr(yard.script, kind.task).using(timeout=TIMEOUT, retry=Retry(1))
    innocent = plain.enqueue_many(plain.bind(f"{kind.step}-innocent-{n}", []) for n in numbers)
    stuck = task.enqueue_many(
        task.bind(f"{kind.task}-{kind.step}-{n}", [kind.step]) for n in numbers
    )
    return innocent, stuck


def is_final(yard: Yard, jobs: list[Job[str]]) -> Iterator[bool]:
    for record in yard.app.engine.get([job.id for job in jobs]):
        yield record is not None and record.state.is_final


def assert_all_slots_work(yard: Yard) -> None:
    """Run as many jobs as there are slots; each waits until all others have started."""
    gate = yard.folder / f"gate-{time.monotonic_ns()}"
    jobs = [yard.plain(f"{gate.name}-{n}", f"await:{gate}") for n in range(SLOTS)]
    for n in range(SLOTS):
        yard.await_start(f"{gate.name}-{n}")
    gate.touch()
    for job in jobs:
        job.result(timeout=20)


def open_files(worker: Worker) -> int:
    return len(os.listdir(f"/proc/{worker.pid}/fd"))

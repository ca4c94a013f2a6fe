"""Claim only what can start: slow jobs block no others, priority is served at the next free slot,
and delayed jobs start at their time."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.everywhere import ENGINES, on_every_engine
from tests.contract.variants import VARIANTS, fresh_url
from tests.worker.yard import Yard, until
from windlass import State
from windlass.engine.contract import Capability

SHORT_JOBS: Final = 100
LOW_JOBS: Final = 10_000
LOW_SLOTS: Final = 4
DELAYED_JOBS: Final = 200


@on_every_engine
def prove_slow_among_short(folder: Path, url: str) -> Iterator[str]:
    """One job of 60 s, then 100 of 10 ms on 2 x 4 slots: the short ones end within a second."""
    with closing(Yard(folder, "30s", "1s", 3, url)) as yard:
        worker = yard.start(processes=2, slots=4)
        for number in range(8):  # both children are up and have served something
            yard.plain(f"warm-{number}", "sleep:0.2")
        yard.await_count(State.SUCCEEDED, 8)
        yard.plain("slow", "sleep:60")
        yard.await_start("slow")
        call = yard.script.plain.bind
        started = time.monotonic()
        yard.script.plain.enqueue_many(
            call(f"short-{number}", ["sleep:0.01"]) for number in range(SHORT_JOBS)
        )
        yard.await_count(State.SUCCEEDED, 8 + SHORT_JOBS)
        elapsed = time.monotonic() - started
        yield f"{SHORT_JOBS} short jobs during a slow one: {elapsed:.2f} s"
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert elapsed < 1.0


def prove_priority(folder: Path) -> Iterator[str]:
    """A high-priority job behind 10,000 low ones starts at the next free slot. With several
    partitions, priorities order the jobs of each of them."""
    for engine in ENGINES:
        if Capability.STRICT_ORDER in VARIANTS[engine][1]:
            own = folder / engine
            own.mkdir()
            yield f"{engine}: {_prove_priority(own, fresh_url(engine, own))}"


def _prove_priority(folder: Path, url: str) -> str:
    with closing(Yard(folder, "30s", "1s", 3, url)) as yard:
        call = yard.script.plain.bind
        yard.script.plain.enqueue_many(
            call(f"low-{number}", ["sleep:0.02"]) for number in range(LOW_JOBS)
        )
        worker = yard.start(slots=LOW_SLOTS)
        until(lambda: len(yard.events("start")) > 100, "a busy worker")
        overtaken = []
        for number in range(10):
            yard.script.plain.using(priority=100).enqueue(f"high-{number}", [])
            before = len(yard.events("start"))
            yard.await_start(f"high-{number}")
            labels = [line.label for line in yard.events("start")]
            overtaken.append(max(0, labels.index(f"high-{number}") - before))
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert max(overtaken) <= LOW_SLOTS, overtaken
    return f"low jobs started after a high one was enqueued: {overtaken}, slots {LOW_SLOTS}"


@on_every_engine
def prove_delayed(folder: Path, url: str) -> Iterator[str]:
    """200 delayed jobs start within 50 ms of their time at p99, and none early."""
    with closing(Yard(folder, "30s", "5s", 3, url)) as yard:
        yard.start(processes=2, slots=4)
        yard.plain("warm")
        yard.await_count(State.SUCCEEDED, 1)
        jobs = [
            yard.script.clock.using(run_after=random.uniform(1, 6)).enqueue()
            for _ in range(DELAYED_JOBS)
        ]
        due = {job.id: yard.record(job.id).due_ms for job in jobs}
        late_ms = []
        for job in jobs:
            started_ms, due_ms = job.result(timeout=30) / 1e6, due[job.id]
            assert due_ms is not None, "it was still scheduled when it was looked at"
            late_ms.append(started_ms - due_ms)
        p99 = statistics.quantiles(late_ms, n=100)[98]
        yield (
            f"lateness of {DELAYED_JOBS} delayed jobs: p50 {statistics.median(late_ms):.1f} ms, "
            f"p99 {p99:.1f} ms, earliest {min(late_ms):.1f} ms"
        )
        assert min(late_ms) >= 0
        assert p99 < 50


@on_every_engine
def prove_killed_child(folder: Path, url: str) -> Iterator[str]:
    """The first job of a child that was killed starts again within a second."""
    with closing(Yard(folder, "30s", "5s", 3, url)) as yard:
        worker = yard.start(slots=4)
        for number in range(4):
            yard.plain(f"job-{number}", "sleep:3")
        until(lambda: len(yard.events("start")) == 4, "all have started")
        os.kill(worker.children()[0], signal.SIGKILL)
        killed_at = time.monotonic()
        until(lambda: len(yard.events("start")) > 4, "one has started again")
        took_s = time.monotonic() - killed_at
        yield f"the first job of a killed child started again after {took_s:.2f} s"
        yard.await_count(State.SUCCEEDED, 4)
        assert worker.stop() == 0
        assert took_s < 1.0

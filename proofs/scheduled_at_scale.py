"""A million jobs that are due in ten years do not slow down others: a thousand that are due within
the next five seconds start on time, and workers do not grow."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from proofs.memory import MB, memory
from tests.contract.variants import VARIANTS, fresh_url
from tests.redis_server import private_server
from tests.worker.yard import Worker, Yard
from windlass import State

FAR: Final = 1_000_000
NEAR: Final = 1_000
TEN_YEARS: Final = timedelta(days=3_652)
NEAR_S: Final = 5.0
LATE_MS: Final = 50.0
STEADY_S: Final = 4
GROWN_BYTES: Final = 5 * MB


def prove(folder: Path) -> Iterator[str]:
    yield from (f"sqlite-file: {line}" for line in prove_on(folder, None))
    for engine in ("redis", "redis-4"):
        own = folder / engine
        own.mkdir()
        server = private_server("--appendonly", "no", "--save", "")
        try:
            url = VARIANTS[engine][0].format(redis=server.url())
            yield from (f"{engine}: {line}" for line in prove_on(own, url))
        finally:
            server.end()
    own = folder / "postgres"
    own.mkdir()
    yield from (f"postgres: {line}" for line in prove_on(own, fresh_url("postgres", own)))


def prove_on(folder: Path, url: str | None) -> Iterator[str]:
    with closing(Yard(folder, lease="30s", grace="5s", max_crashes=3, url=url)) as yard:
        worker = yard.start(processes=1, slots=10)
        for number in range(50):
            yard.plain(f"warm-{number}")
        yard.await_count(State.SUCCEEDED, 50)
        before = settled_memory(worker)
        began = time.monotonic()
        enqueue_far(yard)
        yield f"{FAR:,} jobs due in ten years, enqueued in {time.monotonic() - began:.0f} s"
        late_ms = enqueue_near(yard)
        after = memory(worker)
        grown = [late - early for early, late in zip(before, after, strict=True)]
        p99 = statistics.quantiles(late_ms, n=100)[98]
        yield (
            f"lateness of {NEAR:,} jobs due within {NEAR_S:g} s: p50 "
            f"{statistics.median(late_ms):.1f} ms, p99 {p99:.1f} ms, earliest {min(late_ms):.1f} ms"
        )
        yield f"supervisor grew by {grown[0] / MB:.1f} MB, child by {grown[1] / MB:.1f} MB"
        assert min(late_ms) >= 0
        assert p99 < LATE_MS
        assert max(grown) <= GROWN_BYTES
        assert yard.count(State.SCHEDULED) == FAR


def settled_memory(worker: Worker) -> tuple[int, int]:
    """The memory after the start-up of a worker, when it is stable for a few seconds."""
    seen = [memory(worker)]
    while len(seen) < STEADY_S or len(set(seen[-STEADY_S:])) > 1:
        time.sleep(1.0)
        seen.append(memory(worker))
        assert len(seen) < 60, "the memory of an idle worker does not come to rest"
    return seen[-1]


def enqueue_far(yard: Yard) -> None:
    far = yard.script.plain.using(run_after=datetime.now(UTC) + TEN_YEARS)
    for start in range(0, FAR, 10_000):
        far.enqueue_many(far.bind(f"far-{number}", []) for number in range(start, start + 10_000))


def enqueue_near(yard: Yard) -> list[float]:
    """The delay of each start, in milliseconds."""
    begin = datetime.now(UTC) + timedelta(seconds=1)
    clock = yard.script.clock
    moments = [begin + timedelta(seconds=random.uniform(0, NEAR_S)) for _ in range(NEAR)]
    jobs = clock.enqueue_many(clock.using(run_after=moment).bind() for moment in moments)
    assert datetime.now(UTC) < begin, "they were all enqueued before the first was due"
    due_ms = [int(moment.timestamp() * 1000) for moment in moments]
    return [job.result(timeout=30) / 1e6 - at for job, at in zip(jobs, due_ms, strict=True)]

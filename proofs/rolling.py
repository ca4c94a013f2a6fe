"""Rolling restarts and deploys under load: no job is lost, fails or runs twice.

Restarts: every 10 s the proof stops one of four workers in turn with SIGTERM and starts it again,
for two minutes at 200 jobs a second. Deploys: workers of version 1 are replaced by version 2 and
back, with 5,000 jobs, some of a task that only version 2 knows.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, cycle
from pathlib import Path
from threading import Event, Thread
from typing import Final

from proofs.everywhere import on_every_engine
from proofs.versions import declare_all
from tests.worker.yard import Worker, Yard, until
from windlass import State, Windlass
from windlass.core.states import Hold
from windlass.engine.contract import JobRecord

WORKERS: Final = 4
RESTARTING_S: Final = 120.0
EVERY_S: Final = 10.0
RATE: Final = 200
GRACE_S: Final = 5.0

DEPLOYED_JOBS: Final = 5_000
#: Jobs come in groups, each with some of the task that only version 2 knows.
OLD_IN_GROUP: Final = 90
NEW_IN_GROUP: Final = 10
SHOWN_S: Final = 10.0
RUN_S: Final = 2.0


@on_every_engine
def prove_restarts(folder: Path, url: str) -> Iterator[str]:
    with closing(Yard(folder, "10s", f"{GRACE_S:g}s", 3, url)) as yard:
        workers = [yard.start(slots=4) for _ in range(WORKERS)]
        until(lambda: all("ready: " in worker.log() for worker in workers), "all ready")
        producer = Producer(yard)
        exits = list(_restart(yard, workers))
        made = producer.stop()
        yard.await_count(State.SUCCEEDED, made, seconds=60)
        starts = Counter(line.label for line in yard.events("start"))
        twice = sum(number > 1 for number in starts.values())
        failed = yard.count(State.DEAD)
        yield (
            f"{made} jobs, {len(exits)} restarts, slowest exit {max(exits):.1f} s; "
            f"lost {made - len(starts)}, failed {failed}, started twice {twice}"
        )
        assert len(starts) == made
        assert not twice
        assert not failed
        assert max(exits) < GRACE_S + 5


class Producer:
    """Enqueues short jobs at a steady rate, in a separate thread."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._is_over = Event()
        self._made = 0
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._made

    def _run(self) -> None:
        began = time.monotonic()
        for number in count():
            if self._is_over.wait(max(0.0, began + number / RATE - time.monotonic())):
                return
            kind = self._yard.plain if number % 2 else self._yard.coroutine
            kind(f"job-{number}", "sleep:0.05")
            self._made += 1


def _restart(yard: Yard, workers: list[Worker]) -> Iterator[float]:
    """Restart the workers in turn; yields the time that each took to exit."""
    end = time.monotonic() + RESTARTING_S
    for index in cycle(range(len(workers))):
        time.sleep(EVERY_S)  # the pace that is asked for
        if time.monotonic() > end:
            return
        workers[index].signal(signal.SIGTERM)
        told_at = time.monotonic()
        assert workers[index].wait(GRACE_S + 10) == 0
        yield time.monotonic() - told_at
        workers[index] = yard.start(slots=4)


@on_every_engine
def prove_deploy(folder: Path, url: str) -> Iterator[str]:
    yard = Yard(folder, "10s", f"{GRACE_S:g}s", 3, url)
    producer = Windlass(url)
    try:
        old = [yard.start(app="proofs.versions:version_1") for _ in range(2)]
        until(lambda: all("ready: " in worker.log() for worker in old), "version 1 is ready")
        ids = _enqueue_mixed(producer)
        began = time.monotonic()
        until(lambda: _any(producer, ids, _is_held), "unroutable jobs shown", SHOWN_S)
        yield f"unroutable shown {time.monotonic() - began:.1f} s after the enqueue"
        new = yard.start(app="proofs.versions:version_2")
        new.await_log("ready: ")
        ready_at = time.monotonic()
        until(lambda: _any(producer, ids, _has_run), "one of the new task has run", RUN_S)
        yield f"the first of them ran {time.monotonic() - ready_at:.2f} s after version 2 was ready"
        for worker in old:
            assert worker.stop() == 0
        yard.start(app="proofs.versions:version_2").await_log("ready: ")
        yard.start(app="proofs.versions:version_1").await_log("ready: ")
        assert new.stop() == 0  # back again: version 2 is going
        yard.await_count(State.SUCCEEDED, DEPLOYED_JOBS, seconds=120)
        yield f"{DEPLOYED_JOBS} jobs: lost 0, failed {yard.count(State.DEAD)}"
        assert not yard.count(State.DEAD)
    finally:
        producer.close()
        yard.close()


def _enqueue_mixed(app: Windlass) -> list[str]:
    """Enqueue jobs of both versions; returns the ids of those that only version 2 can run."""
    steady, fresh = declare_all(app)
    ids: list[str] = []
    for _ in range(DEPLOYED_JOBS // (OLD_IN_GROUP + NEW_IN_GROUP)):
        steady.enqueue_many(steady.bind(n) for n in range(OLD_IN_GROUP))
        ids += [job.id for job in fresh.enqueue_many(fresh.bind(n) for n in range(NEW_IN_GROUP))]
    return ids


def _any(app: Windlass, ids: list[str], holds: Callable[[JobRecord], bool]) -> bool:
    return any(record is not None and holds(record) for record in app.engine.get(ids))


def _is_held(record: JobRecord) -> bool:
    return record.hold is Hold.UNROUTABLE


def _has_run(record: JobRecord) -> bool:
    return record.state is State.SUCCEEDED

"""Compare the history of the engine with a recount: exact, and never too large after kills.

1. 20,000 jobs of two tasks in three queues: some fail once, some always, some are rejected, some
   snooze. Two workers with two children each, which are replaced meanwhile. After a normal end, the
   history has exactly the ends that the records of the jobs have.
2. The same while whole workers are killed with SIGKILL. No end is counted twice, and each kill
   costs at most the ends of one report: those of the seconds between two reports.

On three engines.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from proofs.mixed_ends import declare
from tests.contract.variants import fresh_url
from tests.worker.recount import recorded, recount, times
from tests.worker.yard import Worker, Yard, until
from windlass import State, Windlass
from windlass.worker.maintenance.measures import RECORD_S
from windlass.worker.run.measures import SEND_S

JOBS: Final = 20_000
KILLS: Final = 3
#: The pace of the kills, in seconds.
EVERY_S: Final = 15.0
#: How long each job takes in both parts, in seconds.
SHORT_S, LONGER_S = 0.0, 0.03
#: The time in which a worker reports its ends, in seconds: with some for a busy machine.
REPORT_S: Final = RECORD_S + SEND_S + 2.0


def prove(folder: Path) -> Iterator[str]:
    for engine in ("sqlite-file", "redis", "postgres"):
        for kills in (0, KILLS):
            place = folder / f"{engine}-{kills}"
            place.mkdir()
            with closing(Yard(place, "2s", "10s", 100, fresh_url(engine, place))) as yard:
                yield f"{engine}, {kills} workers killed: {serve(yard, kills)}"


def serve(yard: Yard, kills: int) -> str:
    enqueue(yard.app, LONGER_S if kills else SHORT_S)
    workers = [start(yard), start(yard)]
    most_missing = kill(yard, workers, kills)
    until(lambda: ended(yard) == JOBS, "the end of all jobs", 300)
    for worker in workers:
        assert worker.stop() == 0
    expected, found = recount(yard.app.engine), recorded(yard.app.engine)
    missing, invented = (expected - found).total(), (found - expected).total()
    told = f"{expected.total()} ends of {JOBS} jobs, {missing} missing, {invented} invented"
    assert invented == 0, told
    assert missing <= most_missing, f"{told}; at most {most_missing} may be missing"
    assert times(yard.app.engine) == (found.total(), found.total())
    return f"{told} (at most {most_missing} may be missing)"


def enqueue(app: Windlass, seconds: float) -> None:
    for at, task in enumerate(declare(app)):
        for queue in ("default", "mail", "reports"):
            bind = task.using(queue=queue).bind
            numbers = range(at, JOBS, 2)
            share = [n for n in numbers if n % 3 == ("default", "mail", "reports").index(queue)]
            app.enqueue_many(bind(number, seconds) for number in share)


def start(yard: Yard) -> Worker:
    return yard.start(app="proofs.mixed_ends:app", processes=2, slots=4, max_jobs=2_500)


def kill(yard: Yard, workers: list[Worker], kills: int) -> int:
    """Kill random workers with all their processes. Return how many ends may be missing: for each
    kill, those that there were since the last report of the killed worker."""
    seen: deque[tuple[float, int]] = deque()
    most_missing = 0
    next_at = time.monotonic() + EVERY_S
    while kills:
        now = time.monotonic()
        seen.append((now, runs(yard)))
        while seen[0][0] < now - REPORT_S:
            seen.popleft()
        if now >= next_at:
            index = random.randrange(len(workers))
            os.killpg(workers[index].pid, signal.SIGKILL)
            workers[index].wait()
            most_missing += seen[-1][1] - seen[0][1]
            workers[index] = start(yard)
            kills -= 1
            next_at = now + EVERY_S
        time.sleep(0.2)  # the pace of the samples
    return most_missing


def runs(yard: Yard) -> int:
    """How many runs have ended: this number only grows."""
    totals = yard.app.engine.stats().totals
    return sum(totals.get(name, 0) for name in ("succeeded", "dead", "retried", "snoozed"))


def ended(yard: Yard) -> int:
    return yard.count(State.SUCCEEDED) + yard.count(State.DEAD)

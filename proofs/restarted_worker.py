"""Kill a whole worker and start another one on the same machine: the jobs of the first run again
at once, without waiting for its lease.

Lease 30 s, 20 jobs of 1 s on 20 slots, SIGKILL to the process group while all of them run; 20 tries
on each engine. All jobs have to start again within 2 s of the start of the new worker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.contract.variants import fresh_url
from tests.worker.yard import Yard
from windlass import State

ENGINES: Final = ("sqlite-file", "redis", "redis-4", "postgres")
TRIES: Final = 20
JOBS: Final = 20
PROMPT_S: Final = 2.0


def prove(folder: Path) -> Iterator[str]:
    for engine in ENGINES:
        place = folder / engine
        place.mkdir()
        with closing(Yard(place, "30s", "5s", 3, fresh_url(engine, place))) as yard:
            tries = [kill_and_restart(yard, number) for number in range(TRIES)]
            yield from account(yard, engine, tries)
    yield "windlass check: records, indexes and counters agree"


def kill_and_restart(yard: Yard, number: int) -> tuple[float, float]:
    """The time until the new worker is ready, which depends on the machine, and the time until the
    last job starts again, both from the start of that worker."""
    labels = [f"job-{number}-{n}" for n in range(JOBS)]
    call = yard.script.plain.bind
    yard.script.plain.enqueue_many(call(label, ["sleep:1"]) for label in labels)
    worker = yard.start(slots=JOBS)
    for label in labels:
        yard.await_start(label)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    begin = time.monotonic()
    again = yard.start(slots=JOBS)
    again.await_log("ready")
    ready_s = time.monotonic() - begin
    for label in labels:
        yard.await_start(label, 2)
    waited_s = time.monotonic() - begin
    yard.await_count(State.SUCCEEDED, (number + 1) * JOBS)
    again.stop()
    return ready_s, waited_s


def account(yard: Yard, engine: str, tries: list[tuple[float, float]]) -> Iterator[str]:
    prompt = sum(waited_s <= PROMPT_S for _, waited_s in tries)
    ready_s, worst_s = max(tries, key=lambda one: one[1])
    yield (
        f"{engine}: {prompt} of {TRIES} within {PROMPT_S:g} s, the slowest {worst_s:.2f} s, "
        f"{ready_s:.2f} s of them until the worker was ready"
    )
    starts = len(yard.events("start"))
    assert starts == 2 * TRIES * JOBS, f"{starts} starts"
    assert prompt == TRIES

"""How late jobs start while children that cannot run them are idle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from tests.worker.yard import Yard, until
from windlass import State

#: A job with a free slot starts within this many milliseconds.
PROMPT_MS: Final = 50.0
#: How many children of other queues are idle.
OTHERS: Final = 12


def beside_another_queue(yard: Yard) -> None:
    yard.start(queues=["other"])
    yard.start(queues=["mail"])


def beside_its_own_process(yard: Yard) -> None:
    """The child that ran a job alone is idle for a while."""
    yard.start()
    yard.await_state(yard.process("alone"), State.SUCCEEDED)


def beside_many_of_another_queue(yard: Yard) -> None:
    yard.start(queues=["other"], processes=OTHERS)
    yard.start(queues=["mail"])


def beside_many_without_the_label(yard: Yard) -> None:
    yard.start(queues=["mail"], processes=OTHERS)
    yard.start(queues=["mail"], labels=["gpu"])


SETTINGS: Final[dict[str, Callable[[Yard], None]]] = {
    "one idle child of another queue": beside_another_queue,
    "its own idle run_in='process' child": beside_its_own_process,
    "12 idle children of another queue": beside_many_of_another_queue,
    "12 idle children without the label": beside_many_without_the_label,
}


def measure(yard: Yard, name: str, number: int) -> list[float]:
    """The milliseconds from enqueue to start, of jobs that come one at a time."""
    SETTINGS[name](yard)
    requires = ("gpu",) if "label" in name else ()
    queue = "default" if "process" in name else "mail"
    task = yard.script.clock.using(queue=queue, requires=requires)
    until(lambda: all_ready(yard), "workers that are ready", 60)
    for _ in range(3):
        task.enqueue().result(timeout=20)
    late_ms = []
    for _ in range(number):
        time.sleep(random.uniform(0.03, 0.06))
        enqueued_ns = time.time_ns()
        late_ms.append((task.enqueue().result(timeout=20) - enqueued_ns) / 1e6)
    return late_ms


def all_ready(yard: Yard) -> bool:
    """Every child is known to the engine, and so has claimed or is about to wait."""
    wanted = sum(worker.options.processes for worker in yard.workers)
    return len(yard.app.engine.sessions()) >= wanted


def overtaken(yard: Yard, tries: int) -> int:
    """How often a job of a lower tier is claimed before two of a higher one that were enqueued
    before it, while there are idle children for all three."""
    yard.start(queues=["high", "low"], processes=3, slots=1)
    until(lambda: all_ready(yard), "a worker that is ready")
    plain, number = yard.script.plain, 0
    for attempt in range(tries):
        high = plain.using(queue="high")
        calls = [high.bind(f"high-{attempt}-{one}", []) for one in range(2)]
        jobs = high.enqueue_many(calls)
        low = plain.using(queue="low").enqueue(f"low-{attempt}", [])
        yard.await_count(State.SUCCEEDED, 3 * (attempt + 1))
        time.sleep(random.uniform(0.01, 0.03))  # so that all children wait again
        claimed_ms = [yard.record(job.id).started_ms or 0 for job in jobs]
        number += (yard.record(low.id).started_ms or 0) < max(claimed_ms)
    return number

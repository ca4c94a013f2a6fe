"""Queue plans: exact weights, strict tiers first, and no starvation with ageing.

1. `default:5,low:1`, both full, 6,000 starts by one worker and by three: 5 to 1 within 2 %.
2. `critical` before `low`, two workers: while critical jobs wait, the only jobs of the other tier
   are those already in a slot. A critical job that comes later starts at the next free slot.
3. A job of low priority under a steady stream of high ones starts within the guaranteed time;
   without ageing it does not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

from proofs.everywhere import ENGINES
from tests.contract.variants import VARIANTS, fresh_url
from tests.worker.yard import Yard, until
from windlass import State
from windlass.engine.contract import Capability

STARTS: Final = 6_000
WEIGHTS: Final = {"default": 5, "low": 1}
#: The allowed deviation of the shares.
TOLERANCE: Final = 0.02
SLOTS: Final = 4
#: Long enough that a child does not prefetch these jobs, in seconds.
JOB_S: Final = 0.02
#: How much higher the priority of the stream is, and the period of ageing, in seconds.
LEVELS: Final = 3
PERIOD_S: Final = 1.0
#: The number of waiting jobs of the stream, and the longest time until they start, in seconds.
BACKLOG: Final = 150
DRAIN_S: Final = 3.0


def prove(folder: Path) -> Iterator[str]:
    for part in (prove_weights, prove_tiers, prove_ageing):
        for engine in ENGINES:
            for line in part(folder, engine):
                yield f"{engine}: {line}"


@contextmanager
def opened(folder: Path, engine: str, name: str) -> Iterator[Yard]:
    own = folder / f"{engine}-{name}"
    own.mkdir()
    with closing(Yard(own, "30s", "5s", 3, fresh_url(engine, own))) as yard:
        yield yard


def fill(yard: Yard, queue: str, number: int, *steps: str, label: str = "") -> None:
    task = yard.script.plain.using(queue=queue)
    name = label or queue
    for begin in range(0, number, 100):
        some = range(begin, min(begin + 100, number))
        task.enqueue_many(task.bind(f"{name}-{n}", list(steps)) for n in some)


def starts(yard: Yard) -> list[str]:
    """The queues of all jobs, in order of their starts."""
    return [line.label.rpartition("-")[0] for line in yard.events("start")]


def _await_starts(yard: Yard, number: int) -> None:
    until(lambda: len(yard.events("start")) >= number, f"{number} starts", 120)


# ----------------------------------------------------------------------------------------- weights


def prove_weights(folder: Path, engine: str) -> Iterator[str]:
    for workers in (1, 3):
        with opened(folder, engine, f"by-{workers}") as yard:
            for queue, weight in WEIGHTS.items():
                fill(yard, queue, STARTS * weight // 6 + 900)
            for _ in range(workers):
                yard.start(queues=["default:5,low:1"], slots=SLOTS)
            _await_starts(yard, STARTS)
            counted = Counter(starts(yard)[:STARTS])
            ratio = counted["default"] / counted["low"]
            yield (
                f"{workers} workers: of {STARTS:,} starts {counted['default']:,} default and "
                f"{counted['low']:,} low, {ratio:.3f} to 1"
            )
            assert abs(ratio / 5 - 1) <= TOLERANCE


# ------------------------------------------------------------------------------------------- tiers


def prove_tiers(folder: Path, engine: str) -> Iterator[str]:
    with opened(folder, engine, "tiers") as yard:
        fill(yard, "low", 600, f"sleep:{JOB_S}")
        fill(yard, "critical", 300, f"sleep:{JOB_S}")
        for _ in range(2):
            yard.start(queues=["critical", "low"], slots=SLOTS)
        until(lambda: Counter(starts(yard))["critical"] == 300, "all critical ones", 60)
        order = starts(yard)
        last = max(at for at, queue in enumerate(order) if queue == "critical")
        early = order[:last].count("low")
        yield f"300 critical jobs and 600 low ones: {early} low started before the last critical"
        assert early < 2 * SLOTS
        passed = [_low_before(yard, number) for number in range(10)]
        yield f"critical jobs that came later: at most {max(passed)} low ones started before them"
        # One per slot, plus jobs that start while the critical job is being enqueued.
        assert max(passed) <= 4 * SLOTS


def _low_before(yard: Yard, number: int) -> int:
    """The number of starts of the other tier between enqueue and start of a critical job."""
    before = len(yard.events("start"))
    label = f"later-{number}"
    yard.script.plain.using(queue="critical").enqueue(label, [f"sleep:{JOB_S}"])
    yard.await_start(label)
    labels = [line.label for line in yard.events("start")]
    return labels.index(label) - before


# ------------------------------------------------------------------------------------------ ageing


def prove_ageing(folder: Path, engine: str) -> Iterator[str]:
    bound_s = (LEVELS + 1) * PERIOD_S + DRAIN_S
    # Priority is strict within a partition only: a partition without other jobs would run it.
    is_strict = Capability.STRICT_ORDER in VARIANTS[engine][1]
    for is_ageing in (True, False) if is_strict else (True,):
        with opened(folder, engine, "ageing" if is_ageing else "strict") as yard:
            if is_ageing:
                yard.app.queue("default").set(ageing=PERIOD_S)
            with stream(yard):
                yard.start(slots=SLOTS)
                _await_starts(yard, BACKLOG)
                begun = time.monotonic()
                low = yard.script.plain.enqueue("patient-0", [])
                while not yard.events("start", "patient-0"):
                    if time.monotonic() - begun > bound_s:
                        break
                    time.sleep(0.02)
                took_s = time.monotonic() - begun
                state = low.info().state
        if is_ageing:
            yield (
                f"priority 0 under a stream of priority {LEVELS}, ageing {PERIOD_S:g} s: started "
                f"after {took_s:.1f} s, promised {bound_s:g} s"
            )
            assert took_s <= bound_s
        else:
            yield f"the same without ageing: {state} after {took_s:.1f} s"
            assert state is State.READY


@contextmanager
def stream(yard: Yard) -> Iterator[None]:
    """Jobs of high priority, more than the worker can run."""
    task = yard.script.plain.using(priority=LEVELS)
    is_over = Event()

    def run() -> None:
        number = 0
        while not is_over.wait(0.05):
            missing = BACKLOG - yard.count(State.READY)
            for _ in range(max(0, missing)):  # one by one, so that every partition has some
                number += 1
                task.enqueue(f"high-{number}", ["sleep:0.01"])

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()

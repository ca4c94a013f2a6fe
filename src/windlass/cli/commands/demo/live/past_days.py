"""The days before the past hour: only their history, because their jobs are long removed.

`record_days` adds one report for each hour of 30 days, by the verb that workers use. The load
follows the day and the week. Each report scales a sample of runs of each task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Final

from windlass.cli.commands.demo.live.load import ARRIVALS
from windlass.core.history import ENQUEUED, HOUR_MS, KEEP_HOURS_MS, OUTCOMES, Tally, add_counts
from windlass.core.ids import random_digits
from windlass.engine.contract import Engine, Measure

#: The number of runs of a sample.
SAMPLE: Final = 50
#: The shortest and the longest run of a queue, in seconds.
RUN_S: Final = {
    "default": (0.02, 0.8),
    "imports": (0.5, 2.0),
    "mail": (0.05, 0.9),
    "payments": (0.2, 1.6),
    "reports": (1.0, 9.0),
}
#: One of this many runs is slow: it waits and takes longer.
SLOW: Final = 60
#: One of this many runs fails, and one of this many jobs ends as dead.
FAILS: Final = 25
DIES: Final = 49


def record_days(
    engine: Engine, end_ms: int, set_clock: Callable[[int], None], random: Random
) -> None:
    """Record each hour up to `end_ms`. `set_clock` moves the clock of the engine."""
    samples = [
        (call.task.queue, call.task.name, _sample(call.task.queue, random), arrivals.rate)
        for arrivals in ARRIVALS
        for call in [arrivals.make(random)]
    ]
    reporter, reports = random_digits(16), count(1)
    for hour_ms in _hours(end_ms):
        set_clock(hour_ms)
        load = _load(hour_ms, random)
        measures = [
            Measure(queue=queue, task=task, counts=_counts(sample, queue, rate * load, random))
            for queue, task, sample, rate in samples
        ]
        engine.record(reporter, next(reports), measures)


def _hours(end_ms: int) -> Iterator[int]:
    """The middle of each hour before `end_ms`."""
    last_ms = end_ms - end_ms % HOUR_MS - HOUR_MS // 2
    return iter(range(last_ms - KEEP_HOURS_MS + HOUR_MS, last_ms + 1, HOUR_MS))


def _load(at_ms: int, random: Random) -> float:
    """The load at an instant, as a share of that of the past hour: low at night and at weekends."""
    day, hour = divmod(at_ms // HOUR_MS, 24)
    share = 0.55 - 0.4 * math.cos(2 * math.pi * (hour - 2) / 24)
    is_weekend = day % 7 in (2, 3)  # 1970 began on a Thursday
    return share * (0.6 if is_weekend else 1.0) * random.uniform(0.9, 1.1)


def _sample(queue: str, random: Random) -> list[int]:
    tally = Tally()
    for run in range(SAMPLE):
        outcome = "dead" if run % DIES == 1 else "retried" if run % FAILS == 2 else "succeeded"
        wait_s, run_s = random.uniform(0.02, 0.6), random.uniform(*RUN_S[queue])
        tally.add(OUTCOMES.index(outcome), wait_s, run_s)
    tally.counts[ENQUEUED] = SAMPLE
    return tally.counts


def _counts(sample: list[int], queue: str, rate: float, random: Random) -> tuple[int, ...]:
    """The measure of an hour with this rate of runs, some of them slow."""
    runs = 3600 * rate
    slow = Tally()
    slow.add(0, random.uniform(1, 60) * rate, RUN_S[queue][1] * random.uniform(1, 5))
    return add_counts([_scale(sample, runs / SAMPLE), _scale(slow.counts, runs / SLOW)])


def _scale(sample: list[int], by: float) -> tuple[int, ...]:
    return tuple(int(number * by) for number in sample)

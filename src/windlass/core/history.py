"""What is counted of runs, minute by minute: the layout of the counts, and what they say.

1. A measure is a row of integers for one task in one queue: how many jobs were enqueued, how runs
   ended, and two histograms, of the time that jobs waited and of the time that they ran. Measures
   are added element by element, and engines know only how many elements there are.
2. `Tally` collects the measure of one task in one queue.
3. `Summary` reads a measure: rates, means and quantiles.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

#: The upper bounds of the buckets of both histograms, in seconds; one more bucket has no bound.
BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
BUCKETS: Final = len(BOUNDS_S) + 1
#: How a run may end, in the order of the counts. `released` runs were interrupted or cancelled.
OUTCOMES: Final = ("succeeded", "retried", "dead", "snoozed", "released")

#: The positions in a measure.
ENQUEUED: Final = 0
FIRST_OUTCOME: Final = 1
WAIT_MS: Final = FIRST_OUTCOME + len(OUTCOMES)
RUN_MS: Final = WAIT_MS + 1
WAIT_BUCKETS: Final = RUN_MS + 1
RUN_BUCKETS: Final = WAIT_BUCKETS + BUCKETS
#: The number of elements of a measure.
WIDTH: Final = RUN_BUCKETS + BUCKETS
#: Histories keep each minute for a day, and each hour for 30 days.
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
KEEP_MINUTES_MS: Final = 24 * HOUR_MS
KEEP_HOURS_MS: Final = 30 * 24 * HOUR_MS
#: The name of the task, and of the queue, that stands for all beyond a limit of number.
OTHER: Final = "_other"


class Tally:
    """The measure of one task in one queue, while it is collected."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * WIDTH

    def add(self, outcome: int, wait_s: float | None, run_s: float | None) -> None:
        """Count a run that ended; `outcome` is its position in `OUTCOMES`. Without `run_s` the job
        ended without a run. A time that is not known is None, and is in no histogram."""
        counts = self.counts
        counts[FIRST_OUTCOME + outcome] += 1
        if wait_s is not None:
            counts[WAIT_MS] += int(wait_s * 1000)
            counts[WAIT_BUCKETS + bisect_left(BOUNDS_S, wait_s)] += 1
        if run_s is not None:
            counts[RUN_MS] += int(run_s * 1000)
            counts[RUN_BUCKETS + bisect_left(BOUNDS_S, run_s)] += 1

    def add_runs(self, outcome: int, waits_s: list[float], runs_s: list[float]) -> None:
        """Count many runs that ended in the same way, in half the time of as many calls of `add`.
        Sorts both lists."""
        self.counts[FIRST_OUTCOME + outcome] += len(runs_s)
        self._add_times(waits_s, WAIT_MS, WAIT_BUCKETS)
        self._add_times(runs_s, RUN_MS, RUN_BUCKETS)

    def _add_times(self, times_s: list[float], total: int, first: int) -> None:
        counts, number = self.counts, len(times_s)
        counts[total] += int(sum(times_s) * 1000)
        times_s.sort()
        below = 0
        for place, bound in enumerate(BOUNDS_S, first):
            if below == number:
                return
            until = bisect_right(times_s, bound, below)
            counts[place] += until - below
            below = until
        counts[first + BUCKETS - 1] += number - below


def add_counts(measures: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Add measures element by element."""
    total = [0] * WIDTH
    for counts in measures:
        total = [a + b for a, b in zip(total, counts, strict=True)]
    return tuple(total)


class Summary(msgspec.Struct, frozen=True):
    """What a measure says."""

    counts: Sequence[int]

    @property
    def enqueued(self) -> int:
        return self.counts[ENQUEUED]

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(zip(OUTCOMES, self.counts[FIRST_OUTCOME:WAIT_MS], strict=True))

    @property
    def runs(self) -> int:
        """How many runs ended, in any way, and jobs without a run."""
        return sum(self.counts[FIRST_OUTCOME:WAIT_MS])

    @property
    def failure_rate(self) -> float | None:
        """The share of failed attempts among those that succeeded or failed; None without any."""
        outcomes = self.outcomes
        failed = outcomes["retried"] + outcomes["dead"]
        ended = failed + outcomes["succeeded"]
        return failed / ended if ended else None

    @property
    def mean_run_s(self) -> float | None:
        return _mean_s(self.counts[RUN_MS], self.counts[RUN_BUCKETS:])

    @property
    def mean_wait_s(self) -> float | None:
        return _mean_s(self.counts[WAIT_MS], self.counts[WAIT_BUCKETS:RUN_BUCKETS])

    def wait_quantile_s(self, share: float) -> float | None:
        return quantile_s(self.counts[WAIT_BUCKETS:RUN_BUCKETS], share)

    def run_quantile_s(self, share: float) -> float | None:
        return quantile_s(self.counts[RUN_BUCKETS:], share)


def _mean_s(total_ms: int, buckets: Sequence[int]) -> float | None:
    number = sum(buckets)
    return total_ms / 1000 / number if number else None


def quantile_s(buckets: Sequence[int], share: float) -> float | None:
    """Estimate a quantile from the counts of buckets, as Prometheus does: linear inside a bucket. A
    quantile in the last bucket is the last bound. None without counts."""
    rank = share * sum(buckets)
    if not rank:
        return None
    below, seen = 0.0, 0
    for bound, number in zip(BOUNDS_S, buckets, strict=False):
        if number and seen + number >= rank:
            return below + (bound - below) * (rank - seen) / number
        below, seen = bound, seen + number
    return float(BOUNDS_S[-1])

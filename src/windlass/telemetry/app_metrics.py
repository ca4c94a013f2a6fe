"""The metrics of an app: its queues, its schedules and all its workers.

1. `AppSnapshot` is what the engine knows at one instant, from counters and without a scan.
2. `AppMetrics` turns snapshots into metrics. A caller for some queues gets the series of these
   queues alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import inf

import msgspec

from windlass.core.history import OTHER
from windlass.core.states import State
from windlass.telemetry import metric_table as table
from windlass.telemetry.metric_table import MAX_PAIRS, MAX_VALUES, Family, Metric

MayUse = Callable[[str], bool]


class QueueNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant."""

    queue: str
    jobs: Mapping[State, int]
    oldest_ready_s: float = 0.0
    demand_slots: float = 0.0
    drain_s: float | None = 0.0  # None: never, at the present rates
    is_paused: bool = False


class AppSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An app at one instant."""

    queues: tuple[QueueNumbers, ...]
    enqueued: Mapping[tuple[str, str], int]  # by queue and task
    sessions_lost: int
    workers: int
    slots: int
    busy_slots: int
    schedule_lags_s: Mapping[str, float]  # by schedule


class AppMetrics:
    """Make the metrics of an app. Used by one thread at a time."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()  # pairs of queue and task with their own series

    def collect(
        self, now: AppSnapshot | None, *, may_use: MayUse = lambda _: True, sees_all: bool = True
    ) -> Iterator[Family]:
        """Make the metrics for one caller. Without a snapshot the engine does not answer: then
        there are no numbers, because old ones would look like new ones."""
        yield Family(table.UP, (((), 0.0 if now is None else 1.0),))
        if now is None:
            return
        yield from _queue_families(_bound([one for one in now.queues if may_use(one.queue)]))
        enqueued = self._bound_pairs(now.enqueued).items()
        yield Family(table.JOBS_ENQUEUED, tuple(one for one in enqueued if may_use(one[0][0])))
        if sees_all:
            yield from _fleet_families(now)

    def _bound_pairs(self, enqueued: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Join the pairs beyond the limit; engines bound them too, in each partition. The first
        pairs keep their names, so that no count moves from one series to another."""
        bounded: dict[tuple[str, str], int] = {}
        for pair, number in enqueued.items():
            if pair not in self._named and len(self._named) >= MAX_PAIRS:
                pair = (OTHER, OTHER)
            else:
                self._named.add(pair)
            bounded[pair] = bounded.get(pair, 0) + number
        return bounded


def _fleet_families(now: AppSnapshot) -> Iterator[Family]:
    yield Family(table.SESSIONS_LOST, (((), now.sessions_lost),))
    yield Family(table.WORKERS, (((), now.workers),))
    busy = min(now.busy_slots, now.slots)
    yield Family(table.SLOTS, ((("busy",), busy), (("free",), now.slots - busy)))
    lags = _bound_lags(now.schedule_lags_s)
    yield Family(table.SCHEDULE_LAG, tuple(((name,), lag) for name, lag in lags.items()))


def _queue_families(queues: Iterable[QueueNumbers]) -> Iterator[Family]:
    queues = list(queues)
    yield Family(
        table.QUEUE_JOBS,
        tuple(((one.queue, state), one.jobs.get(state, 0)) for one in queues for state in State),
    )

    def by_queue(metric: Metric, value: Callable[[QueueNumbers], float]) -> Family:
        return Family(metric, tuple(((one.queue,), value(one)) for one in queues))

    yield by_queue(table.QUEUE_OLDEST_READY, lambda one: one.oldest_ready_s)
    yield by_queue(table.QUEUE_DEMAND, lambda one: one.demand_slots)
    yield by_queue(table.QUEUE_DRAIN, _drain_of)
    yield by_queue(table.QUEUE_PAUSED, lambda one: float(one.is_paused))


def _drain_of(one: QueueNumbers) -> float:
    return inf if one.drain_s is None else one.drain_s


def _bound(queues: list[QueueNumbers]) -> list[QueueNumbers]:
    """Join the queues beyond the limit. The busiest queues keep their names."""
    if len(queues) <= MAX_VALUES:
        return queues
    queues = sorted(queues, key=lambda one: -sum(one.jobs.values()))
    named, others = queues[:MAX_VALUES], queues[MAX_VALUES:]
    return [*sorted(named, key=lambda one: one.queue), _join(others)]


def _join(queues: list[QueueNumbers]) -> QueueNumbers:
    jobs: dict[State, int] = {}
    for one in queues:
        for state, number in one.jobs.items():
            jobs[state] = jobs.get(state, 0) + number
    drain_s = max(map(_drain_of, queues))
    return QueueNumbers(
        queue=OTHER,
        jobs=jobs,
        oldest_ready_s=max(one.oldest_ready_s for one in queues),
        demand_slots=sum(one.demand_slots for one in queues),
        drain_s=None if drain_s == inf else drain_s,
        is_paused=any(one.is_paused for one in queues),
    )


def _bound_lags(lags_s: Mapping[str, float]) -> dict[str, float]:
    """Join the schedules beyond the limit: the longest lag of them."""
    named = dict(islice(sorted(lags_s.items()), MAX_VALUES))
    others = [lag for name, lag in lags_s.items() if name not in named]
    return {**named, OTHER: max(others)} if others else named

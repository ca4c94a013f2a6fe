"""The metrics of one worker.

1. `WorkerSnapshot` is what a worker knows about itself at one instant.
2. `collect_worker` turns a snapshot into metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from windlass.core.history import (
    BOUNDS_S,
    RUN_BUCKETS,
    RUN_MS,
    WAIT_BUCKETS,
    WAIT_MS,
    Summary,
    add_counts,
)
from windlass.telemetry import metric_table as table
from windlass.telemetry.metric_table import Family, Histogram, Metric

Pair = tuple[str, str]


class WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A worker at one instant. Counts are those since its start, and never shrink."""

    is_up: bool
    #: By queue and task, as `core.history` lays them out. The worker bounds their number.
    measures: Mapping[Pair, Sequence[int]]
    stale_outcomes: Mapping[str, int]  # by verb
    engine_calls: Mapping[Pair, Histogram]  # by verb and outcome
    slots: int
    busy_slots: int
    last_claim_at: float  # Unix time; 0 before the first claim
    shared_children: int
    solo_children: int
    children_started: int
    memory: Mapping[str, int]  # bytes by process, as far as they are known


def collect_worker(now: WorkerSnapshot) -> Iterator[Family]:
    """Make the metrics of a worker."""
    measures = now.measures
    yield Family(table.UP, (((), float(now.is_up)),))
    yield Family(
        table.JOBS_FINISHED,
        tuple(
            ((*pair, outcome), number)
            for pair, counts in measures.items()
            for outcome, number in Summary(counts).outcomes.items()
        ),
    )
    waits = _by_queue(measures).items()
    yield Family(table.JOB_WAIT, tuple(((queue,), _wait_of(counts)) for queue, counts in waits))
    runs = measures.items()
    yield Family(table.JOB_RUN, tuple((pair, _run_of(counts)) for pair, counts in runs))
    yield _labelled(table.STALE_OUTCOMES, now.stale_outcomes)
    yield Family(table.ENGINE_CALL, tuple(now.engine_calls.items()))
    yield from _process_families(now)


def _process_families(now: WorkerSnapshot) -> Iterator[Family]:
    busy = min(now.busy_slots, now.slots)
    yield _labelled(table.WORKER_SLOTS, {"busy": busy, "free": now.slots - busy})
    yield Family(table.LAST_CLAIM, (((), now.last_claim_at),))
    yield _labelled(table.CHILDREN, {"shared": now.shared_children, "solo": now.solo_children})
    yield Family(table.CHILDREN_STARTED, (((), now.children_started),))
    yield _labelled(table.MEMORY, now.memory)


def _labelled(metric: Metric, values: Mapping[str, float]) -> Family:
    return Family(metric, tuple(((label,), value) for label, value in values.items()))


def _by_queue(measures: Mapping[Pair, Sequence[int]]) -> dict[str, Sequence[int]]:
    queues: dict[str, list[Sequence[int]]] = {}
    for (queue, _), counts in measures.items():
        queues.setdefault(queue, []).append(counts)
    return {queue: add_counts(own) for queue, own in queues.items()}


def _wait_of(counts: Sequence[int]) -> Histogram:
    return Histogram(BOUNDS_S, tuple(counts[WAIT_BUCKETS:RUN_BUCKETS]), counts[WAIT_MS] / 1000)


def _run_of(counts: Sequence[int]) -> Histogram:
    return Histogram(BOUNDS_S, tuple(counts[RUN_BUCKETS:]), counts[RUN_MS] / 1000)

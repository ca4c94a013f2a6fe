"""The numbers of a worker for its metrics.

1. The monitor knows the living children, and adds what a child has counted to its own totals when
   the child ends. So no counter goes back when children come and go.
2. It reads slots, claims, engine calls and memory only when metrics are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

from windlass.core.history import BOUNDS_S
from windlass.telemetry.metric_table import Family, Histogram
from windlass.telemetry.worker_metrics import WorkerSnapshot, collect_worker
from windlass.worker.ipc.call_times import CallTimes, Times, add_times
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.supervisor.child_process import ChildProcess, memory_of


class WorkerMonitor:
    """Collect the metrics of a worker. Thread-safe. `is_up` tells whether the engine answers."""

    def __init__(self, measures: WorkerMeasures, is_up: Callable[[], bool]) -> None:
        self._measures = measures
        self._is_up = is_up
        self.call_times = CallTimes()  # of the supervisor itself
        self._lock = Lock()
        self._children: dict[int, ChildProcess] = {}
        self._ended_times: Times = {}
        self._last_claim_at = 0.0
        self._started = 0

    def note_start(self, child: ChildProcess) -> None:
        with self._lock:
            self._children[child.pid] = child
            self._started += 1

    def note_end(self, child: ChildProcess) -> None:
        """Keep what the child has counted."""
        with self._lock:
            if self._children.pop(child.pid, None) is not None:
                add_times(self._ended_times, child.table.call_times.read())
                self._last_claim_at = max(self._last_claim_at, child.table.last_claim_at())

    def collect(self) -> Iterator[Family]:
        return collect_worker(self._look())

    def _look(self) -> WorkerSnapshot:
        with self._lock:
            children, started = list(self._children.values()), self._started
            times, last_claim_at = dict(self._ended_times), self._last_claim_at
            for child in children:
                add_times(times, child.table.call_times.read())
        add_times(times, self.call_times.read())
        totals = self._measures.snapshot()
        solo = sum(child.is_solo for child in children)
        slots, busy = _count_slots(children)
        return WorkerSnapshot(
            is_up=self._is_up(),
            measures={(one.queue, one.task): one.counts for one in totals.measures},
            stale_outcomes=totals.stale,
            engine_calls={name: _histogram_of(own) for name, own in times.items()},
            slots=slots,
            busy_slots=busy,
            last_claim_at=max([last_claim_at, *(one.table.last_claim_at() for one in children)]),
            shared_children=len(children) - solo,
            solo_children=solo,
            children_started=started,
            memory=_measure_memory(children),
        )


def _count_slots(children: Sequence[ChildProcess]) -> tuple[int, int]:
    """Return all slots, and the busy ones. A child that is being replaced claims no more: its free
    slots are left out."""
    slots = busy = 0
    for child in children:
        own = len(child.table.occupied())
        slots += own if child.is_retiring else child.table.slots
        busy += own
    return slots, busy


def _measure_memory(children: Sequence[ChildProcess]) -> Mapping[str, int]:
    """Resident memory in bytes, where the system tells it."""
    own = memory_of(os.getpid())
    theirs = [size for child in children if (size := child.memory()) is not None]
    found = {"supervisor": own, "children": sum(theirs) if theirs or not children else None}
    return {process: size for process, size in found.items() if size is not None}


def _histogram_of(times: tuple[int, ...]) -> Histogram:
    *buckets, sum_us = times
    return Histogram(BOUNDS_S, tuple(buckets), sum_us / 1_000_000)

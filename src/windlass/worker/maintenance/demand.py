"""The demand for slots of one worker: its share of the load of the queues that it serves.

1. `DemandWatch` reads the load of the queues and the other live workers. It runs in the maintenance
   thread, on request. If the engine does not answer, it reports nothing.
2. `share_demand` gives each worker a part of the demand of a queue: its capacity, divided by the
   capacity of all workers that serve the queue. So ten workers do not all start children for the
   same jobs. The capacity of a worker that scales is that of its largest number of children, so
   that shares do not change while workers scale. A quiet or stopping worker has no capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from windlass.core.introduction import Introduction
from windlass.core.queues.load import ASSUMED_RUN_S, QueueLoad
from windlass.core.queues.plans import read_tiers
from windlass.engine.contract import Engine, SessionCommand, SessionRecord
from windlass.queue_loads import read_loads
from windlass.worker.options import WorkerOptions

#: How long the list of other workers is used before it is read again, in seconds.
FLEET_S: Final = 10.0


class WorkerDemand(NamedTuple):
    """The load of the queues of a worker, and its share of their demand."""

    ready: int = 0  # of all workers together, as the next two
    running: int = 0
    oldest_s: float = 0.0
    slots: float = 0.0  # how many slots of this worker are needed
    work_s: float = 0.0  # the time that its share of the ready jobs takes in one slot
    mean_run_s: float = 0.0  # of the queue whose jobs run longest


class ServingWorker(NamedTuple):
    """Another worker, and how many jobs it can run at a time."""

    queues: frozenset[str]  # every queue when empty
    capacity: int


class DemandWatch:
    """Read the demand for slots of this worker. `sessions` returns its own sessions. The thread
    that calls `look` calls `on_demand`."""

    def __init__(
        self,
        engine: Engine,
        options: WorkerOptions,
        sessions: Callable[[], Collection[str]],
        on_demand: Callable[[WorkerDemand], None],
    ) -> None:
        self._engine = engine
        self._queues = name_queues(options.queues)
        self._capacity = options.most_children * options.slots
        self._sessions = sessions
        self._on_demand = on_demand
        self._others: list[ServingWorker] = []
        self._fleet_at = -inf

    def look(self) -> float:
        """Read the demand, and report it. The next call is made on request."""
        loads = read_loads(self._engine, sorted(self._queues))
        if monotonic() - self._fleet_at > FLEET_S:
            self._others = list_others(self._engine.sessions(), self._sessions())
            self._fleet_at = monotonic()
        self._on_demand(share_demand(loads, self._capacity, self._others))
        return inf


def name_queues(tiers: Sequence[str]) -> frozenset[str]:
    """Return the names of the queues of a worker, without tiers and weights."""
    return frozenset(queue for tier in read_tiers(tiers) for queue in tier.queues)


def list_others(sessions: Iterable[SessionRecord], own: Collection[str]) -> list[ServingWorker]:
    """Return the other live workers that claim jobs."""
    found: dict[tuple[str, int, str], ServingWorker] = {}
    for record in sessions:
        if record.session in own or record.expires_in_ms < 0:
            continue
        known = Introduction.unpack(record.info)
        if known.is_solo or record.command is not SessionCommand.RUN:
            continue
        place = (known.host, known.worker, known.kind)
        earlier = found.get(place)
        capacity = known.slots * max(1, known.most_children)
        if earlier is not None:
            # Every child of a worker that scales describes the capacity of the whole worker.
            capacity = earlier.capacity if known.most_children else earlier.capacity + capacity
        found[place] = ServingWorker(_read_queues(known.queues), capacity)
    return list(found.values())


def _read_queues(tiers: Sequence[str]) -> frozenset[str]:
    """Return the names of the queues of another worker; empty, for every queue, if this version
    cannot read them."""
    try:
        return name_queues(tiers)
    except ValueError:
        return frozenset()


def share_demand(
    loads: Iterable[QueueLoad], capacity: int, others: Sequence[ServingWorker]
) -> WorkerDemand:
    """Add up the loads of the queues of a worker with this capacity. Paused queues, and those whose
    ready jobs are held, count only with their running jobs. Passes the other workers once: there
    may be thousands of them and of queues."""
    total, everywhere, rivals = WorkerDemand(), 0, Counter[str]()
    for other in others:
        everywhere += 0 if other.queues else other.capacity
        for queue in other.queues:
            rivals[queue] += other.capacity
    for load in loads:
        others_capacity = everywhere + rivals[load.queue]
        total = _add(total, load, capacity / (capacity + others_capacity))
    return total


def _add(total: WorkerDemand, load: QueueLoad, share: float) -> WorkerDemand:
    ready = 0 if load.paused or load.held else load.ready
    run_s = ASSUMED_RUN_S if load.mean_run_s is None else load.mean_run_s
    return WorkerDemand(
        ready=total.ready + ready,
        running=total.running + load.running,
        oldest_s=max(total.oldest_s, load.oldest_s if ready else 0.0),
        slots=total.slots + share * load.demand_slots,
        work_s=total.work_s + share * ready * run_s,
        mean_run_s=max(total.mean_run_s, run_s if ready else 0.0),
    )

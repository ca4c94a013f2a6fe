"""The table of all metrics: names, kinds, labels, and which process serves each of them.

1. Series of queues, schedules and the fleet are at `windlass serve` alone. Every instance of it has
   the same numbers: aggregate them with `max`.
2. Series of a process are at workers alone: aggregate them with `sum`.
3. `UP` is at both, about the process that serves it.

No label has the name of a worker, a job or a tenant. Each label has a bounded number of values;
others count under `core.history.OTHER`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

#: The most queues, and the most schedules, that have series of their own.
MAX_VALUES: Final = 200
#: The most pairs of queue and task. A worker bounds its tasks and queues too, by `MAX_VALUES` each.
MAX_PAIRS: Final = 1_000


class Kind(StrEnum):
    """The type of a metric, as Prometheus names it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Place(StrEnum):
    """The process that serves a metric."""

    SERVE = "serve"
    WORKER = "worker"
    BOTH = "both"


class Metric(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    place: Place
    text: str  # for HELP lines and the reference


class Histogram(msgspec.Struct, frozen=True):
    """The value of a histogram. One more bucket than bounds; counts are not cumulative."""

    bounds_s: tuple[float, ...]
    buckets: tuple[int, ...]
    sum_s: float


class Family(msgspec.Struct, frozen=True):
    """A metric with its values, by the values of its labels."""

    metric: Metric
    values: tuple[tuple[tuple[str, ...], float | Histogram], ...]


UP: Final = Metric(
    "windlass_up",
    Kind.GAUGE,
    (),
    Place.BOTH,
    "1 if the engine answers this process, 0 if not. At 0, serve has no other series.",
)

# ------------------------------------------------------------------------------------ at the server

QUEUE_JOBS: Final = Metric(
    "windlass_queue_jobs",
    Kind.GAUGE,
    ("queue", "state"),
    Place.SERVE,
    "Stored jobs by queue and state.",
)
QUEUE_OLDEST_READY: Final = Metric(
    "windlass_queue_oldest_ready_seconds",
    Kind.GAUGE,
    ("queue",),
    Place.SERVE,
    "How long the next job of the queue has been ready; 0 without one.",
)
QUEUE_DEMAND: Final = Metric(
    "windlass_queue_demand_slots",
    Kind.GAUGE,
    ("queue",),
    Place.SERVE,
    "Slots that the queue needs to keep up and to drain its backlog in time.",
)
QUEUE_DRAIN: Final = Metric(
    "windlass_queue_drain_seconds",
    Kind.GAUGE,
    ("queue",),
    Place.SERVE,
    "Time until no job of the queue is ready, at the rates of the last minutes; +Inf if never.",
)
QUEUE_PAUSED: Final = Metric(
    "windlass_queue_paused",
    Kind.GAUGE,
    ("queue",),
    Place.SERVE,
    "1 if the queue is paused, 0 if not.",
)
JOBS_ENQUEUED: Final = Metric(
    "windlass_jobs_enqueued_total",
    Kind.COUNTER,
    ("queue", "task"),
    Place.SERVE,
    "Enqueued jobs.",
)
SESSIONS_LOST: Final = Metric(
    "windlass_sessions_lost_total",
    Kind.COUNTER,
    (),
    Place.SERVE,
    "Sessions of workers that ended without being closed: the lease expired, or the worker died.",
)
WORKERS: Final = Metric(
    "windlass_workers", Kind.GAUGE, (), Place.SERVE, "Live workers, of all machines."
)
SLOTS: Final = Metric(
    "windlass_slots",
    Kind.GAUGE,
    ("state",),
    Place.SERVE,
    "Slots of all live workers, by state: busy (with a claimed job) or free.",
)
SCHEDULE_LAG: Final = Metric(
    "windlass_schedule_lag_seconds",
    Kind.GAUGE,
    ("schedule",),
    Place.SERVE,
    "How long an occurrence of the schedule has been due; 0 if none is.",
)

# --------------------------------------------------------------------------------------- at workers

JOBS_FINISHED: Final = Metric(
    "windlass_jobs_finished_total",
    Kind.COUNTER,
    ("queue", "task", "outcome"),
    Place.WORKER,
    "Runs that ended, by outcome: succeeded, retried, dead, snoozed or released.",
)
JOB_WAIT: Final = Metric(
    "windlass_job_wait_seconds",
    Kind.HISTOGRAM,
    ("queue",),
    Place.WORKER,
    "How long jobs were ready before their run began.",
)
JOB_RUN: Final = Metric(
    "windlass_job_run_seconds",
    Kind.HISTOGRAM,
    ("queue", "task"),
    Place.WORKER,
    "How long runs took.",
)
STALE_OUTCOMES: Final = Metric(
    "windlass_stale_outcomes_total",
    Kind.COUNTER,
    ("verb",),
    Place.WORKER,
    "Outcomes that the engine rejected because the job was reassigned.",
)
WORKER_SLOTS: Final = Metric(
    "windlass_worker_slots",
    Kind.GAUGE,
    ("state",),
    Place.WORKER,
    "Slots of this worker, by state: busy (a job runs) or free.",
)
ENGINE_CALL: Final = Metric(
    "windlass_engine_call_seconds",
    Kind.HISTOGRAM,
    ("verb", "outcome"),
    Place.WORKER,
    "How long calls of the engine took, by verb and outcome: ok or error.",
)
LAST_CLAIM: Final = Metric(
    "windlass_last_claim_timestamp_seconds",
    Kind.GAUGE,
    (),
    Place.WORKER,
    "When this worker last claimed a job, in Unix time; 0 before the first.",
)
CHILDREN: Final = Metric(
    "windlass_children",
    Kind.GAUGE,
    ("kind",),
    Place.WORKER,
    "Child processes of this worker, by kind: shared or solo.",
)
CHILDREN_STARTED: Final = Metric(
    "windlass_children_started_total",
    Kind.COUNTER,
    (),
    Place.WORKER,
    "Child processes that this worker has started.",
)
MEMORY: Final = Metric(
    "windlass_memory_bytes",
    Kind.GAUGE,
    ("process",),
    Place.WORKER,
    "Resident memory of the supervisor, and of its children together.",
)

#: All metrics, in the order in which they are served.
TABLE: Final[tuple[Metric, ...]] = (
    UP,
    QUEUE_JOBS,
    QUEUE_OLDEST_READY,
    QUEUE_DEMAND,
    QUEUE_DRAIN,
    QUEUE_PAUSED,
    JOBS_ENQUEUED,
    SESSIONS_LOST,
    WORKERS,
    SLOTS,
    SCHEDULE_LAG,
    JOBS_FINISHED,
    JOB_WAIT,
    JOB_RUN,
    STALE_OUTCOMES,
    WORKER_SLOTS,
    ENGINE_CALL,
    LAST_CLAIM,
    CHILDREN,
    CHILDREN_STARTED,
    MEMORY,
)

"""The ratios to reach: windlass against others in one run, by medians."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from benchmarks.peers.measures import MEASURES
from benchmarks.peers.results import PeerResults

REDIS: Final = "windlass-redis"
FULL: Final = "windlass-full"
_CELERY: Final = ("celery-prefork", "celery-threads")
_PYTHON_ON_REDIS: Final = (*_CELERY, "dramatiq", "huey-redis", "taskiq")
_PYTHON: Final = (*_PYTHON_ON_REDIS, "huey-sqlite", "pgqueuer")
_ALL: Final = (*_PYTHON, "bullmq", "sidekiq")
_DRAIN: Final = ("drain-sync-1", "drain-async-1")
_DRAIN_2: Final = ("drain-sync-2", "drain-async-2")
_CPU: Final = ("cpu-sync-2", "cpu-async-2")


class PeerTarget(msgspec.Struct, frozen=True):
    """A bound for ours / theirs; of several systems and measures, the best one counts."""

    title: str
    ours: str
    measures: tuple[str, ...]
    against: tuple[str, ...]
    bound: float
    against_measures: tuple[str, ...] = ()

    @property
    def more_is_better(self) -> bool:
        return MEASURES[self.measures[0]].more_is_better


class Reached(msgspec.Struct, frozen=True):
    target: PeerTarget
    ours: float
    theirs: float
    peer: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def is_met(self) -> bool:
        bound = self.target.bound
        return self.ratio >= bound if self.target.more_is_better else self.ratio <= bound


def _on_postgres(burden: str, ours: str, peers: str = "") -> Iterator[PeerTarget]:
    """The targets on PostgreSQL, with or without a burden. Only windlass is measured with finished
    jobs."""
    pgqueuer, graphile = f"pgqueuer{peers}", f"graphile-worker{peers}"
    all_peers = (pgqueuer, graphile, f"procrastinate{peers}")
    ours = f"windlass-postgres{ours}"
    for title, measures, against, bound in (
        ("drain, one process, against PgQueuer", _DRAIN, (pgqueuer,), 1.5),
        ("drain, two processes, against PgQueuer", _DRAIN_2, (pgqueuer,), 1.2),
        ("drain, one process, against Graphile Worker", _DRAIN, (graphile,), 0.6),
        ("drain, two processes, against Graphile Worker", _DRAIN_2, (graphile,), 0.6),
        ("enqueue one by one, against the best", ("enqueue",), all_peers, 1.0),
        ("bulk, against the best", ("bulk",), all_peers, 1.0),
        ("pick-up p50, against the best", ("pick-up-p50",), all_peers, 1.0),
    ):
        yield PeerTarget(f"PostgreSQL{burden}: {title}", ours, measures, against, bound)


TARGETS: Final = (
    PeerTarget(
        "enqueue one by one, Redis, against the best of Sidekiq, Dramatiq, Huey and BullMQ",
        REDIS,
        ("enqueue",),
        ("sidekiq", "dramatiq", "huey-redis", "huey-sqlite", "bullmq"),
        1.0,
    ),
    PeerTarget(
        "enqueue one by one, Redis, against the bare loop",
        REDIS,
        ("enqueue",),
        (REDIS,),
        0.7,
        ("limit-enqueue",),
    ),
    PeerTarget(
        "bulk, Redis, against the best Python queue on any store", REDIS, ("bulk",), _PYTHON, 1.2
    ),
    PeerTarget("bulk, Redis, against Sidekiq", REDIS, ("bulk",), ("sidekiq",), 0.6),
    PeerTarget("bulk, SQLite full, against PgQueuer", FULL, ("bulk",), ("pgqueuer",), 1.0),
    PeerTarget(
        "100 coroutines, Redis, against the best Python queue with coroutines",
        REDIS,
        ("concurrent",),
        ("taskiq", "pgqueuer"),
        5.0,
    ),
    PeerTarget("stored, short arguments, against BullMQ", REDIS, ("stored",), ("bullmq",), 0.5),
    PeerTarget("stored, long argument, against BullMQ", REDIS, ("stored-long",), ("bullmq",), 0.5),
    PeerTarget("stored, short arguments, against Dramatiq", REDIS, ("stored",), ("dramatiq",), 0.8),
    PeerTarget(
        "stored, long argument, against Dramatiq", REDIS, ("stored-long",), ("dramatiq",), 0.8
    ),
    PeerTarget("drain, Redis, one process, against BullMQ", REDIS, _DRAIN, ("bullmq",), 3.0),
    PeerTarget(
        "drain, Redis, one process, against the best Python queue on Redis",
        REDIS,
        _DRAIN,
        _PYTHON_ON_REDIS,
        12.0,
    ),
    PeerTarget(
        "CPU per job, Redis, two processes, against the best of Sidekiq and BullMQ",
        REDIS,
        _CPU,
        ("sidekiq", "bullmq"),
        0.5,
    ),
    PeerTarget("drain, SQLite full, against Huey SQLite", FULL, _DRAIN, ("huey-sqlite",), 6.0),
    PeerTarget("pick-up p50, Redis, against the best", REDIS, ("pick-up-p50",), _ALL, 1.2),
    PeerTarget("idle memory, Redis, against Dramatiq", REDIS, ("idle-memory",), ("dramatiq",), 1.2),
    *_on_postgres("", ""),
    *_on_postgres(", old snapshot", "-snapshot", "-snapshot"),
    *_on_postgres(", 10 million finished", "-finished"),
)


def reached(results: PeerResults, target: PeerTarget) -> Reached | None:
    """The ratio that was reached; None unless both sides were measured."""
    ours = best(results, (target.ours,), target.measures)
    theirs = best(results, target.against, target.against_measures or target.measures)
    if ours is None or theirs is None or not theirs[1]:
        return None
    return Reached(target, ours[1], theirs[1], theirs[0])


def best(
    results: PeerResults, systems: Iterable[str], measures: Iterable[str]
) -> tuple[str, float] | None:
    """The best system for any of these measures, with its median."""
    pairs = [(system, measure) for measure in measures for system in systems]
    found = [
        (system, measure, median)
        for system, measure in pairs
        if (median := results.median(system, measure)) is not None
    ]
    if not found:
        return None
    pick = max if MEASURES[found[0][1]].more_is_better else min
    system, _, value = pick(found, key=lambda one: one[2])
    return system, value

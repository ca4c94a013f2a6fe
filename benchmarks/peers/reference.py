"""Earlier figures of the peers, from another run on a machine with two cores.

A figure that is far worse than its earlier one probably shows a mistake in an adapter or a busy
machine, not the peer. Such a figure is flagged, and the run should be repeated.
"""

from __future__ import annotations

from typing import Final

from benchmarks.peers.measures import MEASURES

_COLUMNS: Final = (
    "enqueue",
    "bulk",
    "drain-1",
    "drain-2",
    "pick-up-p50",
    "pick-up-p99",
    "stored",
    "idle-memory",
)
_ROWS: Final[dict[str, tuple[float | None, ...]]] = {
    "celery-prefork": (1370, None, 580, 663, 3.2, 8.2, 1177, 93),
    "celery-threads": (1370, None, 567, 1244, 3.0, 7.6, 1177, 50),
    "dramatiq": (3382, None, 1925, 3946, 9.7, 429, 458, 54),
    "huey-redis": (3902, None, 1972, 3324, 1.0, 3.9, 175, 34),
    "huey-sqlite": (3017, None, 2390, 2431, 54.8, 104, 210, 33),
    "taskiq": (1740, None, 1877, 3552, 1.4, 2.0, 219, 94),
    "pgqueuer": (1540, 40836, 8963, 17639, 3.0, 5.3, 524, 48),
    "bullmq": (4265, 19551, 11800, 10353, 1.6, 4.6, 642, 68),
    "sidekiq": (4404, 100983, 4596, 8055, 0.9, 1.7, 217, 30),
}
#: How much worse a figure may be.
TOLERANCE: Final = 2.0


def earlier(system: str, measure: str) -> float | None:
    """The earlier figure; drains of all kinds of tasks are compared."""
    row = dict(zip(_COLUMNS, _ROWS.get(system, ()), strict=False))
    name = measure.replace("drain-sync", "drain").replace("drain-async", "drain")
    return row.get(name)


def is_suspect(system: str, measure: str, value: float) -> bool:
    """Whether a figure is worse than half of its earlier one."""
    known = earlier(system, measure)
    if known is None or not value:
        return False
    worse = known / value if MEASURES[measure].more_is_better else value / known
    return worse > TOLERANCE

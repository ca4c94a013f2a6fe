"""Small results, as a run would leave them."""

from __future__ import annotations

from benchmarks.peers.results import Measured, MissingSystem, PeerResults, Series

MACHINE = {
    "cores": "2",
    "processor": "a processor",
    "memory": "8 GB",
    "system": "Linux",
    "Redis": "7.0.15",
}
VALUES: dict[tuple[str, str], list[float]] = {
    ("windlass-redis", "enqueue"): [3000.0, 2900.0, 3300.0],
    ("windlass-redis", "limit-enqueue"): [4000.0, 4000.0, 4000.0],
    ("windlass-redis", "drain-sync-1"): [20000.0, 21000.0, 22000.0],
    ("windlass-redis", "drain-async-1"): [24000.0, 24000.0, 24000.0],
    ("windlass-redis", "stored"): [160.0],
    ("windlass-redis", "unfinished"): [0.0],
    ("bullmq", "enqueue"): [4000.0, 5000.0, 4500.0],
    ("bullmq", "drain-async-1"): [6000.0, 6000.0, 6000.0],
    ("bullmq", "stored"): [310.0],
    ("bullmq", "unfinished"): [3.0],
    ("sidekiq", "enqueue"): [4400.0, 4400.0, 4400.0],
}


def sample() -> PeerResults:
    return PeerResults(
        machine=MACHINE,
        runs=3,
        is_quick=False,
        minutes=12.0,
        recovery_s=90.0,
        systems=[measured("windlass-redis", is_ours=True), measured("bullmq"), measured("sidekiq")],
        series=[Series(*key, list(values)) for key, values in VALUES.items()],
        left_out=[MissingSystem("Celery prefork", "`pip` failed: no network")],
    )


def measured(name: str, *, is_ours: bool = False) -> Measured:
    return Measured(name, name.title(), {name: "1.0"}, "as it is", "redis", "Python", is_ours)

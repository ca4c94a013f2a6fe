"""What the workloads measure: the title, the unit, and which direction is better."""

from __future__ import annotations

from typing import Final

import msgspec


class PeerMeasure(msgspec.Struct, frozen=True):
    """How a measure is shown and compared."""

    title: str
    unit: str
    more_is_better: bool = False


def _rate(title: str) -> PeerMeasure:
    return PeerMeasure(title, "jobs/s", more_is_better=True)


def _processes(number: int) -> str:
    return "one process" if number == 1 else "two processes"


_DRAINS: Final = {
    "sync": "no-op functions",
    "async": "no-op coroutines",
    "io": "1 ms of I/O",
}

MEASURES: Final[dict[str, PeerMeasure]] = {
    "enqueue": _rate("enqueue one by one"),
    "bulk": _rate("enqueue in bulk"),
    "concurrent": _rate("enqueue, 100 coroutines at once"),
    **{
        f"drain-{kind}-{number}": _rate(f"drain, {title}, {_processes(number)}")
        for kind, title in _DRAINS.items()
        for number in (1, 2)
    },
    **{
        f"cpu-{kind}-{number}": PeerMeasure(
            f"CPU of all processes, {title}, {_processes(number)}", "us/job"
        )
        for kind, title in _DRAINS.items()
        for number in (1, 2)
    },
    "pick-up-p50": PeerMeasure("pick-up p50", "ms"),
    "pick-up-p99": PeerMeasure("pick-up p99", "ms"),
    "stored": PeerMeasure("stored per queued job, three short arguments", "bytes"),
    "stored-long": PeerMeasure("stored per queued job, a text of 105 characters", "bytes"),
    "idle-cpu": PeerMeasure("idle worker, CPU", "% of a core"),
    "idle-memory": PeerMeasure("idle worker, memory (PSS)", "MB"),
    "import": PeerMeasure("import of the library", "ms"),
    "unfinished": PeerMeasure("unfinished after kill -9, of 20", "jobs"),
    "recovery": PeerMeasure("kill -9 until all jobs ended", "s"),
    "limit-enqueue": _rate("bare loop, one by one"),
    "limit-bulk": _rate("bare loop, in bulk"),
    "limit-drain": _rate("bare loop, claim and finish"),
}

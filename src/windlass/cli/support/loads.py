"""The load and the activity of queues and tasks, as `windlass status` and `top` show them: rows of
tables, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from windlass.cli.support.output import table_width
from windlass.cli.support.wording import rate, seconds, share, span
from windlass.core.queues.load import QueueLoad
from windlass.engine.contract import Stats
from windlass.history import Activity

QUEUE_COLUMNS: Final = (
    *("queue", ">ready", ">running", ">next waits", ">in/s", ">out/s", ">wait p50", ">p99"),
    *(">run p50", ">p99", ">failed", ">drains in", ">demand"),
)
TASK_COLUMNS: Final = (
    *("task", ">enqueued", ">runs", ">failed", ">wait p50", ">p99", ">run p50", ">p99"),
)


#: Positions in `QUEUE_COLUMNS` that a narrow screen leaves out: first what the counts of queues
#: have too, then also the quantiles.
_LEFT_OUT: Final[Sequence[Sequence[int]]] = ((), (1, 2, 3), (1, 2, 3, 6, 7, 8, 9))


def fit_queue_rows(
    rows: Sequence[Sequence[object]], width: int
) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Leave out columns of the table of queues until no cell is cut on a screen of this width."""
    columns: Sequence[str] = QUEUE_COLUMNS
    shown = list(rows)
    for left_out in _LEFT_OUT:
        kept = [place for place in range(len(QUEUE_COLUMNS)) if place not in left_out]
        columns = [QUEUE_COLUMNS[place] for place in kept]
        shown = [[row[place] for place in kept] for row in rows]
        names = [column.lstrip(">") for column in columns]
        if table_width([names, *shown]) <= width:
            break
    return columns, shown


def queue_row(load: QueueLoad, activity: Activity | None) -> tuple[object, ...]:
    """The row of a queue. Rates and quantiles are those of the activity."""
    return (
        load.queue,
        load.ready,
        load.running,
        span(int(load.oldest_s * 1000)) if load.ready else "",
        rate(load.in_rate if activity is None else activity.in_rate),
        rate(load.out_rate if activity is None else activity.out_rate),
        *_quantiles(activity),
        share(None if activity is None else activity.failure_rate),
        drain(load),
        load.demand_slots,
    )


def task_rows(tasks: Mapping[str, Activity]) -> list[tuple[object, ...]]:
    return [
        (name, one.enqueued, one.runs, share(one.failure_rate), *_quantiles(one))
        for name, one in sorted(tasks.items())
    ]


def describe_stats(stats: Stats) -> dict[str, Any]:
    """The counters for JSON, in which no name has two parts."""
    enqueued: dict[str, dict[str, int]] = {}
    for (queue, task), number in sorted(stats.enqueued.items()):
        enqueued.setdefault(queue, {})[task] = number
    return {**msgspec.structs.asdict(stats), "enqueued": enqueued}


def drain(load: QueueLoad) -> str:
    """Describe the time to drain a queue."""
    if load.drain_s is not None:
        return seconds(load.drain_s) if load.drain_s else ""
    if load.paused:
        return "paused"
    if load.held:
        return "held"
    return "never" if load.out_rate or load.in_rate else "unknown"


def _quantiles(activity: Activity | None) -> Sequence[str]:
    if activity is None:
        return "", "", "", ""
    times = activity.wait_p50_s, activity.wait_p99_s, activity.run_p50_s, activity.run_p99_s
    return tuple(map(seconds, times))

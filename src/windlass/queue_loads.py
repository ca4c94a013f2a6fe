"""Read the load of queues: their jobs now, and their rates in the last minutes.

1. `read_loads` reads counters, settings, the engine's clock and the recent history. It reads no
   job, and its cost does not grow with the number of stored jobs.
2. `read_loads_and_activity` also returns what the queues did in these minutes, for `windlass top`.

Jobs that were enqueued since the last sample are not in the rate yet: they are among the ready and
running jobs, which are counted now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from windlass.core.history import MINUTE_MS, OTHER, Summary
from windlass.core.queues.labels import queue_of
from windlass.core.queues.load import DRAIN_TARGET_S, QueueFlow, QueueLoad, measure_load
from windlass.core.states import State
from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine, Stats
from windlass.history import Activity, HistoryWindow, read_steps

#: The rates are of this time, in milliseconds.
WINDOW_MS: Final = 5 * MINUTE_MS


def read_loads(
    engine: Engine,
    queues: Sequence[str] = (),
    window_ms: int = WINDOW_MS,
    drain_target_s: float = DRAIN_TARGET_S,
    stats: Stats | None = None,
) -> list[QueueLoad]:
    """Read the load of these queues, in this order, or of all known queues by name. A queue that
    the engine does not know has no jobs and no demand. `stats` are counters that were just
    read."""
    return read_loads_and_activity(engine, queues, window_ms, drain_target_s, stats)[0]


def read_loads_and_activity(
    engine: Engine,
    queues: Sequence[str] = (),
    window_ms: int = WINDOW_MS,
    drain_target_s: float = DRAIN_TARGET_S,
    stats: Stats | None = None,
) -> tuple[list[QueueLoad], Mapping[str, Activity]]:
    """Read the load of queues, and what they did in the window."""
    stats = engine.stats() if stats is None else stats
    paused = {record.queue for record in engine.queues() if record.paused}
    window = _read_window(engine, window_ms)
    jobs, ages_ms = count_jobs(stats), _find_oldest(stats)
    names = queues or sorted({*jobs, *paused, *window.queues} - {OTHER})
    found = (_load_of(name, jobs.get(name, {}), ages_ms, name in paused) for name in names)
    loads = [measure_load(one, _flow_of(one.queue, window), drain_target_s) for one in found]
    activity = {name: window.activity(own) for name, own in window.queues.items()}
    return loads, activity


def _read_window(engine: Engine, window_ms: int) -> HistoryWindow:
    """Read the last minutes, and one before: its sample is that from which enqueued jobs count."""
    now_ms = read_clock(engine)
    window = HistoryWindow(now_ms)
    for step in read_steps(engine, now_ms - window_ms - MINUTE_MS, now_ms, "minute"):
        window.add(step)
    return window


def _flow_of(queue: str, window: HistoryWindow) -> QueueFlow:
    own = window.queues.get(queue)
    if own is None:
        return QueueFlow()
    summary, (in_rate, out_rate) = Summary(own.counts), window.rates(own)
    outcomes = summary.outcomes
    returned = outcomes["retried"] + outcomes["snoozed"] + outcomes["released"]
    return QueueFlow(
        in_rate=in_rate,
        out_rate=out_rate,
        return_rate=returned / window.span_s,
        release_rate=outcomes["released"] / window.span_s,
        mean_run_s=summary.mean_run_s,
    )


def count_jobs(stats: Stats) -> dict[str, dict[State, int]]:
    """The number of jobs by queue and state, with those that require labels."""
    jobs: dict[str, dict[State, int]] = {}
    for line, counts in stats.queues.items():
        own = jobs.setdefault(queue_of(line), {})
        for state, number in counts.items():
            own[state] = own.get(state, 0) + number
    return jobs


def _find_oldest(stats: Stats) -> dict[str, int]:
    """How long the next job of each queue has been ready, in milliseconds."""
    ages_ms: dict[str, int] = {}
    for line, age_ms in stats.oldest_ready_ms.items():
        queue = queue_of(line)
        ages_ms[queue] = max(ages_ms.get(queue, 0), age_ms)
    return ages_ms


def _load_of(
    queue: str, counts: Mapping[State, int], ages_ms: Mapping[str, int], is_paused: bool
) -> QueueLoad:
    return QueueLoad(
        queue=queue,
        ready=counts.get(State.READY, 0),
        running=counts.get(State.RUNNING, 0),
        scheduled=counts.get(State.SCHEDULED, 0) + counts.get(State.RETRYING, 0),
        dead=counts.get(State.DEAD, 0),
        oldest_s=ages_ms.get(queue, 0) / 1000,
        paused=is_paused,
        held=counts.get(State.READY, 0) > 0 and queue not in ages_ms,
    )

"""The load of a queue: its jobs, its rates, the time to drain it, and the slots that it needs.

1. `QueueFlow` is what the history says of a recent window: rates and the mean time of a run.
2. `QueueLoad` adds the jobs of the queue at this instant.
3. `drain_time_s` estimates the time until no job is ready, and `count_slots` the demand for slots.

`windlass top`, `/v1/scale`, `/metrics` and the autoscaler of a worker show and use these numbers.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

#: Slots are demanded so that the ready jobs start within this time, in seconds.
DRAIN_TARGET_S: Final = 60.0
#: The time of a run, in seconds, as long as no run of the queue has ended in the window.
ASSUMED_RUN_S: Final = 1.0
#: The shortest mean time of a run, in seconds. A job occupies a slot a little longer than its code
#: runs.
LEAST_RUN_S: Final = 0.001
#: Ready jobs that end within this time at the measured rate, in seconds, are no backlog: a queue
#: that keeps up has some of them at most instants, and rates in and out that are nearly equal.
KEEPS_UP_S: Final = 5.0
#: Digits behind the point, of a demand before it is rounded up: sums of fractions are not exact.
_DIGITS: Final = 6


class QueueFlow(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue did in a window, per second."""

    in_rate: float = 0.0  # enqueued jobs
    out_rate: float = 0.0  # runs that ended, in any way
    return_rate: float = 0.0  # runs whose job runs again: retried, snoozed and released
    release_rate: float = 0.0  # among them: released jobs, which are ready again at once
    mean_run_s: float | None = None  # None if no run has ended

    @property
    def start_rate(self) -> float:
        """How many jobs leave the line of ready jobs. A worker that cannot run a job releases it,
        and the job never left."""
        return self.out_rate - self.release_rate

    @property
    def net_rate(self) -> float:
        """How many jobs leave the queue for good, above those that enter it; below 0 if the queue
        grows. A retried job is still to run."""
        return self.out_rate - self.return_rate - self.in_rate


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a queue at one instant."""

    queue: str
    ready: int = 0
    running: int = 0
    scheduled: int = 0  # scheduled and retrying
    dead: int = 0
    oldest_s: float = 0.0  # how long its next job has been ready; 0 if none is
    in_rate: float = 0.0  # enqueued jobs per second
    out_rate: float = 0.0  # runs that ended, per second
    mean_run_s: float | None = None  # None if no run has ended in the window
    #: None: never, because it grows, is paused, its jobs are held, or no run has ended.
    drain_s: float | None = 0.0
    demand_slots: int = 0  # how many slots it needs
    paused: bool = False
    held: bool = False  # no ready job is next in line: all are held, or must run alone


def measure_load(
    jobs: QueueLoad, flow: QueueFlow, drain_target_s: float = DRAIN_TARGET_S
) -> QueueLoad:
    """Add rates, drain time and demand to the jobs of a queue."""
    return msgspec.structs.replace(
        jobs,
        in_rate=flow.in_rate,
        out_rate=flow.out_rate,
        mean_run_s=flow.mean_run_s,
        drain_s=drain_time_s(jobs, flow),
        demand_slots=count_slots(jobs, flow, drain_target_s),
    )


def drain_time_s(jobs: QueueLoad, flow: QueueFlow) -> float | None:
    """Estimate the time until no job is ready, if the rates stay as they are. None: never, or
    unknown."""
    if not jobs.ready:
        return 0.0
    if jobs.paused or jobs.held:
        return None
    if jobs.ready <= flow.start_rate * KEEPS_UP_S:
        return jobs.ready / flow.start_rate
    return jobs.ready / flow.net_rate if flow.net_rate > 0 else None


def count_slots(jobs: QueueLoad, flow: QueueFlow, drain_target_s: float = DRAIN_TARGET_S) -> int:
    """How many slots the queue needs: those for the jobs that arrive, at least those in use, and
    those that start the ready jobs within the drain target.

    The jobs that arrive include those that run again. A ready job needs at most one slot, however
    long it runs. Jobs of a paused queue cannot start and need none. Held jobs need one slot
    together: a worker that can run them may be the next to start."""
    if drain_target_s <= 0:
        raise ValueError(f"drain_target_s must be above 0, found {drain_target_s!r}")
    if jobs.paused:
        return jobs.running
    run_s = max(ASSUMED_RUN_S if flow.mean_run_s is None else flow.mean_run_s, LEAST_RUN_S)
    arriving = (flow.in_rate + flow.return_rate) * run_s
    ready = min(jobs.ready, 1) if jobs.held else jobs.ready
    waiting = ready * min(1.0, run_s / drain_target_s)
    needed = ceil(round(max(jobs.running, arriving) + waiting, _DIGITS))
    return max(needed, min(jobs.ready, 1))

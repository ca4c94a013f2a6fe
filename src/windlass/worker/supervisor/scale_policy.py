"""The policy of autoscaling: how many children a worker needs. No input, output or clock.

1. Up at once: the slots are busy, ready jobs wait, and at the present pace they do not end within
   the drain target. The new number covers the demand, so a large step is one decision.
2. Down slowly: one child at a time, after the worker has needed fewer children for `hold_s`. Each
   further child takes `step_s`. Every moment of need begins the time again.
3. Between the two is a margin: scaling down leaves `BUSY` of the slots in use at most, and scaling
   up begins there. So a steady load does not make the number swing.
4. A gap between two observations begins everything again, because the engine was away: what
   happened meanwhile is unknown.

The pace is that of all workers together: how fast ready and running jobs become fewer. Jobs that
only move from ready to running, as into the slots of a new child, make no pace.
"""

from __future__ import annotations

from collections import deque
from math import ceil, inf
from typing import Final, NamedTuple

from windlass.core.queues.load import DRAIN_TARGET_S, KEEPS_UP_S
from windlass.worker.maintenance.demand import WorkerDemand

#: The pace is that of the last observations, in seconds.
PACE_S: Final = 30.0
#: Slots are busy when this share of them is in use.
BUSY: Final = 0.8


class ScalePeriods(NamedTuple):
    """The times of autoscaling, in seconds."""

    look_s: float = 2.0  # between two observations while the slots are busy
    rest_s: float = 10.0  # and while they are not
    hold_s: float = 60.0  # of a lower need, before the first child ends
    step_s: float = 10.0  # and before each further one


#: The times of a worker; tests use shorter ones.
SCALE_PERIODS: Final = ScalePeriods()


class ChildCount(NamedTuple):
    """The shared children of a worker at one moment."""

    number: int  # those that claim jobs, and those that are starting
    slots: int  # of the children that claim jobs
    busy: int  # slots in use, also in children that finish their jobs and claim no more

    @property
    def is_busy(self) -> bool:
        return self.busy >= BUSY * self.slots


class ScaleDecision(NamedTuple):
    """A new number of children, and the reason."""

    number: int
    demand_slots: int
    drain_s: float | None  # at the present pace; infinite if never, None if unknown
    busy_slots: int  # the most since the number was too high


class ScalePolicy:
    """Decide how many children a worker needs, observation by observation."""

    def __init__(self, least: int, most: int, slots: int, periods: ScalePeriods) -> None:
        self._least = least
        self._most = most
        self._slots = slots
        self._periods = periods
        self._gap_s = 3 * max(periods.look_s, periods.rest_s)
        self._seen: deque[tuple[float, int]] = deque()  # when, and the ready and running jobs
        self._up_again_at = -inf
        self._low_since: float | None = None
        self._peak = 0  # the most busy slots since then

    def decide(
        self, now: float, children: ChildCount, demand: WorkerDemand
    ) -> ScaleDecision | None:
        """Return the new number of children; None to keep the number."""
        drain_s = self._observe(now, demand)
        number = self._find_number_up(now, children, demand, drain_s)
        if number > children.number:
            self._settle(now, demand)
        elif self._is_low(now, children, demand):
            number = children.number - 1
        else:
            return None
        return ScaleDecision(number, ceil(demand.slots), drain_s, self._peak)

    def forget(self) -> None:
        """Begin again: for a while the policy has seen nothing, or did not decide."""
        self._seen.clear()
        self._low_since = None

    def _observe(self, now: float, demand: WorkerDemand) -> float | None:
        """Note the observation. Return the time to drain the ready jobs at the present pace;
        infinite if they do not become fewer, None if the pace is unknown."""
        if self._seen and now - self._seen[-1][0] > self._gap_s:
            self.forget()
        self._seen.append((now, demand.ready + demand.running))
        while self._seen[0][0] < now - PACE_S:
            self._seen.popleft()
        (since, before), (_, jobs) = self._seen[0], self._seen[-1]
        if not demand.ready:
            return 0.0
        if len(self._seen) == 1:
            return None
        return demand.ready * (now - since) / (before - jobs) if jobs < before else inf

    def _find_number_up(
        self, now: float, children: ChildCount, demand: WorkerDemand, drain_s: float | None
    ) -> int:
        is_late = drain_s is None or drain_s > DRAIN_TARGET_S
        if not is_late or now < self._up_again_at:
            return 0
        if not (children.slots and children.is_busy and is_backlog(demand, children.slots)):
            return 0
        are_starting = children.slots < children.number * self._slots
        one_more = children.number + (0 if are_starting else 1)
        return min(self._most, max(one_more, ceil(demand.slots / self._slots)))

    def _settle(self, now: float, demand: WorkerDemand) -> None:
        """Measure the pace again, with the new children, before the next step up: for two
        runs of a job, because jobs that started together end together."""
        self.forget()
        least_s = 2 * self._periods.look_s
        self._up_again_at = now + min(PACE_S, max(least_s, 2 * demand.mean_run_s))

    def _is_low(self, now: float, children: ChildCount, demand: WorkerDemand) -> bool:
        """Return whether one child is to end now."""
        needed = max(self._least, self._count_needed(children, demand))
        if needed >= children.number:
            self._low_since = None
            return False
        if self._low_since is None:
            self._low_since, self._peak = now, 0
        self._peak = max(self._peak, children.busy)
        if now - self._low_since < self._periods.hold_s:
            return False
        self._low_since = now - self._periods.hold_s + self._periods.step_s
        return True

    def _count_needed(self, children: ChildCount, demand: WorkerDemand) -> int:
        """Return the number of children for the jobs that run here and the share of ready ones.
        The demand of the queues is no measure here: it lags behind the end of a load."""
        slots = children.busy + demand.work_s / DRAIN_TARGET_S
        return ceil(slots / (BUSY * self._slots))


def is_backlog(demand: WorkerDemand, slots: int) -> bool:
    """Return whether ready jobs wait for longer than in a queue that keeps up."""
    if not demand.ready:
        return False
    return demand.oldest_s > KEEPS_UP_S or demand.work_s > KEEPS_UP_S * slots

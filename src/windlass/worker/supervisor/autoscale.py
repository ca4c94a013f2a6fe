"""Autoscaling: change the number of shared children between two limits, by demand.

1. At each look the supervisor counts its busy slots, in shared memory. Only if it may scale, it
   requests the demand from the maintenance thread: up if its slots are busy, otherwise down. A
   worker that is idle with its least number of children, or busy with its largest number, asks
   nothing of the engine.
2. The demand arrives as a post, and `scale_policy` decides. If the engine does not answer, nothing
   arrives, and the number of children stays.
3. To scale up, the supervisor first lets leaving children claim again, then starts new ones.
4. To scale down, the child with the fewest running jobs leaves: it claims no more, and its jobs
   finish without a deadline. When it is idle, it retires without a replacement.

A quiet or stopping worker keeps its children.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from math import inf
from time import monotonic

from windlass.core.quantities import Count
from windlass.worker.ipc.channel import SetQuiet
from windlass.worker.logs.events import LogEvent, LoggedValue
from windlass.worker.maintenance.demand import WorkerDemand
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Retirements
from windlass.worker.supervisor.scale_policy import (
    ChildCount,
    ScaleDecision,
    ScalePeriods,
    ScalePolicy,
)

log = getLogger("windlass.worker")


class Autoscaler:
    """Scale the children of one worker. `count_coming` returns the number of shared children that
    start soon; while `is_held` returns True, their number stays. Used by the supervisor's main
    thread only."""

    def __init__(
        self,
        reactor: Reactor,
        options: WorkerOptions,
        periods: ScalePeriods,
        retirements: Retirements,
        *,
        living: Callable[[], Sequence[ChildProcess]],
        count_coming: Callable[[], int],
        start_child: Callable[[], None],
        is_held: Callable[[], bool],
    ) -> None:
        self._reactor = reactor
        self._least, self._most = options.processes, options.most_children
        self._periods = periods
        self._retirements = retirements
        self._living = living
        self._count_coming = count_coming
        self._start_child = start_child
        self._is_held = is_held
        self._policy = ScalePolicy(self._least, self._most, options.slots, periods)
        self._ask: Callable[[], None] = _ignore
        self._asked_at = 0.0

    def start(self, ask: Callable[[], None]) -> None:
        """Begin to look. `ask` requests a call of `note`."""
        self._ask = ask
        self._reactor.after(self._periods.look_s, self._look_again)

    def note(self, demand: WorkerDemand) -> None:
        """Scale by the demand of this moment."""
        if self._is_held():
            self._policy.forget()
            return
        children = self._count()
        decision = self._policy.decide(monotonic(), children, demand)
        if decision is not None and decision.number > children.number:
            self._scale_up(children.number, decision, demand)
        elif decision is not None:
            self._scale_down(children.number, decision)

    # ---------------------------------------------------------------------------- the children

    def _shared(self) -> list[ChildProcess]:
        """The children that run several jobs at a time, and stay."""
        return [child for child in self._living() if not child.is_solo and not child.is_retiring]

    def _claiming(self) -> list[ChildProcess]:
        return [child for child in self._shared() if not child.is_leaving]

    def _leaving(self) -> list[ChildProcess]:
        return [child for child in self._shared() if child.is_leaving]

    def _count(self) -> ChildCount:
        claiming = self._claiming()
        return ChildCount(
            number=len(claiming) + self._count_coming(),
            slots=sum(child.table.slots for child in claiming if child.session),
            busy=sum(len(child.table.occupied()) for child in self._shared()),
        )

    # ---------------------------------------------------------------------------------- looks

    def _look_again(self) -> None:
        if not self._is_held():
            self._look()
        self._reactor.after(self._periods.look_s, self._look_again)

    def _look(self) -> None:
        for child in self._leaving():
            self._retire_if_idle(child)
        children, now = self._count(), monotonic()
        if children.is_busy:
            may_scale, period_s = children.number < self._most, self._periods.look_s
        else:
            may_scale, period_s = children.number > self._least, self._periods.rest_s
        if may_scale and now - self._asked_at >= period_s:
            self._asked_at = now
            self._ask()

    def _retire_if_idle(self, child: ChildProcess) -> None:
        if not child.table.occupied():
            self._retirements.retire(
                child, "the worker needs fewer children", at_once=True, is_patient=True
            )

    # -------------------------------------------------------------------------------- scaling

    def _scale_up(self, before: int, decision: ScaleDecision, demand: WorkerDemand) -> None:
        log.info(
            LogEvent.WORKER_SCALED_UP,
            before,
            Count(decision.number, "child", "children"),
            Count(demand.ready, "job"),
            decision.demand_slots,
            _describe_drain(decision.drain_s),
        )
        missing = decision.number - before
        for child in self._leaving()[:missing]:
            child.is_leaving = False
            child.send(SetQuiet(False))
            missing -= 1
        for _ in range(missing):
            self._start_child()

    def _scale_down(self, before: int, decision: ScaleDecision) -> None:
        """Let the child with the fewest running jobs leave, of several the youngest. Children that
        have not started are not counted: the next look finds one that has."""
        started = [child for child in reversed(self._claiming()) if child.session]
        if not started:
            return
        log.info(
            LogEvent.WORKER_SCALED_DOWN,
            before,
            Count(decision.number, "child", "children"),
            self._periods.hold_s,
            decision.busy_slots,
        )
        child = min(started, key=lambda child: len(child.table.occupied()))
        child.is_leaving = True
        child.send(SetQuiet(True))
        self._retire_if_idle(child)


def _describe_drain(drain_s: float | None) -> LoggedValue:
    if drain_s is None:
        return LoggedValue(None, "time to drain unknown")
    if drain_s == inf:
        return LoggedValue(None, "never drains at this pace")
    return LoggedValue(round(drain_s, 1), f"time to drain {drain_s:.0f} s")


def _ignore() -> None:
    """Request nothing before the start."""

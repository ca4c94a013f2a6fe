"""Hard time-outs: the supervisor ends runs that were interrupted and did not end.

1. Ten times a second the supervisor reads the slot tables of children that have runs with a limit.
2. A run beyond its limit loses its job, as a failed attempt that timed out. After the last attempt
   the job becomes a dead letter at once. A retry is reported when the child is gone, by
   `report_retries`: until then the code still runs, and the job stays leased to the child's
   session, so that no retry runs at the same time.
3. A solo child has no other run, and is killed. A shared child is retired: it stops claiming, and
   its other jobs have the grace to end.
4. A cancelled job in a solo child has `kill_after` to end; then its child is killed.

A decision is about one run, identified by its generation. Before the supervisor kills a solo child,
it forbids new starts and checks the run again: if the run ended in the last moment, no other run is
killed in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from logging import getLogger
from time import monotonic

import msgspec

from windlass.core.durations import describe_ms
from windlass.core.failures import FailureText
from windlass.core.states import Reason
from windlass.engine.contract import Buried, Outcome, Retried
from windlass.worker.ipc.channel import MOST_IDS, Cancel, Disown
from windlass.worker.ipc.shared_memory import Limit
from windlass.worker.logs.events import LogEvent
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Action, Retirements

log = getLogger("windlass.worker")

#: How often to check runs, in seconds.
LOOK_S = 0.1


class Enforcement:
    """Enforcement of the limits of runs. `finish` reports an outcome to the engine. Used by the
    supervisor's main thread only."""

    def __init__(
        self,
        reactor: Reactor,
        kill_after_ms: int,
        living: Callable[[], Iterable[ChildProcess]],
        retirements: Retirements,
        finish: Callable[[Outcome], None],
        kill: Action,
    ) -> None:
        self._reactor = reactor
        self._kill_after_ms = kill_after_ms
        self._living = living
        self._retirements = retirements
        self._finish = finish
        self._kill = kill
        self._is_looking = False

    def watch(self, child: ChildProcess) -> None:
        """Check the runs of a child from now on."""
        child.has_limits = True
        if not self._is_looking:
            self._is_looking = True
            self._reactor.after(LOOK_S, self._look)

    def cancel(self, child: ChildProcess, ids: Collection[str]) -> None:
        """Interrupt cancelled jobs of a child. A repeated request has no further effect."""
        named = tuple(ids)
        for at in range(0, len(named), MOST_IDS):
            child.send(Cancel(named[at : at + MOST_IDS]))
        if child.is_solo:
            for limit in child.table.limits():
                if limit.id in ids:
                    wait_s = self._kill_after_ms / 1000
                    self._reactor.after(wait_s, partial(self._end_cancelled, child, limit))

    def _look(self) -> None:
        now = monotonic()
        limited = [child for child in self._living() if child.has_limits]
        for child in limited:
            for limit in child.table.limits():
                if limit.ends_at <= now and limit.generation not in child.disowned:
                    self._end_overdue(child, limit)
        self._is_looking = bool(limited)
        if limited:
            self._reactor.after(LOOK_S, self._look)

    def _end_overdue(self, child: ChildProcess, limit: Limit) -> None:
        if child.is_solo and not _hold(child, limit):
            return
        child.disowned.add(limit.generation)
        log.error(
            LogEvent.JOB_ENDED_BY_FORCE,
            limit.id,
            describe_ms(self._kill_after_ms),
            describe_ms(limit.timeout_ms),
            child.pid,
        )
        outcome = self._outcome_of(limit)
        if isinstance(outcome, Retried):
            child.retries.append((monotonic(), outcome))
        else:
            self._finish(outcome)
        if child.is_solo:
            self._kill(child)
        else:
            child.send(Disown(limit.id, limit.token))
            self._retirements.retire(child, f"job {limit.id} keeps a slot", at_once=True)

    def report_retries(self, child: ChildProcess) -> None:
        """Report the retries of a child that has ended, before its session is closed. The delay of
        a retry counts from the time-out, not from the end of the child."""
        now = monotonic()
        for since, outcome in child.retries:
            waited_ms = round((now - since) * 1000)
            delay_ms = max(0, outcome.delay_ms - waited_ms)
            self._finish(msgspec.structs.replace(outcome, delay_ms=delay_ms))
        child.retries.clear()

    def _outcome_of(self, limit: Limit) -> Retried | Buried:
        timeout, more = describe_ms(limit.timeout_ms), describe_ms(self._kill_after_ms)
        text = FailureText(
            type="windlass.errors.TimedOut",
            message=f"The job ran for longer than its time-out, {timeout}, and did not end within "
            f"{more} of being interrupted: its process was ended.",
        )
        error, id, token = text.pack(), limit.id, limit.token
        if limit.delay_ms < 0:
            return Buried(
                id=id,
                token=token,
                reason=Reason.TIMED_OUT,
                error=error,
                fingerprint=text.fingerprint,
            )
        return Retried(id=id, token=token, delay_ms=limit.delay_ms, error=error)

    def _end_cancelled(self, child: ChildProcess, limit: Limit) -> None:
        """Kill the child. Closing its session ends the job as cancelled."""
        if not child.has_ended() and not child.was_killed and _hold(child, limit):
            log.warning(
                LogEvent.CANCELLED_JOB_ENDED_BY_FORCE,
                limit.id,
                describe_ms(self._kill_after_ms),
                child.pid,
            )
            self._kill(child)


def _hold(child: ChildProcess, limit: Limit) -> bool:
    """Forbid new starts in a solo child. Return whether this run still runs."""
    child.table.shut(True)
    if child.table.is_running(limit.generation):
        return True
    child.table.shut(False)
    return False

"""What the supervisor does about runs that were told to end and did not.

1. Ten times a second it looks into the slot tables of children that have runs with a limit.
2. A run beyond its limit loses its job: a failed attempt that timed out. The last attempt makes a
   dead letter at once. Any other is reported when the child is gone, by `report_retries`: until
   then the code still runs, so the job stays running under the child's session, and no retry of it
   starts beside it.
3. In a solo child that run is all there is, and the child is killed. A shared one is retired: it
   stops claiming, and its other jobs have the grace to end.
4. A job that was cancelled and runs alone has `kill_after` to end; then its child is killed.

A decision is about one run, which its generation names. Before a solo child is killed it is kept
from starting anything, and looked at again: so a run that ended in the last moment is not followed
by another one that would be hit in its place.
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
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Action, Retirements

log = getLogger("windlass.worker")

#: How often, in seconds, runs are looked at.
LOOK_S = 0.1


class Enforcement:
    """Used by the supervisor's thread alone. `finish` reports an outcome to the engine."""

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
        """From now on runs in it may go too far."""
        child.has_limits = True
        if not self._is_looking:
            self._is_looking = True
            self._reactor.after(LOOK_S, self._look)

    def cancel(self, child: ChildProcess, ids: Collection[str]) -> None:
        """Tell a child that jobs of it were cancelled; told again, it is as if told once."""
        named = tuple(ids)
        for at in range(0, len(named), MOST_IDS):
            child.tell(Cancel(named[at : at + MOST_IDS]))
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
            "job %s went on %s after its time-out, %s, and is ended with child %d",
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
            child.tell(Disown(limit.id, limit.token))
            self._retirements.retire(child, f"job {limit.id} keeps a slot", at_once=True)

    def report_retries(self, child: ChildProcess) -> None:
        """Report the jobs of a child that is gone, before its session is closed. The delay of a
        retry counts from the time-out, and not from the end of the child."""
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
            return Buried(id=id, token=token, reason=Reason.TIMED_OUT, error=error)
        return Retried(id=id, token=token, delay_ms=limit.delay_ms, error=error)

    def _end_cancelled(self, child: ChildProcess, limit: Limit) -> None:
        """The end of its session ends the job as cancelled."""
        if not child.has_ended() and not child.was_killed and _hold(child, limit):
            log.warning(
                "job %s went on %s after it was cancelled, and is ended with child %d",
                limit.id,
                describe_ms(self._kill_after_ms),
                child.pid,
            )
            self._kill(child)


def _hold(child: ChildProcess, limit: Limit) -> bool:
    """Whether a solo child is still at this run, and will be at no other."""
    child.table.shut(True)
    if child.table.is_running(limit.generation):
        return True
    child.table.shut(False)
    return False

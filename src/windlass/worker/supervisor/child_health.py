"""Checks of the children once a second: children that do not run Python, and recycling.

1. A child notes in shared memory when it last ran Python. If that was more than `SILENT_S` ago, and
   no signal has stopped the child, one of its jobs holds the GIL, and its other jobs make no
   progress. The supervisor only logs this, once: heartbeats continue, and the job may take as long
   as it needs.
2. A child that has reached a limit of jobs, age or memory is replaced, without a deadline
   (`retirement`): its replacement is ready before it stops claiming, and no job is cut short.
   Children are recycled in turn: the next one only when the last replacement is ready, and never
   more at a time than there are processes. The limits of jobs and age are up to a tenth smaller for
   some children, so that children that started together, here and on other machines, are not
   replaced together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from time import monotonic

from windlass.core.durations import describe_ms
from windlass.core.quantities import count, describe_bytes
from windlass.worker.logs.events import LogEvent, listed
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Retirements

log = getLogger("windlass.worker")

#: How often to check, in seconds.
LOOK_S = 1.0
#: A child that has not run Python for this many seconds is logged.
SILENT_S = 5.0


class Recycling:
    """Replacement of children at their limits. Used by the supervisor's main thread only."""

    def __init__(self, options: WorkerOptions, retirements: Retirements) -> None:
        self._options = options
        self._retirements = retirements
        self._is_size_logged = False

    def look(self, children: Sequence[ChildProcess]) -> None:
        """Retire the first child that has reached a limit, unless enough children are retiring."""
        retiring = [child for child in children if child.is_retiring]
        if self._retirements.are_waiting() or len(retiring) >= self._options.processes:
            return
        for child in children:
            why = None if child.is_retiring or child.is_leaving else self._find_reason(child)
            if why is not None:
                self._retirements.retire(child, why, is_patient=True)
                return

    def _find_reason(self, child: ChildProcess) -> str | None:
        options = self._options
        if not child.session:
            return None  # still loading the app
        if options.max_jobs and child.table.ended() >= options.max_jobs * child.share:
            return f"it has ended {count(child.table.ended(), 'job')}"
        age_ms = round((monotonic() - child.started_at) * 1000)
        if options.max_age_ms and age_ms >= options.max_age_ms * child.share:
            return f"it is {describe_ms(age_ms // 1000 * 1000)} old"
        return self._find_growth(child, options.max_memory) if options.max_memory else None

    def _find_growth(self, child: ChildProcess, limit: int) -> str | None:
        memory = child.memory()
        if memory is None or memory <= limit:
            return None
        if child.table.ended() or child.table.occupied():
            return f"it uses {describe_bytes(memory)} of memory"
        # A child that is too large before its first job: a replacement would not be smaller.
        if not self._is_size_logged:
            log.warning(
                LogEvent.CHILD_TOO_LARGE, child.pid, describe_bytes(memory), describe_bytes(limit)
            )
        self._is_size_logged = True
        return None


class ChildHealth:
    """Regular checks of the children. `living` returns the children to check, none while
    stopping."""

    def __init__(
        self,
        reactor: Reactor,
        recycling: Recycling,
        living: Callable[[], Sequence[ChildProcess]],
    ) -> None:
        self._reactor = reactor
        self._recycling = recycling
        self._living = living
        self._silent: set[int] = set()  # the pids that were logged

    def start(self) -> None:
        self._reactor.after(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._reactor.after(LOOK_S, self._look_again)

    def look(self) -> None:
        children = self._living()
        silent = [child for child in children if _is_silent(child)]
        for child in silent:
            if child.pid not in self._silent:
                self._log_silent(child)
        self._silent = {child.pid for child in silent}
        self._recycling.look(children)

    def _log_silent(self, child: ChildProcess) -> None:
        log.warning(
            LogEvent.INTERPRETER_KEPT,
            child.pid,
            round(monotonic() - child.table.pulse()),
            listed(child.table.occupied(), none="no job"),
        )


def _is_silent(child: ChildProcess) -> bool:
    pulse = child.table.pulse()
    return pulse > 0 and monotonic() - pulse > SILENT_S and child.is_running()

"""Recycling: replace children that have reached a limit of jobs, age or memory.

A child is replaced without a deadline (`retirement`): its replacement is ready before it stops
claiming, and no job is cut short.

Children are recycled in turn: the next one only when the last replacement is ready, and never more
at a time than there are processes. The limits of jobs and age are up to a tenth smaller for some
children, so that children that started together, here and on other machines, are not replaced
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger
from time import monotonic

from windlass.core.durations import describe_ms
from windlass.core.quantities import count, describe_bytes
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.retirement import Retirements

log = getLogger("windlass.worker")


class Recycling:
    """Used by the supervisor's main thread only."""

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
            why = None if child.is_retiring else self._find_reason(child)
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
        # A replacement would not be smaller.
        if not self._is_size_logged:
            log.warning(
                "child %d uses %s of memory before its first job, more than its limit of %s: "
                "raise the limit",
                child.pid,
                describe_bytes(memory),
                describe_bytes(limit),
            )
        self._is_size_logged = True
        return None

"""Sort claims that arrive: queue claims that can run here, return the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from logging import getLogger
from typing import Any

from windlass.engine.contract import Claim, Outcome, Released, Unroutable
from windlass.task import Task
from windlass.worker.logs.events import LogEvent
from windlass.worker.logs.throttle import Notices
from windlass.worker.run.slot_queue import SlotQueue

log = getLogger("windlass.worker")


class Intake:
    """Used by the fetcher only. A claim that is returned is one more outcome to report."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        slot_queue: SlotQueue,
        outcomes: deque[Outcome],
        *,
        is_solo: bool,
    ) -> None:
        self._tasks = tasks
        self._slot_queue = slot_queue
        self._outcomes = outcomes
        self._is_solo = is_solo
        self._notices = Notices()
        self.has_sent_away = False  # jobs that must run alone

    def receive(self, claims: Iterable[Claim]) -> None:
        known = []
        for claim in claims:
            task = self._tasks.get(claim.task)
            if task is None:
                self._outcomes.append(Unroutable(id=claim.id, token=claim.token))
                self._log_unknown(claim.task)
            elif task.runs_alone and not self._is_solo:
                self._send_away(claim)
            else:
                known.append((claim, task))
        self._slot_queue.offer(known)

    def release(self, claims: Iterable[Claim]) -> None:
        """Release claims that have not started."""
        for claim in claims:
            self._outcomes.append(Released(id=claim.id, token=claim.token, started=False))

    def _send_away(self, claim: Claim) -> None:
        """Mark a job that must run alone. The engine does not know the options of tasks, so the
        first worker that claims the job does it."""
        outcome = Released(id=claim.id, token=claim.token, started=False, alone=True)
        self._outcomes.append(outcome)
        self.has_sent_away = True

    def _log_unknown(self, task: str) -> None:
        if self._notices.is_due(task):
            log.warning(LogEvent.TASK_UNKNOWN, task)

"""Before and after a claim: adopt jobs that others put aside, and sort the claims that arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from logging import getLogger
from time import monotonic
from typing import Any

from windlass.engine.contract import BITE, Claim, Engine, Outcome, Released, Unroutable
from windlass.task import Task
from windlass.worker.logs.events import LogEvent, Notices
from windlass.worker.run.slot_queue import SlotQueue

log = getLogger("windlass.worker")

#: How often to adopt, in seconds: after a call that found jobs, and otherwise.
SOON_S = 1.0
LATER_S = 5.0


class Adoption:
    """Adopts jobs that other workers put aside because they do not know the task.

    During a deploy, old and new workers serve the same queues. An adopted job becomes ready for all
    workers again, so the fetcher adopts right before a claim: a worker that knows the task then
    claims first. Tasks whose calls do not fit this version of the function are left to other
    workers. Used by the fetcher only, except for `leave`."""

    def __init__(self, engine: Engine, tasks: Collection[str]) -> None:
        self._engine = engine
        self._tasks = tasks
        self._left: set[str] = set()
        self._due = 0.0

    def leave(self, task: str) -> None:
        """Stop adopting a task whose calls are for another version. Called from any thread."""
        self._left.add(task)

    def ask(self) -> None:
        """Make jobs of our tasks ready again, if that is due. After a full batch, ask at once."""
        if monotonic() < self._due:
            return
        self._due = monotonic() + LATER_S  # also when the call fails
        adopted = self._engine.adopt([task for task in self._tasks if task not in self._left])
        if adopted:
            self._due = monotonic() + (0.0 if adopted >= BITE else SOON_S)


class Intake:
    """Queues claims that can run here, and returns the others: a claim that is returned is one more
    outcome to report. Used by the fetcher only."""

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

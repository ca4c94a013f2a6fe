"""Adopt jobs that other workers put aside because they do not know the task.

During a deploy, old and new workers serve the same queues. An adopted job becomes ready for all
workers again, so the fetcher adopts right before a claim: a worker that knows the task then claims
first. Tasks whose calls do not fit this version of the function are left to other workers.
"""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic

from windlass.engine.contract import BITE, Engine

#: How often to adopt, in seconds: after a call that found jobs, and otherwise.
SOON_S = 1.0
LATER_S = 5.0


class Adoption:
    """Used by the fetcher only, except for `leave`."""

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

"""Taking over jobs that other workers put aside because they do not know the task.

During a deploy old and new workers serve the same queues. What was put aside is offered to all
again, so it is asked for right before a claim: whoever knows the task is then the first in line.
Tasks whose calls do not fit the function of this version are left to others.
"""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic

from windlass.engine.contract import BITE, Engine

#: How often to ask, in seconds: while there was something of late, and otherwise.
SOON_S = 1.0
LATER_S = 5.0


class Adoption:
    """Used by the fetcher alone, but for `leave`."""

    def __init__(self, engine: Engine, tasks: Collection[str]) -> None:
        self._engine = engine
        self._tasks = tasks
        self._left: set[str] = set()
        self._due = 0.0

    def leave(self, task: str) -> None:
        """Calls of this task were made for another version. Called from any thread."""
        self._left.add(task)

    def ask(self) -> None:
        """Have jobs of our tasks offered again, if it is time to; a full bite may not be all."""
        if monotonic() < self._due:
            return
        self._due = monotonic() + LATER_S  # also when the call fails
        adopted = self._engine.adopt([task for task in self._tasks if task not in self._left])
        if adopted:
            self._due = monotonic() + (0.0 if adopted >= BITE else SOON_S)

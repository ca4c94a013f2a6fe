"""Adoption of jobs that native workers hold because they do not know the task.

Native workers on the same queues hold jobs of remote tasks. A session adopts the jobs of its tasks
when it begins and, from then on, every few seconds while it claims. An adoption is for all queues,
so only sessions of callers for all queues adopt. Tasks with calls that cannot be read here are
excluded: their jobs would be held again at once.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Final

from windlass.engine.contract import BITE

if TYPE_CHECKING:
    from windlass.app import Windlass

#: How long until the next adoption, in seconds: after one that found jobs, and otherwise.
SOON_S: Final = 1.0
LATER_S: Final = 5.0
#: An instance remembers at most this many lists of tasks.
MAX_REMEMBERED: Final = 1_000


class RemoteAdoption:
    """When to adopt jobs, by list of tasks. Used by many threads: a lost update costs a call."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._due: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._excluded: set[str] = set()

    def exclude(self, task: str) -> None:
        """Adopt no more jobs of a task."""
        self._excluded.add(task)

    def adopt_if_due(self, tasks: tuple[str, ...]) -> None:
        """Adopt jobs of these tasks, unless they were adopted a moment ago."""
        if monotonic() >= self._due.get(tasks, 0.0):
            self.adopt(tasks)

    def adopt(self, tasks: tuple[str, ...]) -> None:
        self._note(tasks, LATER_S)  # also when the call fails
        adopted = self._app.engine.adopt([task for task in tasks if task not in self._excluded])
        if adopted:
            self._note(tasks, 0.0 if adopted >= BITE else SOON_S)

    def _note(self, tasks: tuple[str, ...], wait_s: float) -> None:
        self._due[tasks] = monotonic() + wait_s
        if len(self._due) > MAX_REMEMBERED:
            self._due.popitem(last=False)

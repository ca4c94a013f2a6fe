"""Retirement: replace one child while the worker keeps running.

1. A replacement starts at once, so that the number of slots does not shrink.
2. The old child stops claiming: at once, or when a replacement has loaded the app.
3. The old child has the grace to finish running jobs. Then it hands back the rest, and `KILL_S`
   later it is killed. Its jobs are released uncharged either way. A patient retirement has no
   deadline: the child may take as long as its jobs need.
4. A child that does not confirm `DrainChild` within `UNRESPONSIVE_S` is killed: one of its jobs
   holds the interpreter, so its other jobs make no progress. A patient retirement does not do this.

Retiring children exist in addition to the configured number of processes. When more than `most`
children retire, the oldest of them hands back its jobs at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from logging import getLogger

from windlass.worker.ipc.channel import DrainChild, HandBack
from windlass.worker.logs.events import LogEvent
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor

log = getLogger("windlass.worker")

#: How long a child may take to hand back before it is killed, in seconds.
KILL_S = 5.0
#: How long a child may take to confirm `DrainChild`, in seconds.
UNRESPONSIVE_S = 5.0

Action = Callable[[ChildProcess], None]


class Retirements:
    """The children being replaced, oldest first. Used by the supervisor's main thread only."""

    def __init__(
        self, reactor: Reactor, most: int, replace: Callable[[], None], kill: Action
    ) -> None:
        self.grace_s = 0.0
        self._reactor = reactor
        self._most = most
        self._replace = replace
        self._kill = kill
        self._waiting: list[ChildProcess] = []  # still claiming until a replacement is ready
        self._draining: list[ChildProcess] = []

    def retire(
        self, child: ChildProcess, why: str, *, at_once: bool = False, is_patient: bool = False
    ) -> None:
        """Replace a child. Unless `at_once`, the child keeps claiming until its replacement is
        ready. A repeated call can only shorten the deadline."""
        if child.is_retiring and child.is_patient and not is_patient:
            self._hurry(child)
        if not child.is_retiring:
            child.is_retiring = True
            child.is_patient = is_patient
            log.info(LogEvent.CHILD_RETIRES, child.pid, why)
            self._waiting.append(child)
            # A solo child starts when there are jobs for it, and a leaving child is not needed.
            if not child.is_solo and not child.is_leaving:
                self._replace()
        if (at_once or child.is_solo) and child in self._waiting:
            self._drain(child)

    def are_waiting(self) -> bool:
        """Return whether a child waits for its replacement."""
        return bool(self._waiting)

    def notice_ready(self) -> None:
        """Drain the oldest child that waits for a replacement, because a new child is ready."""
        if self._waiting:
            self._drain(self._waiting[0])

    def forget(self, child: ChildProcess) -> None:
        """Forget a child that has ended."""
        for children in (self._waiting, self._draining):
            if child in children:
                children.remove(child)

    def _drain(self, child: ChildProcess) -> None:
        self._waiting.remove(child)
        child.send(DrainChild())
        if not child.is_patient:
            self._set_deadlines(child)

    def _hurry(self, child: ChildProcess) -> None:
        child.is_patient = False
        if child not in self._waiting:
            self._set_deadlines(child)

    def _set_deadlines(self, child: ChildProcess) -> None:
        self._draining.append(child)
        self._reactor.after(UNRESPONSIVE_S, partial(self._kill_if_unresponsive, child))
        self._reactor.after(self.grace_s, partial(self._hand_back, child))
        for oldest in self._draining[: -self._most]:
            self._hand_back(oldest)

    def _hand_back(self, child: ChildProcess) -> None:
        if child in self._draining:
            self._draining.remove(child)
            child.send(HandBack())
            self._reactor.after(KILL_S, partial(self._kill, child))

    def _kill_if_unresponsive(self, child: ChildProcess) -> None:
        if not child.has_heard:
            self._kill(child)

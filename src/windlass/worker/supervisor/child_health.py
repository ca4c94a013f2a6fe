"""Checks of the children once a second: children that do not run Python, and recycling.

A child notes in shared memory when it last ran Python. If it has not for `SILENT_S`, and was not
stopped by a signal, one of its jobs holds the GIL, and its other jobs make no progress. The
supervisor logs that once and does nothing else: heartbeats continue, and the job may take as long
as it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from time import monotonic

from windlass.worker.logs.events import LogEvent, listed
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.recycling import Recycling

log = getLogger("windlass.worker")

#: How often to check, in seconds.
LOOK_S = 1.0
#: A child that has not run Python for this many seconds is logged.
SILENT_S = 5.0


class ChildHealth:
    """`living` returns the children to check, and none when the worker is stopping."""

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

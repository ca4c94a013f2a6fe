"""What a supervisor looks at once a second: children that do not run Python, and spent ones.

A child notes in shared memory when it last ran Python. One that has not for `SILENT_S`, and was not
stopped by a signal, has a job that keeps the interpreter to itself: the jobs beside it stand still.
That is told once. Nothing is done about it, and the beats go on: the job may take as long as it
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from time import monotonic

from windlass.worker.logs.events import listed
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.recycling import Recycling

log = getLogger("windlass.worker")

#: How often to look, in seconds.
LOOK_S = 1.0
#: After so many seconds without running Python a child is told of.
SILENT_S = 5.0


class ChildHealth:
    """`living` gives the children to look at, and none when the worker is stopping."""

    def __init__(
        self,
        reactor: Reactor,
        recycling: Recycling,
        living: Callable[[], Sequence[ChildProcess]],
    ) -> None:
        self._reactor = reactor
        self._recycling = recycling
        self._living = living
        self._silent: set[int] = set()  # the pids of those that were told of

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
                self._tell_silent(child)
        self._silent = {child.pid for child in silent}
        self._recycling.look(children)

    def _tell_silent(self, child: ChildProcess) -> None:
        log.warning(
            "child %d has not run Python for %d s, one of its jobs keeps the interpreter to "
            "itself; running: %s",
            child.pid,
            round(monotonic() - child.table.pulse()),
            listed(child.table.occupied(), none="no job"),
        )


def _is_silent(child: ChildProcess) -> bool:
    pulse = child.table.pulse()
    return pulse > 0 and monotonic() - pulse > SILENT_S and child.is_running()

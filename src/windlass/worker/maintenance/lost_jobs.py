"""Jobs of workers that died or stopped responding.

1. `Predecessors` ends the sessions of workers that died on this machine, and notes them in the list
   of lost sessions.
2. `LossWatch` logs when jobs were reclaimed, and when the engine dropped index entries without a
   job.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from logging import getLogger
from typing import Final

from windlass.core.ids import session_prefix
from windlass.core.introduction import Introduction
from windlass.core.quantities import Count
from windlass.engine.contract import Engine
from windlass.lost_sessions import LossKind, try_note_loss
from windlass.worker.ipc.process_identity import has_died, machine
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: How long to wait before each further check for dead workers, in seconds.
LOOKS_S: Final = (0.25, 0.75, 2.0)
NEVER: Final = float("inf")
#: How often to check the totals, in seconds.
LOOK_S: Final = 15.0
#: The counters to compare.
_WATCHED: Final = ("lost", "orphans")


class Predecessors:
    """Ends the sessions of workers that died on this machine, when a worker starts.

    A supervisor handles the death of a child. When the whole worker dies (the out-of-memory killer
    took the process group, an operator sent SIGKILL), no process reports it, and its jobs would
    wait for the rest of the lease. A worker that starts on the same machine can do better: the
    description of a session names both processes, and this machine knows whether they have ended.

    1. Read the descriptions of all sessions of this host, in bounded batches.
    2. End a session if its supervisor and its child have both ended, as `process_identity` judges:
       never by host name and pid alone. The job that killed the worker is unknown. So each job is
       charged a loss, as when a lease expires: a job that kills every worker runs out of losses.
    3. Check again a few times: a child may outlive its supervisor for a moment, and the description
       of a session may still be on its way.

    Where processes cannot be identified (no /proc, as on macOS), and for workers of other machines
    and other containers, jobs start again when the lease has expired."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._machine = machine()
        self._host = socket.gethostname()
        self._waits = iter(LOOKS_S)

    def look(self) -> float:
        """End sessions of dead workers; return the seconds until the next check."""
        if not self._machine:
            return NEVER
        for session, said in self._neighbours():
            if has_died(said, self._machine):
                self._end(session, said)
        return next(self._waits, NEVER)

    def _neighbours(self) -> Iterator[tuple[str, Introduction]]:
        """Return all sessions of this machine, live or expired."""
        cursor: str | None = None
        while True:
            bite = self._engine.introductions(session_prefix(self._host), cursor)
            for session, info in bite.infos.items():
                said = Introduction.unpack(info)
                if said.machine == self._machine and said.host == self._host:
                    yield session, said
            cursor = bite.cursor
            if cursor is None:
                return

    def _end(self, session: str, said: Introduction) -> None:
        held = next((one.held for one in self._engine.sessions() if one.session == session), ())
        cause = f"worker {said.worker} on {said.host} died"
        number = self._engine.lose(session, cause)
        try_note_loss(self._engine, session, LossKind.DIED, cause, said, held, job_count=number)
        log.warning(LogEvent.DEAD_WORKER_ENDED, session, said.worker, Count(number, "job"))


class LossWatch:
    """Log reclaimed jobs, by comparing counters of the engine: a call of any worker may change
    them. Only the worker with the first of all sessions logs. `sessions` returns this worker's
    sessions."""

    def __init__(self, engine: Engine, sessions: Callable[[], Collection[str]]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._before: Mapping[str, int] | None = None  # at the last check

    def look(self) -> float:
        """Compare the counters; return the seconds until the next check."""
        totals = self._engine.stats().totals
        before, self._before = self._before, totals
        if before is None:
            return LOOK_S
        lost, orphans = (totals.get(name, 0) - before.get(name, 0) for name in _WATCHED)
        if (lost > 0 or orphans > 0) and speaks(self._engine, self._sessions()):
            if lost > 0:
                log.warning(LogEvent.JOBS_TAKEN_BACK, Count(lost, "job"))
            if orphans > 0:
                log.warning(
                    LogEvent.ORPHANS_DROPPED, Count(orphans, "index entry", "index entries")
                )
        return LOOK_S


def speaks(engine: Engine, own: Collection[str]) -> bool:
    """Return whether this worker has the first of all live sessions, and so logs for all."""
    living = [one.session for one in engine.sessions() if one.expires_in_ms >= 0]
    return bool(living) and min(living) in own

"""End the sessions of workers that died on this machine.

A supervisor handles the death of a child. When the whole worker dies (the out-of-memory killer took
the process group, an operator sent SIGKILL), no process reports it, and its jobs would wait for the
rest of the lease. A worker that starts on the same machine can do better: the description of a
session names both processes, and this machine knows whether they have ended.

1. Read the descriptions of all sessions of this host, in bounded batches.
2. End a session if its supervisor and its child have both ended, as `process_identity` judges:
   never by host name and pid alone. The job that killed the worker is unknown. So each job is
   charged a loss, as when a lease expires: a job that kills every worker runs out of losses.
3. Check again a few times: a child may outlive its supervisor for a moment, and the description of
   a session may still be on its way.

Where processes cannot be identified (no /proc, as on macOS), and for workers of other machines and
other containers, jobs start again when the lease has expired.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from logging import getLogger
from typing import Final

from windlass.core.ids import session_prefix
from windlass.core.quantities import Count
from windlass.engine.contract import Engine
from windlass.worker.ipc.process_identity import has_ended, machine
from windlass.worker.ipc.session_info import Introduction

log = getLogger("windlass.worker")

#: How long to wait before each further check, in seconds.
LOOKS_S: Final = (0.25, 0.75, 2.0)
NEVER: Final = float("inf")


class Predecessors:
    """The dead workers, as one starting worker sees them."""

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
            if has_ended(said.worker, said.worker_start) and has_ended(
                said.child, said.child_start
            ):
                self._end(session, said)
        return next(self._waits, NEVER)

    def _neighbours(self) -> Iterator[tuple[str, Introduction]]:
        """All sessions of this machine, live or expired."""
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
        number = self._engine.lose(session, f"worker {said.worker} on {said.host} died")
        log.warning(
            "ended session %s of worker %d, which died on this machine: %s to run again",
            session,
            said.worker,
            Count(number, "job"),
        )

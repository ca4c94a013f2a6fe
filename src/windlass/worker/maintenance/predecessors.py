"""Workers that died on this machine as a whole: the next one that starts here ends their sessions.

A child that dies is seen by its supervisor. When the whole worker dies (the out-of-memory killer
took the process group, a person sent SIGKILL), no process is left to tell, and its jobs would wait
for the rest of its lease. A worker that starts on the same machine can do better: what a session
says of itself names both processes, and whether they have ended can be seen here.

1. Look through what sessions of this host say, a bounded bite at a time.
2. End those whose supervisor and child have both ended, as `process_identity` says: never by host
   name and pid alone. Which job ended the worker is unknown, so each is charged a loss, as when a
   lease runs out: a job that kills every worker runs out of losses.
3. Look again a few times: a child may outlive its supervisor for a moment, and what a session says
   of itself may have been on its way.

Where processes cannot be recognised (no /proc, as on macOS), and for workers of other machines and
other containers, jobs go on when the lease has run out.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from logging import getLogger
from typing import Final

from windlass.core.ids import session_prefix
from windlass.core.plurals import Count
from windlass.engine.contract import Engine
from windlass.worker.ipc.process_identity import has_ended, machine
from windlass.worker.ipc.session_info import Introduction

log = getLogger("windlass.worker")

#: How long to wait before each further look, in seconds.
LOOKS_S: Final = (0.25, 0.75, 2.0)
NEVER: Final = float("inf")


class Predecessors:
    """Looked for by one starting worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._machine = machine()
        self._host = socket.gethostname()
        self._waits = iter(LOOKS_S)

    def look(self) -> float:
        """The seconds until the next look."""
        if not self._machine:
            return NEVER
        for session, said in self._neighbours():
            if has_ended(said.worker, said.worker_start) and has_ended(
                said.child, said.child_start
            ):
                self._end(session, said)
        return next(self._waits, NEVER)

    def _neighbours(self) -> Iterator[tuple[str, Introduction]]:
        """Sessions of this machine, whether they live or not."""
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

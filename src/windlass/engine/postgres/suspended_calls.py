"""Ends calls of processes that were suspended in the middle of a round trip.

A process may be suspended (SIGSTOP, a frozen container, a debugger) when it has sent a part of a
round trip, or has received a part of the replies. The server then waits for the client, and
keeps the locks of the transaction: no time limit of the server counts in this state.

1. Every statement of windlass begins with a mark (`call_mark`), so that other programs, and
   transactions of callers, are never taken for a call. The mark tells how long the call may take.
2. `look` lists the calls for whose client the server waits. It ends a call without progress since
   the look before, and for longer than the call may take.
3. All connections of the pool may wait for the locks of such a call: then the look makes another.
4. A look needs no right beyond those of the role itself. Its failure only costs time.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from windlass.engine.contract import EndedCall
from windlass.engine.postgres.connections import IDLE_MS, Connections, mark_prefix
from windlass.engine.postgres.notifications import Hints, run_hint_apart

#: How often to look, in seconds.
LOOK_S: Final = 10.0


class _Call(NamedTuple):
    """A call at one moment: its backend, and when the server last began or ended a statement. A
    call that has made progress since then is not equal."""

    backend_pid: int
    backend_start_us: int  # the system may give the same pid to a later backend
    state_change_us: int


class SuspendedCalls:
    """The calls of other processes on the tables of one engine object."""

    def __init__(self, connections: Connections, timeout_ms: int) -> None:
        self._connections = connections
        self._mark = mark_prefix(connections.address.schema)
        #: A call without progress for this time is ended, or for the time that it may take.
        self.limit_ms = max(IDLE_MS, timeout_ms)
        self.look_s = LOOK_S
        self._look_at = 0.0
        self._seen: frozenset[_Call] = frozenset()  # at the last look
        self._ended: list[EndedCall] = []

    def look(self) -> None:
        """End the calls of suspended processes, if it is time to look."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + self.look_s
            run_hint_apart(self._connections, self._end)

    def report(self) -> tuple[EndedCall, ...]:
        """Return the calls that were ended since the last report."""
        ended, self._ended = self._ended, []
        return tuple(ended)

    def _end(self, hints: Hints) -> None:
        rows = hints.rows("list_silent_calls", self._mark)
        seen, self._seen = self._seen, frozenset(_Call(*row[:3]) for row in rows)
        for *key, silent_ms, timeout_ms, name, host, port in rows:
            if silent_ms < max(self.limit_ms, timeout_ms) or _Call(*key) not in seen:
                continue
            if hints.rows("end_silent_call", *key) == [(True,)]:
                place = "the machine of the server" if host is None else f"{host} port {port}"
                self._ended.append(EndedCall(client=f"{name} at {place}", silent_ms=silent_ms))

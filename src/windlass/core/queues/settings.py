"""The settings of a queue that its engine keeps: the same for all who put jobs into it or claim.

An engine stores them for those queues only that have others than the usual ones, all together in
one value, which it reads along with what it reads anyway.

Ageing: the age of a queue grows by one with every period. A job notes the age when it takes its
place, and jobs stand in the order of that age less their priority: so a level of priority is worth
one period of waiting, and nothing that waits is ever rewritten. Without ageing the age stands
still, and priority alone decides. It never goes back, whatever the clock does and however ageing is
switched on and off: of equal priority, who came first stands first.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

#: The shortest period of ageing, in milliseconds: an age has to fit into four bytes.
LEAST_AGEING_MS: Final = 1_000


class QueueSettings(msgspec.Struct, frozen=True, array_like=True):
    """Of one queue. Stored as an array: fields are only ever added at the end."""

    paused: bool = False
    ageing_ms: int = 0  # the period; 0 while it does not age
    age: int = 0
    since_ms: int = 0  # when it reached this age
    max_waiting: int = 0  # with so many that wait, no more are taken in; 0: there is no bound

    def aged(self, now_ms: int) -> QueueSettings:
        """With the age of an instant."""
        if not self.ageing_ms or now_ms < self.since_ms + self.ageing_ms:
            return self
        by = (now_ms - self.since_ms) // self.ageing_ms
        return replace(self, age=self.age + by, since_ms=self.since_ms + by * self.ageing_ms)

    @property
    def cohort(self) -> tuple[str, int]:
        """Queues that grow older at the same instants are a cohort, named by period and phase; ""
        for those that do not age. And by how much this one is older than its cohort, which never
        changes."""
        if not self.ageing_ms:
            return "", self.age
        phase_ms = self.since_ms % self.ageing_ms
        return f"{self.ageing_ms} {phase_ms}", self.age - self.since_ms // self.ageing_ms

    def with_ageing(self, ageing_ms: int, now_ms: int) -> QueueSettings:
        """With another period from now on. All queues that have the same one grow older at the same
        instants: then their jobs can be compared without asking how old each queue is."""
        since_ms = now_ms - now_ms % ageing_ms if ageing_ms else now_ms
        return replace(self.aged(now_ms), ageing_ms=ageing_ms, since_ms=since_ms)


#: Of a queue that nobody has changed.
USUAL: Final = QueueSettings()

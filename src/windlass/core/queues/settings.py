"""Queue settings, stored in the engine: they apply to all producers and workers.

An engine stores one value with the settings of all queues that differ from the defaults, and reads
it together with other data.

Ageing: the age of a queue grows by one with every period. The engine stores each job with the
current age, and orders jobs by age minus priority. So a level of priority is worth one period of
waiting, and a waiting job is never rewritten. Without ageing the age is constant, and priority
alone decides. The age never decreases, even if the clock goes back or ageing is switched on and
off: jobs of equal priority keep FIFO order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

#: The shortest period of ageing, in milliseconds: an age has to fit into four bytes.
LEAST_AGEING_MS: Final = 1_000


class QueueSettings(msgspec.Struct, frozen=True, array_like=True):
    """The settings of one queue. Stored as an array: add new fields only at the end."""

    paused: bool = False
    ageing_ms: int = 0  # the period; 0 is no ageing
    age: int = 0
    since_ms: int = 0  # when the queue reached this age
    max_waiting: int = 0  # the bound on waiting jobs; 0 is no bound

    def aged(self, now_ms: int) -> QueueSettings:
        """The settings with the age of the queue at `now_ms`."""
        if not self.ageing_ms or now_ms < self.since_ms + self.ageing_ms:
            return self
        by = (now_ms - self.since_ms) // self.ageing_ms
        return replace(self, age=self.age + by, since_ms=self.since_ms + by * self.ageing_ms)

    def aged_to(self, age: int, now_ms: int) -> QueueSettings:
        """The settings with at least this age at `now_ms`. The periods stay as they are."""
        now = self.aged(now_ms)
        return now if now.age >= age else replace(now, age=age)

    @property
    def cohort(self) -> tuple[str, int]:
        """The cohort of the queue, and the constant offset of its age from the cohort's age. Queues
        that age at the same instants form a cohort, named by period and phase. Without ageing the
        name is ""."""
        if not self.ageing_ms:
            return "", self.age
        phase_ms = self.since_ms % self.ageing_ms
        return f"{self.ageing_ms} {phase_ms}", self.age - self.since_ms // self.ageing_ms

    def with_ageing(self, ageing_ms: int, now_ms: int) -> QueueSettings:
        """The settings with another ageing period. Queues with the same period age at the same
        instants, so their jobs can be compared without reading the age of each queue."""
        since_ms = now_ms - now_ms % ageing_ms if ageing_ms else now_ms
        return replace(self.aged(now_ms), ageing_ms=ageing_ms, since_ms=since_ms)


#: The default settings of a queue.
USUAL: Final = QueueSettings()
#: Before the name of a paused task, which is stored among the queues. No queue has it. So tasks
#: cost nothing while none is paused.
_TASK_MARK: Final = "\0"


def task_key(task: str) -> str:
    """The name under which a paused task is stored among the settings of queues."""
    return _TASK_MARK + task


def paused_tasks(settings: Mapping[str, QueueSettings]) -> list[str]:
    """The paused tasks among stored settings, by name."""
    return sorted(
        key.removeprefix(_TASK_MARK)
        for key, own in settings.items()
        if key.startswith(_TASK_MARK) and own.paused
    )


def without_tasks(settings: Mapping[str, QueueSettings]) -> dict[str, QueueSettings]:
    """Stored settings of queues only."""
    return {key: own for key, own in settings.items() if not key.startswith(_TASK_MARK)}

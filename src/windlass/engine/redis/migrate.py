"""Bring a namespace of the previous format forward, in bounded batches.

The keys of the previous format have other names. A script moves a batch of jobs from the old keys
to the new ones in one step, so a job is in one of the formats at any time. Jobs that a live worker
of the old version runs stay until they end: run the migration again after the last such worker has
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from windlass.engine.contract import Migrated

#: The format before this one.
OLD_FORMAT: Final = 3
_SCRIPT: Final = f"migrations/from_{OLD_FORMAT}"
#: Settings come first, so that a paused queue stays paused. The keys are removed last.
_STEPS: Final = ("settings", "keys", "schedules", "jobs", "remove")
_BEGIN: Final = "0"

#: Run a script with arguments in a partition and return the reply.
Ask = Callable[[int, str, Sequence[bytes]], Any]


def old_prefix(namespace: str, partition: int) -> str:
    """What the names of the old keys of a partition begin with."""
    return f"{{{namespace}:p{partition}}}:"


def migrate(ask: Ask, namespace: str, partitions: int, cursor: str | None) -> Migrated:
    """Run one batch. The cursor names the step, partition and position of the next batch: each step
    is done in all partitions before the next one."""
    numbers = cursor.split(":", 2) if cursor else ("0", "0", _BEGIN)
    step, partition, begin = int(numbers[0]), int(numbers[1]), numbers[2]
    prefix = old_prefix(namespace, partition)
    words = [word.encode() for word in (_STEPS[step], begin, prefix)]
    far, moved, left = ask(partition, _SCRIPT, words)
    following: str | None = None
    if far:
        following = f"{step}:{partition}:{far.decode()}"
    elif partition + 1 < partitions:
        following = f"{step}:{partition + 1}:{_BEGIN}"
    elif step + 1 < len(_STEPS):
        following = f"{step + 1}:0:{_BEGIN}"
    return Migrated(moved=moved, left=left, cursor=following)

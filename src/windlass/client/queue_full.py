"""Retry an enqueue at a full queue.

1. A job that no key binds to a partition is tried in other partitions: their share of the bound
   may have room.
2. With `when_full="block"` the job is then retried until `enqueue_timeout`; otherwise it is
   refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from windlass.engine.contract import NewJob, Placed, PutCode
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.engine.contract import Engine

#: At most this many other partitions are tried at once: refused producers must not overload a
#: server with hundreds of partitions.
MOST_PARTITIONS: Final = 7
#: Back-off between tries: first pause, growth, longest pause, in seconds.
FIRST_S: Final = 0.02
GROWTH: Final = 1.5
LONGEST_S: Final = 0.25


class Attempts:
    """The answers to some jobs; the jobs that found no room are put again."""

    def __init__(self, engine: Engine, jobs: list[NewJob], placed: Sequence[Placed]) -> None:
        self._engine = engine
        self._jobs = jobs  # changed in place: a job in another partition has another id
        self.placed = list(placed)

    def pauses(self, settings: Settings) -> Iterator[float]:
        """The pause before each further try, in seconds, while there is one to make."""
        for pause_s in chain(self._partition_by_partition(), _in_time(settings)):
            if not self._refused():
                return
            yield pause_s

    def refused(self) -> list[NewJob]:
        """The jobs to put again, each moved to the partition after the full one."""
        for at in self._refused():
            if _is_unbound(job := self._jobs[at]):
                self._jobs[at] = replace(job, id=next(iter(self._engine.elsewhere(job.id)), job.id))
        return [self._jobs[at] for at in self._refused()]

    def note(self, placed: Sequence[Placed]) -> None:
        """Record the answers to the jobs that were put again."""
        for at, one in zip(self._refused(), placed, strict=True):
            self.placed[at] = one

    def _refused(self) -> list[int]:
        return [at for at, one in enumerate(self.placed) if one.code is PutCode.FULL]

    def _partition_by_partition(self) -> Iterator[float]:
        unbound = (self._jobs[at] for at in self._refused() if _is_unbound(self._jobs[at]))
        others = (self._engine.elsewhere(job.id) for job in unbound)
        yield from [0.0] * min(len(next(others, ())), MOST_PARTITIONS)


def _in_time(settings: Settings) -> Iterator[float]:
    """The pauses until `enqueue_timeout`; none with `when_full="reject"`."""
    if settings.when_full == "reject":
        return
    end, pause = time.monotonic() + settings.enqueue_timeout_ms / 1000, FIRST_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * GROWTH, LONGEST_S)


def _is_unbound(job: NewJob) -> bool:
    return job.idempotency_key is None and job.unique is None

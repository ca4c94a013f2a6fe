"""What an enqueue does about a full queue.

1. A job that no key binds to a partition is tried in others, whose part of the bound may not be
   used up.
2. Then nothing, or it is tried again until its time is over: as the settings say.
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

#: At most so many other partitions are tried at once: producers that are refused must not become
#: the load of a server with hundreds of them.
MOST_PARTITIONS: Final = 7
#: The first pause before another try, how it grows, and the longest one, in seconds.
FIRST_S: Final = 0.02
GROWTH: Final = 1.5
LONGEST_S: Final = 0.25


class Attempts:
    """The verdicts on some jobs, of which those that found no room are put again."""

    def __init__(self, engine: Engine, jobs: list[NewJob], placed: Sequence[Placed]) -> None:
        self._engine = engine
        self._jobs = jobs  # those that are moved are replaced in it: the caller names them by id
        self.placed = list(placed)

    def pauses(self, settings: Settings) -> Iterator[float]:
        """How long to wait before each further try, in seconds, while there is one to make."""
        for pause_s in chain(self._partition_by_partition(), _in_time(settings)):
            if not self._refused():
                return
            yield pause_s

    def refused(self) -> list[NewJob]:
        """The jobs to be put again, each in the partition after that which had no room."""
        for at in self._refused():
            if _is_unbound(job := self._jobs[at]):
                self._jobs[at] = replace(job, id=next(iter(self._engine.elsewhere(job.id)), job.id))
        return [self._jobs[at] for at in self._refused()]

    def note(self, placed: Sequence[Placed]) -> None:
        """The verdicts on those that were refused before."""
        for at, one in zip(self._refused(), placed, strict=True):
            self.placed[at] = one

    def _refused(self) -> list[int]:
        return [at for at, one in enumerate(self.placed) if one.code is PutCode.FULL]

    def _partition_by_partition(self) -> Iterator[float]:
        unbound = (self._jobs[at] for at in self._refused() if _is_unbound(self._jobs[at]))
        others = (self._engine.elsewhere(job.id) for job in unbound)
        yield from [0.0] * min(len(next(others, ())), MOST_PARTITIONS)


def _in_time(settings: Settings) -> Iterator[float]:
    """None when a full queue is an answer."""
    if settings.when_full == "reject":
        return
    end, pause = time.monotonic() + settings.enqueue_timeout_ms / 1000, FIRST_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * GROWTH, LONGEST_S)


def _is_unbound(job: NewJob) -> bool:
    return job.idempotency_key is None and job.unique is None

"""What an enqueue does about a full queue: nothing, or try again until its time is over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from windlass.engine.jobs import NewJob, Placed, PutCode
from windlass.settings import Settings

#: The first pause before another try, how it grows, and the longest one, in seconds.
FIRST_S: Final = 0.02
GROWTH: Final = 1.5
LONGEST_S: Final = 0.25


def pauses(settings: Settings) -> Iterator[float]:
    """How long to wait before each further try, in seconds; none when a full queue is an answer."""
    if settings.when_full == "reject":
        return
    end, pause = time.monotonic() + settings.enqueue_timeout_ms / 1000, FIRST_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * GROWTH, LONGEST_S)


class Attempts:
    """The verdicts on some jobs, of which those that found no room are put again."""

    def __init__(self, jobs: Sequence[NewJob], placed: Sequence[Placed]) -> None:
        self._jobs = jobs
        self.placed = list(placed)

    def refused(self) -> list[NewJob]:
        return [self._jobs[at] for at in self._refused()]

    def note(self, placed: Sequence[Placed]) -> None:
        """The verdicts on those that were refused before."""
        for at, one in zip(self._refused(), placed, strict=True):
            self.placed[at] = one

    def _refused(self) -> list[int]:
        return [at for at, one in enumerate(self.placed) if one.code is PutCode.FULL]

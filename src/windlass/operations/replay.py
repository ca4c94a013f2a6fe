"""The rule by which a bulk retry stops by itself: its jobs fail again.

1. `ReplayWatch` is stored with the operation: retried jobs that have not ended, and how the last
   ones went.
2. `watching` adds jobs that were just retried, at most `MAX_WATCHED` at a time. If workers are
   slower than the retry, these are a sample.
3. `observed` reads what became of them. A job has failed again if it is dead, or waits for another
   attempt.
4. `verdict` says why the operation has to stop, or nothing.

The rule looks at the last jobs alone, so that some failures among many successes do not stop a long
operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from windlass.core.states import State
from windlass.engine.contract import Engine, JobEnd

#: A bulk retry stops when this many of the last `WINDOW` retried jobs have failed again.
DEFAULT_STOP_AFTER: Final = 10
WINDOW: Final = 100
#: The most jobs that are watched at a time. They are stored with the operation.
MAX_WATCHED: Final = 300

_FAILED: Final = "f"
_SUCCEEDED: Final = "s"


class WatchedJob(msgspec.Struct, frozen=True, array_like=True):
    """A retried job, and the instant of the death before its retry."""

    id: str
    finished_ms: int | None = None


class ReplayWatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the jobs of a bulk retry."""

    stop_after: int = 0  # 0: the operation does not stop by itself
    watched: tuple[WatchedJob, ...] = ()
    recent: str = ""  # a letter for each of the last jobs, the oldest first
    failed_again: int = 0  # of all jobs that were watched

    def watching(self, jobs: Iterable[WatchedJob]) -> ReplayWatch:
        """The watch with jobs that were just retried."""
        if not self.stop_after:
            return self
        watched = dict.fromkeys((*self.watched, *jobs))
        return msgspec.structs.replace(self, watched=tuple(watched)[:MAX_WATCHED])

    def observed(self, engine: Engine) -> ReplayWatch:
        """The watch after a look at its jobs. One call of the engine, without payloads."""
        left, letters = [], ""
        ends = engine.ends([one.id for one in self.watched])
        for one, end in zip(self.watched, ends, strict=True):
            letter = _letter(one, end)
            if letter is None:
                left.append(one)
            letters += letter or ""
        return msgspec.structs.replace(
            self,
            watched=tuple(left),
            recent=(self.recent + letters)[-WINDOW:],
            failed_again=self.failed_again + letters.count(_FAILED),
        )

    def resumed(self) -> ReplayWatch:
        """The watch of an operation that continues: what failed before does not count again."""
        return ReplayWatch(stop_after=self.stop_after, failed_again=self.failed_again)

    @property
    def verdict(self) -> str:
        """Why the operation has to stop; empty if it may continue."""
        failed = self.recent.count(_FAILED)
        if not self.stop_after or failed < self.stop_after:
            return ""
        return f"{failed} of the last {len(self.recent)} retried jobs failed again"


def _letter(before: WatchedJob, end: JobEnd | None) -> str | None:
    """How a retried job went: None while that is open, empty for a job that does not count."""
    if end is None or end.state is State.CANCELLED:
        return ""
    if end.state is State.DEAD:  # a job whose unique key is taken was not retried
        return "" if end.finished_ms == before.finished_ms else _FAILED
    if end.state is State.RETRYING:
        return _FAILED
    return _SUCCEEDED if end.state is State.SUCCEEDED else None

"""What other threads bring to the fetcher, and the waiting that it ends.

1. Runners bring outcomes and the progress of jobs, the supervisor's words arrive as commands. They
   may come at any moment: appending to a deque and storing into a dict are atomic.
2. The fetcher collects them for a round trip, and heeds commands between two.
3. It waits by `hear`, which ends as soon as anything is brought.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeVar

from windlass.engine.contract import BATCH_BYTES, Claim, Outcome, Progressed

_T = TypeVar("_T")

#: How often, in seconds, the progress of jobs is passed on when nothing else is.
PROGRESS_S = 0.2


class Mailbox:
    """Of one fetcher. What brings something may be called from any thread, all else by the fetcher."""

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque()
        self.commands: deque[Callable[[], None]] = deque()
        self._progress: dict[tuple[str, str], Progressed] = {}
        self._last_progress_at = 0.0
        self._wake: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------- bringing

    def report(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._wake_waiter()

    def report_progress(self, claim: Claim, progress: bytes) -> None:
        """Only the newest progress of a job is passed on."""
        is_first = not self._progress
        key = (claim.id, claim.token)
        self._progress[key] = Progressed(id=claim.id, token=claim.token, progress=progress)
        if is_first:
            self._wake_waiter()

    def command(self, action: Callable[[], None]) -> None:
        self.commands.append(action)
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        # The fetcher stores `_wake` before it looks for news a last time, and here the news comes
        # before the look at `_wake`: one of the two sees the other.
        wake = self._wake
        if wake is not None:
            try:
                wake()
            except Exception:  # noqa: BLE001  # only a hint, and a slot must not be lost for it
                return

    # ----------------------------------------------------------------------------- collecting

    def run_commands(self) -> None:
        while self.commands:
            self.commands.popleft()()

    def collect(self, most: float) -> list[Outcome]:
        """What was reported: at most `most` outcomes, with about `BATCH_BYTES`, unless `most` is
        infinite. Outcomes are taken first and put last: so no progress is left behind that would
        follow the end of its job."""
        outcomes: list[Outcome] = []
        size = 0
        while self.outcomes and len(outcomes) < most:
            size += self.outcomes[0].size
            if size > BATCH_BYTES and outcomes and most < inf:
                break
            outcomes.append(self.outcomes.popleft())
        if self._progress and (outcomes or self.progress_due_s() <= 0):
            self._last_progress_at = monotonic()
            outcomes[:0] = [self._progress.popitem()[1] for _ in range(len(self._progress))]
        return outcomes

    def progress_due_s(self) -> float:
        """In how many seconds progress is to be passed on; infinite when there is none."""
        if not self._progress:
            return float("inf")
        return self._last_progress_at + PROGRESS_S - monotonic()

    # -------------------------------------------------------------------------------- waiting

    def hear(self, wake: Callable[[], None], wait: Callable[[], _T]) -> _T | None:
        """Wait in a way that `wake` ends, unless there is news already."""
        self._wake = wake
        try:
            return None if self.outcomes or self.commands else wait()
        finally:
            self._wake = None

    def stop_waking(self) -> None:
        """Wake nobody any more: the wait is about to end."""
        self._wake = None

    def sleep(self, seconds: float) -> None:
        """Until something is brought."""
        news: SimpleQueue[None] = SimpleQueue()  # wakes in half the time of an event
        with suppress(Empty):
            self.hear(lambda: news.put(None), lambda: news.get(timeout=seconds))

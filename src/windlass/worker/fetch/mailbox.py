"""The mailbox of the fetcher: outcomes, progress and commands from other threads.

1. Runners post outcomes and the progress of jobs; messages of the supervisor arrive as commands.
   No lock is needed: appending to a deque and storing into a dict are atomic.
2. The fetcher collects outcomes for a round trip, and runs commands between round trips.
3. `wait` ends as soon as a message arrives.
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

#: How often, in seconds, to send progress when there is no outcome to send.
PROGRESS_S = 0.2


class Mailbox:
    """Outcomes, progress and commands for the fetcher. Any thread may post; only the fetcher
    collects and waits."""

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque()
        self.commands: deque[Callable[[], None]] = deque()
        self._progress: dict[tuple[str, str], Progressed] = {}
        self._last_progress_at = 0.0
        self._wake: Callable[[], None] | None = None

    # -------------------------------------------------------------------------------- posting

    def report(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._wake_waiter()

    def report_progress(self, claim: Claim, progress: bytes) -> None:
        """Post the progress of a job. It replaces earlier progress that was not sent."""
        is_first = not self._progress
        key = (claim.id, claim.token)
        self._progress[key] = Progressed(id=claim.id, token=claim.token, progress=progress)
        if is_first:
            self._wake_waiter()

    def command(self, action: Callable[[], None]) -> None:
        self.commands.append(action)
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        # The fetcher stores `_wake` before its last check for messages, and a poster appends its
        # message before it reads `_wake`. So the message is seen, or the wait is ended.
        wake = self._wake
        if wake is not None:
            try:
                wake()
            except Exception:  # noqa: BLE001  # a failed wake-up must not cost a slot
                return

    # ----------------------------------------------------------------------------- collecting

    def run_commands(self) -> None:
        while self.commands:
            self.commands.popleft()()

    def collect(self, most: float) -> list[Outcome]:
        """Take at most `most` outcomes of about `BATCH_BYTES` in total, all if `most` is infinite.
        Outcomes are taken before progress and placed after progress, so that no progress of a job
        follows its end."""
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
        """Return the seconds until progress is due; infinite without progress."""
        if not self._progress:
            return inf
        return self._last_progress_at + PROGRESS_S - monotonic()

    # -------------------------------------------------------------------------------- waiting

    def wait(self, wake: Callable[[], None], wait: Callable[[], _T]) -> _T | None:
        """Call `wait`, unless messages are waiting. A new message ends it by `wake`."""
        self._wake = wake
        try:
            return None if self.outcomes or self.commands else wait()
        finally:
            self._wake = None

    def sleep(self, seconds: float) -> None:
        """Sleep until a message arrives."""
        news: SimpleQueue[None] = SimpleQueue()  # wakes a thread twice as fast as an event
        with suppress(Empty):
            self.wait(lambda: news.put(None), lambda: news.get(timeout=seconds))

"""A log line for each job that ends.

A line for each success is what an operator looks for first, and it costs more than a short job.
So a child logs the first successes of each second, and then one line with the number of the others.
Failed jobs have lines of their own (`pipeline`).
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from logging import DEBUG, INFO, getLogger
from math import inf
from threading import Lock

from windlass.core.quantities import Count
from windlass.engine.contract import Claim, Outcome, Succeeded
from windlass.worker.logs.events import LogEvent, LoggedValue

log = getLogger("windlass.worker")

#: The most lines about successes that a child logs within `WINDOW_S` seconds.
MOST_LINES = 20
WINDOW_S = 1.0


class EndLog:
    """For all runners of one child. While `silent_until` lies ahead, a success has no line and is
    only counted, by `count`. Levels are checked once: a check for each job costs time."""

    def __init__(self) -> None:
        self.is_enabled = log.isEnabledFor(INFO)
        self._is_debugging = log.isEnabledFor(DEBUG)
        self._most = inf if self._is_debugging else MOST_LINES
        self._lock = Lock()
        self._lines = 0  # in the current window
        self._window_ends_at = 0.0
        self.silent_until = 0.0
        self.count = count().__next__  # one step for threads, without a lock
        self._counted = 0  # before the current window

    def note(self, claim: Claim, outcome: Outcome, since: float, now: float) -> None:
        """Log the end of a run, or count it. `since` and `now` are its start and its end."""
        if not isinstance(outcome, Succeeded):
            if self._is_debugging:
                _log_end(claim, outcome, now - since)
            return
        if now >= self._window_ends_at:
            self.flush(now)
        with self._lock:
            self._lines += 1
            if self._lines >= self._most:
                self.silent_until = self._window_ends_at
            has_line = self._lines <= self._most
        if has_line:
            _log_end(claim, outcome, now - since)
        else:
            self.count()

    def flush(self, now: float | None = None) -> None:
        """Log the number of successes without a line, if their second is over. Without `now`, log
        the number in any case: the child ends."""
        with self._lock:
            if now is not None:
                if now < self._window_ends_at:
                    return
                self._window_ends_at = now + WINDOW_S
                self._lines = 0
            counted = self.count()
            others, self._counted = counted - self._counted, counted + 1
        if others:
            with suppress(BaseException):  # a handler of the app may be what fails
                log.info(LogEvent.JOBS_SUCCEEDED, Count(others, "more job"))


def _log_end(claim: Claim, outcome: Outcome, seconds: float) -> None:
    kind = type(outcome).__name__.lower()
    with suppress(BaseException):  # a handler of the app may be what fails
        log.info(
            LogEvent.JOB_ENDED,
            claim.id,
            claim.task,
            LoggedValue(kind, kind if isinstance(outcome, Succeeded) else f"ended as {kind}"),
            LoggedValue(round(seconds * 1000), _describe(seconds)),
            claim.counters.attempt,
        )


def _describe(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"

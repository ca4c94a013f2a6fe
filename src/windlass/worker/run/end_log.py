"""A log line for each job that ends.

A line for each success is what an operator looks for first, and it costs more than a short job.
So a child logs the first successes of each second, and then one line with the number of the others.
Failed jobs have lines of their own (`pipeline`).
"""

from __future__ import annotations

from contextlib import suppress
from logging import DEBUG, INFO, getLogger
from math import inf
from threading import Lock
from time import monotonic

from windlass.core.quantities import Count
from windlass.engine.contract import Claim, Outcome, Succeeded
from windlass.worker.logs.events import LogEvent, LoggedValue

log = getLogger("windlass.worker")

#: The most lines about successes that a child logs within `WINDOW_S` seconds.
MOST_LINES = 20
WINDOW_S = 1.0


class EndLog:
    """For all runners of one child. Levels are checked once: a check for each job costs time."""

    def __init__(self) -> None:
        self.is_enabled = log.isEnabledFor(INFO)
        self._is_debugging = log.isEnabledFor(DEBUG)
        self._most = inf if self._is_debugging else MOST_LINES
        self._lock = Lock()
        self._lines = 0  # in the current window
        self._others = 0  # successes without a line in the current window
        self._window_ends_at = 0.0

    def note(self, claim: Claim, outcome: Outcome, since: float, now: float) -> None:
        """Log the end of a run, or count it. `since` and `now` are its start and its end."""
        if not isinstance(outcome, Succeeded):
            if self._is_debugging:
                _log_end(claim, outcome, now - since)
            return
        if now >= self._window_ends_at:
            self.flush(now)
        with self._lock:
            has_line = self._lines < self._most
            if has_line:
                self._lines += 1
            else:
                self._others += 1
        if has_line:
            _log_end(claim, outcome, now - since)

    def flush(self, now: float | None = None) -> None:
        """Log the number of successes without a line, if their second is over. Without `now`, log
        the number in any case: the child ends."""
        with self._lock:
            is_last = now is None
            now = monotonic() if now is None else now
            if now < self._window_ends_at and not is_last:
                return
            others, self._others, self._lines = self._others, 0, 0
            self._window_ends_at = now + WINDOW_S
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

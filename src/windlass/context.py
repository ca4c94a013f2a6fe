"""The context of a running job: its id, attempt, headers, progress and log.

Progress and log lines are stored with the job as one report. The worker sends the newest report to
the engine, at most a few times per second.

A worker sets `running` around every job. Any code that the task calls can read it by
`current_context`, also in coroutines and in `asyncio.to_thread`. A task with `takes_context=True`
gets the same object as its first argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from windlass.core import foreign_words
from windlass.core.signals import Interruption
from windlass.errors import NoContext

#: A longer progress message is cut to this many characters.
MAX_PROGRESS_MESSAGE: Final = 1_000
#: An attempt keeps this many log lines, the newest ones.
MAX_LOG_LINES: Final = 50
#: A longer log line is cut to this many characters.
MAX_LOG_LINE: Final = 500

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Progress(msgspec.Struct, frozen=True):
    """The progress of a job: a fraction from 0 to 1, and a message."""

    value: float
    message: str = ""


class LogLine(msgspec.Struct, frozen=True):
    """A line that a task kept with `ctx.log`, timed by the clock of its worker."""

    at: datetime
    message: str


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored progress and log lines of an attempt. Each report replaces the previous one."""

    value: float | None = None
    message: str = ""
    log: tuple[LogLine, ...] = ()


class Context:
    """The running job. `attempt` starts at 1; `headers` come from the caller; `state` is the value
    that the lifespan of the app yielded in this process, or None."""

    __slots__ = (
        "_report",
        "_sink",
        "attempt",
        "headers",
        "interruption",
        "job_id",
        "max_attempts",
        "queue",
        "state",
        "task",
    )

    def __init__(
        self,
        *,
        job_id: str,
        task: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        sink: Callable[[bytes], None],
        state: Any = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self.job_id = job_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.state = state
        self.headers = headers
        self.interruption: Interruption | None = None  # set by the worker only
        self._sink = sink
        self._report = _NO_REPORT

    @property
    def cancelled(self) -> bool:
        """Whether the task should stop: its job was cancelled, timed out or was reassigned.

        Always False when the task is called as a plain function."""
        return self.interruption is not None

    def progress(self, value: float, message: str = "") -> None:
        """Report progress from 0 to 1. `job.info().progress` shows it a moment later."""
        message = _storable(message, MAX_PROGRESS_MESSAGE)
        self._send(Report(_fraction(value), message, self._report.log))

    def log(self, message: str) -> None:
        """Store a log line with the job. `job.info().log` and `windlass job show` show the line.

        The job keeps the newest 50 lines of its latest attempt. Use this method for facts about one
        job, and `logging` for the program."""
        if not isinstance(message, str):
            raise TypeError(f"ctx.log takes text, found {message!r}: write f'...' or str(...)")
        before = self._report
        line = LogLine(datetime.now(UTC), _storable(message, MAX_LOG_LINE))
        lines = (*before.log[1 - MAX_LOG_LINES :], line)
        self._send(Report(before.value, before.message, lines))

    def _send(self, report: Report) -> None:
        self._report = report
        self._sink(msgspec.json.encode(report))

    def __repr__(self) -> str:
        return (
            f"<Context of job {self.job_id}, task {self.task}, "
            f"attempt {self.attempt} of {self.max_attempts}>"
        )

    if not TYPE_CHECKING:  # for a checker there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for missing attributes."""
            raise foreign_words.missing_attribute(
                self, name, "A context", foreign_words.OF_CONTEXTS
            )


_NO_REPORT: Final = Report()

#: The context of the current job; set by a worker, unset elsewhere.
running: ContextVar[Context] = ContextVar("running")


def current_context() -> Context:
    """The context of the current job; raises `NoContext` outside of a job."""
    try:
        return running.get()
    except LookupError:
        raise NoContext from None


def _storable(text: str, limit: int) -> str:
    """Cut the text, and escape characters that UTF-8 cannot encode."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def _fraction(value: float) -> float:
    fraction = float(value)
    if math.isnan(fraction) or not 0.0 <= fraction <= 1.0:
        raise ValueError(f"progress must be from 0 to 1, found {value!r}: divide by the total")
    return fraction

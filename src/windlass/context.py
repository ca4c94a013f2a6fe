"""What a running task knows about its job.

What it tells of itself (`progress`, `log`) is stored with the job as one report; a worker passes on
the newest one, a few times a second at most.

A worker sets `running` around every job; `current_context` reads it anywhere below the task, in
coroutines and in `asyncio.to_thread` too. A task declared with `takes_context=True` is handed the
same object as its first argument.
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
#: So many lines of an attempt are kept, the newest ones,
MAX_LOG_LINES: Final = 50
#: and of each so many characters.
MAX_LOG_LINE: Final = 500

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Progress(msgspec.Struct, frozen=True):
    """How far a job is: a share from 0 to 1, and a word about it."""

    value: float
    message: str = ""


class LogLine(msgspec.Struct, frozen=True):
    """What a task said of its run, and when, by the clock of its worker."""

    at: datetime
    message: str


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that an attempt told of itself, as it is stored: each report replaces the one before."""

    value: float | None = None
    message: str = ""
    log: tuple[LogLine, ...] = ()


class Context:
    """The job that is running. `attempt` is 1 for the first try; `headers` are what its caller sent
    along; `state` is what the lifespan of the app gave to this process, or None."""

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
        self.interruption: Interruption | None = None  # set by the worker, and by nobody else
        self._sink = sink
        self._report = _NO_REPORT

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the job was cancelled, its time is over, or another worker has it.

        Always False in a plain call."""
        return self.interruption is not None

    def progress(self, value: float, message: str = "") -> None:
        """Tell how far the job is, from 0 to 1. Seen in `job.info().progress` a moment later."""
        message = _storable(message, MAX_PROGRESS_MESSAGE)
        self._tell(Report(_share(value), message, self._report.log))

    def log(self, message: str) -> None:
        """Keep a line with the job: seen in `job.info().log` and `windlass job show` soon after.

        Of each attempt the newest 50 lines are kept, and those of the latest attempt are shown. For
        what happened to one job; what happens in a program belongs into its own log."""
        if not isinstance(message, str):
            raise TypeError(f"ctx.log takes text, found {message!r}: write f'...' or str(...)")
        before = self._report
        line = LogLine(datetime.now(UTC), _storable(message, MAX_LOG_LINE))
        lines = (*before.log[1 - MAX_LOG_LINES :], line)
        self._tell(Report(before.value, before.message, lines))

    def _tell(self, report: Report) -> None:
        self._report = report
        self._sink(msgspec.json.encode(report))

    def __repr__(self) -> str:
        return (
            f"<Context of job {self.job_id}, task {self.task}, "
            f"attempt {self.attempt} of {self.max_attempts}>"
        )

    if not TYPE_CHECKING:  # for a checker there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for what is not there."""
            raise foreign_words.missing_attribute(
                self, name, "A context", foreign_words.OF_CONTEXTS
            )


_NO_REPORT: Final = Report()

#: The context of the job that runs here; set by a worker, unset elsewhere.
running: ContextVar[Context] = ContextVar("running")


def current_context() -> Context:
    """The context of the job that is running here; raises `NoContext` outside of one."""
    try:
        return running.get()
    except LookupError:
        raise NoContext from None


def _storable(text: str, limit: int) -> str:
    """Cut, and without what UTF-8 cannot carry."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def _share(value: float) -> float:
    share = float(value)
    if math.isnan(share) or not 0.0 <= share <= 1.0:
        raise ValueError(f"progress is a share from 0 to 1, found {value!r}: divide by the total")
    return share

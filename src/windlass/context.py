"""The context of a running job: its id, attempt, headers, progress, log and completed steps.

Progress and log lines are stored with the job as one report. The worker sends the newest report to
the engine, at most a few times per second.

A worker sets `running` around every job. Any code that the task calls can read it by
`current_context`, also in coroutines and in `asyncio.to_thread`. A task with `takes_context=True`
gets the same object as its first argument.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from windlass.core import foreign_words
from windlass.core.signals import Interruption
from windlass.errors import NoContext, NoTransaction

if TYPE_CHECKING:
    import psycopg

    from windlass.steps import StepSource
    from windlass.transaction import JobTransaction, TransactionSource

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

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
        "_connection",
        "_make_steps",
        "_report",
        "_sink",
        "_steps",
        "_transactions",
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
        self._connection: Any = None
        self._transactions: TransactionSource | None = None
        self._make_steps: Callable[[Context], StepSource] | None = None
        self._steps: StepSource | None = None

    @property
    def connection(self) -> Any:
        """The connection of a task with `transaction=True`: one of psycopg, to the database of the
        jobs. Its transaction is committed together with the success of the job.

        A `psycopg.Connection` in plain functions, a `psycopg.AsyncConnection` in coroutines. Raises
        `NoTransaction` in other tasks and outside of a worker."""
        if self._connection is None:
            raise NoTransaction(_NO_CONNECTION)
        return self._connection

    @overload
    def transaction(
        self,
    ) -> JobTransaction[psycopg.Connection[Any], psycopg.AsyncConnection[Any]]: ...
    @overload
    def transaction(self, connection: C) -> JobTransaction[C, C]: ...
    def transaction(self, connection: Any = None) -> JobTransaction[Any, Any]:
        """A block, `with` or `async with`, whose end commits the writes on its connection together
        with the success of the job. An error rolls both back.

        `connection` is a connection of your own to the database of the jobs, outside of a
        transaction. Without one, the worker lends a connection of psycopg. Raises `NoTransaction`
        where a job cannot end in a transaction, and at the end of the block `ClaimLost` if the job
        was reassigned."""
        if self._transactions is None:
            raise NoTransaction(_NO_WORKER)
        return self._transactions.begin(connection)

    def enter_transactions(self, transactions: TransactionSource) -> None:
        """Let this run end in a transaction. For the worker only."""
        self._transactions = transactions

    def enter_connection(self, connection: object) -> None:
        """Give `connection` to the task. For the worker only."""
        self._connection = connection

    # --------------------------------------------------------------------------- outside effects

    @property
    def idempotency_key(self) -> str:
        """A key for calls of other services, such as the header `Idempotency-Key` of a payment
        service: the text of a UUID, the same in all attempts of the job, and of no other job.

        For several calls in one job, append a name to the key."""
        from windlass.core.ids import outside_key  # seldom needed

        return outside_key(self.job_id)

    def once(self, key: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and store its value, or return the value that an earlier attempt of
        this job has stored. `key` names the step within the job.

        The value is rebuilt by the annotation of the function; without one, the value has the types
        of JSON. A function that raises does not complete the step. After a crash between the effect
        of the function and the storing, the next attempt calls the function again: pass
        `idempotency_key` to the service too. Raises `OnceRefused` if the step cannot be stored
        here, and `ClaimLost` if the job was reassigned. A plain call of the task stores nothing."""
        steps = self._find_steps()
        return (
            function(*args, **kwargs) if steps is None else steps.once(key, function, args, kwargs)
        )

    async def aonce(
        self,
        key: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """The same as `once` in a coroutine, for a function that is a coroutine."""
        steps = self._find_steps()
        if steps is None:
            return await function(*args, **kwargs)
        value: R = await steps.aonce(key, function, args, kwargs)
        return value

    def _find_steps(self) -> StepSource | None:
        """The steps of this run, the same for all threads of the task; None outside of a worker."""
        if self._make_steps is None:
            return None
        with _making:
            if self._steps is None:
                self._steps = self._make_steps(self)
            return self._steps

    def enter_steps(self, make_steps: Callable[[Context], StepSource]) -> None:
        """Let this run store steps; they are made at the first use, from this context: a function
        that held it would keep it alive. For the worker only."""
        self._make_steps = make_steps

    # ------------------------------------------------------------------------------ what is shown

    @property
    def last_report(self) -> bytes | None:
        """The newest progress and log lines, as they are stored."""
        return None if self._report is _NO_REPORT else msgspec.json.encode(self._report)

    @property
    def cancelled(self) -> bool:
        """Whether the task should stop: its job was cancelled, timed out or was reassigned.

        Always False when the task is called as a plain function."""
        return self.interruption is not None

    def progress(self, value: float, message: str = "") -> None:
        """Report progress from 0 to 1. It appears in `job.info().progress` a moment later.

        Never fails a job: a number outside this range is clamped, and a value that is not a number
        is ignored, each with a warning in the log."""
        fraction = self._fraction(value)
        text = self._text(message, MAX_PROGRESS_MESSAGE)
        self._send(Report(fraction, text, self._report.log))

    def log(self, message: str) -> None:
        """Store a log line with the job. `job.info().log` and `windlass job show` show the line.

        The job keeps the newest 50 lines of its latest attempt. Use it for facts about one job;
        for the program use `logging`. Never fails a job: a value that is not text is converted."""
        before = self._report
        line = LogLine(datetime.now(UTC), self._text(message, MAX_LOG_LINE))
        lines = (*before.log[1 - MAX_LOG_LINES :], line)
        self._send(Report(before.value, before.message, lines))

    def _fraction(self, value: float) -> float | None:
        """Clamp a number to the range from 0 to 1; keep the last value for anything else."""
        try:
            fraction = float(value)
        except Exception:  # noqa: BLE001  # a type of the user may raise anything
            fraction = math.nan
        if 0.0 <= fraction <= 1.0:
            return fraction
        warn_once(
            self.task,
            "task %s passed a wrong value to ctx.progress, continuing: %s",
            f"expected a number from 0 to 1, found {_shown(value)}",
        )
        return self._report.value if math.isnan(fraction) else min(max(fraction, 0.0), 1.0)

    def _text(self, message: object, limit: int) -> str:
        """Cut the text, and escape characters that UTF-8 cannot encode."""
        if not isinstance(message, str):
            message = _shown(message)
            warn_once(
                self.task,
                "task %s passed a wrong message to its context, continuing: %s",
                f"expected text, found {message}",
            )
        return message[:limit].encode("utf-8", "backslashreplace").decode()

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


_making: Final = Lock()
_NO_REPORT: Final = Report()
_NO_CONNECTION: Final = (
    "ctx.connection is for a task with @app.task(transaction=True), while a worker runs it. In "
    "another task, write `with ctx.transaction() as connection:`; outside of a worker, open a "
    "connection of your own."
)
_NO_WORKER: Final = (
    "A job ends in a transaction with your writes only in a worker whose jobs are in PostgreSQL "
    "(a url such as postgresql://localhost/shop), and not in a plain call or a sandbox. With "
    "another engine, make the writes safe to repeat: store ctx.job_id with them in a unique column."
)
#: Tasks and the warnings that were logged for them.
_warned: Final[set[tuple[str, str]]] = set()

#: The context of the current job; set by a worker, unset elsewhere.
running: ContextVar[Context] = ContextVar("running")


def current_context() -> Context:
    """The context of the current job; raises `NoContext` outside of a job."""
    try:
        return running.get()
    except LookupError:
        raise NoContext from None


def warn_once(task: str, template: str, why: str) -> None:
    """Log a warning once for each task of this process."""
    if (task, template) in _warned:
        return
    _warned.add((task, template))
    import logging  # slow to import, and seldom needed here

    logging.getLogger("windlass.context").warning(template, task, why)


def _shown(value: object) -> str:
    """Format the value for a message, even if its `__repr__` raises."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # code of the user may raise anything
        return f"<{type(value).__name__}>"

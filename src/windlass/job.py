"""A handle on one job, and a snapshot of its state.

1. `JobInfo` is a snapshot: it does not change when the job does.
2. `Job` is an id with methods. Only `info`, `result`, `cancel` and `retry` call the engine. Each
   has an async twin, which calls the engine on the app's I/O thread.

`result` first polls the job at least 3 ms after the enqueue. The engine wakes the caller when the
job has ended (`result_waiters`). A wake-up can be lost, so `result` also polls after 50 ms and
then at growing intervals up to one second. A poll reads state and result, never the arguments.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast

import msgspec

from windlass.context import LogLine, Progress, Report, running, warn_once
from windlass.core import foreign_words
from windlass.core.durations import Duration, describe_ms, instant, to_ms
from windlass.core.failures import FailureText
from windlass.core.ids import release_of
from windlass.core.queues.labels import labels_of, queue_of
from windlass.core.serialization.envelope import unpack
from windlass.core.states import Event, Hold, Reason, State
from windlass.engine.contract import CancelCode, ChangeCode, Engine, JobEnd, JobRecord, Revival
from windlass.errors import (
    DecodeError,
    DuplicateJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultExpired,
)
from windlass.twins import EngineCall, Pause, Steps, ask, twins, verb

if TYPE_CHECKING:
    from windlass.app import Windlass

R_co = TypeVar("R_co", covariant=True)

#: The shortest time between an enqueue and the first poll by the handle that it returned.
START_MS: Final = 3
#: Intervals between polls for a result without a wake-up: first, growth, longest.
FIRST_LOOK_MS: Final = 50
LOOK_GROWTH: Final = 2
LAST_LOOK_MS: Final = 1000
#: How long `result` without a time-out waits for the commit of a job's transaction, in seconds.
APPEAR_S: Final = 10.0


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one instant. Times are in UTC, by the engine's clock."""

    id: str
    task: str
    queue: str
    requires: tuple[str, ...]  # labels that its worker must have
    priority: int
    state: State
    hold: Hold  # why a ready job does not run
    reason: Reason | None  # why it ended as dead or cancelled
    attempts: int  # includes the current attempt
    crashes: int
    snoozes: int
    enqueued_at: datetime
    due_at: datetime | None  # the earliest start of a delayed job
    expires_at: datetime | None
    started_at: datetime | None  # the latest start
    finished_at: datetime | None
    worker: str | None  # the worker that runs it, or ran it last
    release: str | None  # the setting release of that worker
    cancel_requested: bool
    progress: Progress | None
    log: tuple[LogLine, ...]  # the lines of ctx.log in the latest attempt
    error: FailureText | None  # the latest error, also if a later attempt succeeded
    headers: Mapping[str, str]  # from the caller; empty in lists of jobs
    unique_key: str | None = None  # of a task with unique=...: a digest of what makes the key
    held_because: str | None = None  # why the last worker that claimed it could not run it

    @classmethod
    def of(cls, record: JobRecord) -> JobInfo:
        data = record.progress
        report = Report() if data is None else msgspec.json.decode(data, type=Report)
        progress = None if report.value is None else Progress(report.value, report.message)
        return cls(
            id=record.id,
            task=record.task,
            queue=queue_of(record.queue),
            requires=labels_of(record.queue),
            priority=record.priority,
            state=record.state,
            hold=record.hold,
            reason=record.reason,
            attempts=record.counters.attempt,
            crashes=record.counters.crashes,
            snoozes=record.counters.snoozes,
            enqueued_at=instant(record.created_ms),
            due_at=instant(record.due_ms),
            expires_at=instant(record.expires_ms),
            started_at=instant(record.started_ms),
            finished_at=instant(record.finished_ms),
            worker=record.session,
            release=release_of(record.session),
            cancel_requested=record.cancel_requested,
            progress=progress,
            log=report.log,
            error=latest_error(record),
            headers=headers_of(record),
            unique_key=record.unique_key,
            held_because=held_because(record),
        )


class Job(Generic[R_co]):
    """A handle on one job. `created` is True if the enqueue that returned this handle stored the
    job, and False if its idempotency key or unique key belongs to an earlier job. It is also False
    for a handle made from an id."""

    __slots__ = ("_app", "_is_pending", "_since", "created", "id", "task")

    def __init__(
        self,
        app: Windlass,
        id: str,
        task: str | None,
        created: bool = False,
        since: float = 0.0,
        *,
        is_pending: bool = False,
    ) -> None:
        self._app = app
        self.id = id
        self.task = task  # the name of its task; None when only the id is known
        self.created = created
        self._since = since  # when the enqueue ended that returned this handle, or 0
        self._is_pending = is_pending  # enqueued in a transaction, and not found since

    @twins
    def info(self) -> Steps[JobInfo]:
        """A snapshot of the job. Raises `JobNotFound`."""
        return JobInfo.of((yield from self._read()))

    ainfo = info.awaited

    @twins
    def result(self, timeout: Duration | None = None) -> Steps[R_co]:
        """Wait for the job to end, and return the result of its function.

        Raises `JobFailed`, `JobCancelled`, `ResultExpired` or `JobNotFound`, and the builtin
        `TimeoutError` if the job has not ended within `timeout`. Inside a running job, waiting
        needs a `timeout`: jobs that wait keep their slots, and may leave none for this job."""
        return self._result_of((yield from self.ending(timeout)))

    aresult = result.awaited

    def ending(self, timeout: Duration | None = None) -> Steps[JobEnd]:
        """Wait for the job to end, as steps. Raises as `result` does, but for no outcome."""
        timer, app = _PollTimer(timeout), self._app
        early_s = self._since + START_MS / 1000 - time.monotonic()
        if early_s > 0 and (left_s := timer.left_s()) > 0:
            yield Pause(min(early_s, left_s))  # a job that was just enqueued has not ended
        found: JobEnd | None = yield EngineCall(_ends, self.id)
        if found is None and self._is_pending:
            found = yield from self._appearing(timer)
        end = self._own_end(found)
        if end.state.is_final:
            return end
        self._refuse_to_wait_in_sandbox()
        self._check_waiting_job(timeout)
        timer.check(end, app.engine)
        with app.result_waiters.waiter(self.id) as waiter:
            while True:
                waiter.listen()
                end = self._own_end((yield EngineCall(app.result_waiters.watch, self.id)))
                if end.state.is_final:
                    return end
                timer.check(end, app.engine)
                yield waiter.wait(timer.pause_s())

    @twins
    def cancel(self) -> Steps[bool]:
        """Keep the job from running, or from running again.

        The worker interrupts a running job within about a second. The job ends as cancelled
        unless it succeeds; until then `info().cancel_requested` is true. Returns False if the job
        had ended already. Raises `JobNotFound`."""
        code = yield from ask(_cancel, self.id)
        if code is CancelCode.UNKNOWN:
            raise self._not_found()
        return code is not CancelCode.FINAL

    acancel = cancel.awaited

    @twins
    def retry(self) -> Steps[bool]:
        """Make a dead or cancelled job ready again, with all its attempts.

        Returns False if the job is neither. Raises `JobNotFound`, and `DuplicateJob` while another
        job holds its unique key."""
        while (code := (yield from ask(_retry, self.id))) is ChangeCode.DUPLICATE:
            record = yield from self._read()
            holder = yield from ask(holders, key_of(record))
            if holder is not None:  # None: the other job has ended meanwhile
                raise DuplicateJob(record.task, holder, record.id)
        if code is ChangeCode.UNKNOWN:
            raise self._not_found()
        return code is ChangeCode.DONE

    aretry = retry.awaited

    @twins
    def edit(self, *args: Any, **kwargs: Any) -> Steps[bool]:
        """Replace all arguments of the job, which are checked as at an enqueue.

        A waiting job keeps its place; a dead or cancelled job becomes ready again, with all its
        attempts. The job keeps its unique key and its headers. Returns False if the job runs or
        has succeeded. Raises `JobNotFound`, `DuplicateJob`, and `InvalidTask` if this app does not
        know the task; then the job is unchanged."""
        return (yield from self._app.jobs.editing(self.id, args, kwargs))

    aedit = edit.awaited

    @twins
    def run_now(self) -> Steps[bool]:
        """Let a scheduled or retrying job start at once. A ready job stays as it is.

        Returns False if the job runs or has ended. Raises `JobNotFound`."""
        return (yield from self._app.jobs.running_now(self.id))

    arun_now = run_now.awaited

    @twins
    def move(self, queue: str) -> Steps[bool]:
        """Move a waiting job to another queue. It keeps its priority, its place by age, and the
        labels that its worker must have.

        Returns False if the job runs or has ended. Raises `JobNotFound`."""
        return (yield from self._app.jobs.moving(self.id, queue))

    amove = move.awaited

    def __dir__(self) -> list[str]:
        """The public names, for a shell that completes them."""
        return [name for name in super().__dir__() if name[0] != "_" and name != "ending"]

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.task}>" if self.task else f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    if not TYPE_CHECKING:  # hidden from type checkers

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for missing attributes."""
            raise foreign_words.missing_attribute(self, name, "A job", foreign_words.OF_JOBS)

        def __await__(self) -> NoReturn:
            raise TypeError(
                f"{self!r} is enqueued already, and cannot be awaited: in a coroutine write `await "
                "task.aenqueue(...)`, and `await job.aresult()` for its result."
            )

    # --------------------------------------------------------------------------------- inside

    def _read(self) -> Steps[JobRecord]:
        record = yield from ask(get, self.id)
        if record is None:
            raise self._not_found()
        self._is_pending = False
        self._check_task(record.task)
        return self._app.packing.reveal_failures(record)

    def _appearing(self, timer: _PollTimer) -> Steps[JobEnd | None]:
        """Wait until a job is found that was enqueued in a transaction: until the time-out or,
        without one, for as long as a commit and a relay usually take."""
        until, pause_s = time.monotonic() + APPEAR_S, FIRST_LOOK_MS / 1000
        while (left_s := timer.left_s()) > 0 and (left_s < inf or time.monotonic() < until):
            yield Pause(min(pause_s, left_s))
            end: JobEnd | None = yield EngineCall(_ends, self.id)
            if end is not None:
                return end
            pause_s = min(pause_s * LOOK_GROWTH, LAST_LOOK_MS / 1000)
        if left_s <= 0:
            raise TimeoutError(str(self._not_found()))
        return None

    def _own_end(self, end: JobEnd | None) -> JobEnd:
        if end is None:
            raise self._not_found()
        self._is_pending = False
        if end.task != self.task:
            self._check_task(end.task)
        return end

    def _check_task(self, found: str) -> None:
        if self.task not in (None, found) and not self._is_renamed(found):
            raise TypeError(
                f"Job {self.id} belongs to task {found}, not to {self.task}: its result has "
                f"another type. Get it from {found}.job(id) or app.job(id)."
            )

    def _is_renamed(self, found: str) -> bool:
        """Whether the job is stored under an alias of the same task."""
        name = self._app.name_of
        return self.task is not None and name(found) == name(self.task)

    def _result_of(self, end: JobEnd) -> R_co:
        reason = str(end.reason or end.state)
        if end.state is State.CANCELLED:
            raise JobCancelled(self.id, end.task, reason)
        if end.state is State.DEAD:
            error = self._error_of(end)
            raise JobFailed(self.id, end.task, reason, error.type, error.message, error.traceback)
        if end.result is None:
            raise ResultExpired(self.id, end.task)
        return cast(R_co, self._app.decode_result(end.task, end.id, end.result))

    def _error_of(self, end: JobEnd) -> FailureText:
        if end.failure is None:
            return FailureText()
        text = FailureText.unpack(end.failure.error)
        return self._app.packing.open_failure(text, end.task, end.id)

    def _refuse_to_wait_in_sandbox(self) -> None:
        """Raise in a sandbox, where no worker runs: the test would wait forever."""
        if self._app.is_in_sandbox and not self._app.engine.sessions():
            raise TimeoutError(
                f"Job {self.id} waits in a sandbox, where no worker runs: call drain() of the "
                "sandbox, then result()."
            )

    def _check_waiting_job(self, timeout: Duration | None) -> None:
        """Refuse to wait inside a running job without a time-out; warn once if there is one."""
        context = running.get(None)
        if context is None:
            return
        advice = (
            "it keeps its slot while it waits, and when all slots wait, none is left for that job. "
            "End this job instead, and enqueue the next step from the other one"
        )
        if timeout is None:
            raise RuntimeError(
                f"Job {context.job_id} of task {context.task} would wait for job {self.id}: "
                f"{advice}; or limit the wait with result(timeout=...)."
            )
        warn_once(
            context.task,
            "task %s waits for the result of another job: %s",
            f"{advice}.",
        )

    def _not_found(self) -> JobNotFound:
        return JobNotFound(self.id, self._app.engine.location, self._is_pending)


class _PollTimer:
    """The intervals between polls for a result, and the time-out."""

    def __init__(self, timeout: Duration | None) -> None:
        self._timeout_ms = None if timeout is None else to_ms(timeout, name="timeout")
        self._begin = time.monotonic()
        self._pause_ms: float = FIRST_LOOK_MS

    def left_s(self) -> float:
        if self._timeout_ms is None:
            return inf
        return self._begin + self._timeout_ms / 1000 - time.monotonic()

    def check(self, end: JobEnd, engine: Engine) -> None:
        """Raise `TimeoutError` after the time-out."""
        if self._timeout_ms is not None and self.left_s() <= 0:
            raise TimeoutError(
                f"Job {end.id} has not ended within {describe_ms(self._timeout_ms)}: it is "
                f"{end.state} in {engine.location}. The job continues: call result() again later, "
                "or check info() and whether workers serve that location."
            )

    def pause_s(self) -> float:
        """The interval to the next poll without a wake-up."""
        pause_ms, self._pause_ms = self._pause_ms, min(self._pause_ms * LOOK_GROWTH, LAST_LOOK_MS)
        return max(0.0, min(pause_ms / 1000, self.left_s()))


def latest_error(record: JobRecord) -> FailureText | None:
    """The newest error in a job's history."""
    for failure in reversed(record.failures):
        if failure.event != Event.REVIVE:  # a REVIVE entry holds the replaced call, no error
            return FailureText.unpack(failure.error)
    return None


def held_because(record: JobRecord) -> str | None:
    """Why the last worker that claimed the job could not run it."""
    why = record.held_because
    return None if why is None else FailureText.unpack(why).message


def headers_of(record: JobRecord) -> Mapping[str, str]:
    """The headers in the envelope; empty if the envelope cannot be read."""
    if b'"headers"' not in record.payload:
        return {}
    try:
        return unpack(record.payload, record.task).headers
    except DecodeError:
        return {}


def key_of(record: JobRecord) -> tuple[str, str]:
    """The unique key of a job, for `holders`."""
    return record.task, record.unique_key or ""


get = verb(Engine.get)
holders = verb(Engine.holders)
_ends = verb(Engine.ends)
_cancel = verb(Engine.cancel)


def _retry(engine: Engine, ids: Sequence[str]) -> Sequence[ChangeCode]:
    return engine.revive([Revival(id=job_id) for job_id in ids])

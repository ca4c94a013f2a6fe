"""A handle on one job, and what can be seen of it.

1. `JobInfo` is a snapshot: nothing in it changes when the job does.
2. `Job` is a plain id with verbs. Making one asks nobody; `info`, `result`, `cancel` and `retry`
   ask the engine, each with a twin for coroutines that does the same on the app's I/O thread.

Waiting for a result is looking, for the first time 3 ms after the enqueue at the earliest, and then
being woken by the engine when the job has ended (`result_waiters`). A wake-up is a hint: the caller
looks by itself after 50 ms, then ever later, up to every second. A look reads how far the job has
come and its result, never its arguments.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar, cast

import msgspec

from windlass.context import LogLine, Progress, Report
from windlass.core import foreign_words
from windlass.core.durations import Duration, describe_ms, to_ms
from windlass.core.failures import FailureText
from windlass.core.queues.labels import labels_of, queue_of
from windlass.core.serialization.envelope import unpack
from windlass.core.states import Event, Hold, Reason, State
from windlass.engine.contract import CancelCode, ChangeCode, JobEnd, JobRecord
from windlass.errors import (
    DecodeError,
    DuplicateJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultExpired,
)

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.engine.contract import Engine

R_co = TypeVar("R_co", covariant=True)

#: How long a job that was enqueued by this handle is left alone before the first look at it.
START_MS: Final = 3
#: How long to wait, unless woken, between two looks at a job whose result is awaited: first,
#: growth, most.
FIRST_LOOK_MS: Final = 50
LOOK_GROWTH: Final = 2
LAST_LOOK_MS: Final = 1000

_NO_REPORT: Final = Report()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one instant. Times are in UTC, by the engine's clock."""

    id: str
    task: str
    queue: str
    requires: tuple[str, ...]  # labels that its worker must have
    priority: int
    state: State
    hold: Hold  # why it is not run although it is ready
    reason: Reason | None  # why it ended as dead or cancelled
    attempts: int  # the one under way included
    crashes: int
    snoozes: int
    enqueued_at: datetime
    due_at: datetime | None  # when it may start, if that is later
    expires_at: datetime | None
    started_at: datetime | None  # the latest start
    finished_at: datetime | None
    worker: str | None  # who runs it, or ran it last
    cancel_requested: bool
    progress: Progress | None
    log: tuple[LogLine, ...]  # what the latest attempt said with ctx.log
    error: FailureText | None  # the latest one, also when a later attempt went well
    headers: Mapping[str, str]  # what the caller sent along; empty in lists of jobs
    unique_key: str | None = None  # of a task with unique=...: a digest of what makes the key

    @classmethod
    def of(cls, record: JobRecord) -> JobInfo:
        report = _report_of(record)
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
            due_at=_instant_or_none(record.due_ms),
            expires_at=_instant_or_none(record.expires_ms),
            started_at=_instant_or_none(record.started_ms),
            finished_at=_instant_or_none(record.finished_ms),
            worker=record.session,
            cancel_requested=record.cancel_requested,
            progress=_progress_in(report),
            log=report.log,
            error=latest_error(record),
            headers=headers_of(record),
            unique_key=record.unique_key,
        )


class Job(Generic[R_co]):
    """One enqueued call. `created` tells whether the enqueue that gave this handle stored the job:
    it is False when an idempotency key or a unique key led to an earlier one, and for a handle made
    of an id."""

    __slots__ = ("_app", "_since", "created", "id", "task")

    def __init__(self, app: Windlass, id: str, task: str | None, *, created: bool = False) -> None:
        self._app = app
        self.id = id
        self.task = task  # the name of its task; None when only the id is known
        self.created = created
        self._since = time.monotonic() if created else 0.0  # when it was enqueued, if by this

    def info(self) -> JobInfo:
        """What is known of the job now; raises `JobNotFound`."""
        return JobInfo.of(self._read())

    async def ainfo(self) -> JobInfo:
        """`info`, for coroutines."""
        return JobInfo.of(await self._aread())

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job to end, and give what its function returned.

        Raises `JobFailed`, `JobCancelled`, `ResultExpired` or `JobNotFound`, and the builtin
        `TimeoutError` if the job has not ended within `timeout`."""
        patience, app = _Patience(timeout), self._app
        if (early_s := self._early_s(patience)) > 0:
            time.sleep(early_s)
        end = self._own_end(app.engine.ends([self.id])[0])
        if end.state.is_final:
            return self._result_of(end)
        self._check_that_somebody_works()
        patience.check(end, app.engine)
        with app.result_waiters.in_thread(self.id) as waiter:
            while True:
                waiter.listen()
                end = self._own_end(app.result_waiters.watch(app.engine, [self.id])[0])
                if end.state.is_final:
                    return self._result_of(end)
                patience.check(end, app.engine)
                waiter.wait(patience.pause_s())

    async def aresult(
        self,
        timeout: Duration | None = None,  # noqa: ASYNC109  # the same parameters as its twin
    ) -> R_co:
        """`result`, for coroutines."""
        import asyncio  # slow to import, and here already loaded by whoever awaits

        patience, app = _Patience(timeout), self._app
        if (early_s := self._early_s(patience)) > 0:
            await asyncio.sleep(early_s)
        end = self._own_end(await app.batcher.call(_ends, self.id))
        if end.state.is_final:
            return self._result_of(end)
        self._check_that_somebody_works()
        patience.check(end, app.engine)
        with app.result_waiters.in_loop(self.id) as waiter:
            while True:
                waiter.listen()
                end = self._own_end(await app.batcher.call(app.result_waiters.watch, self.id))
                if end.state.is_final:
                    return self._result_of(end)
                patience.check(end, app.engine)
                await waiter.wait(patience.pause_s())

    def _early_s(self, patience: _Patience) -> float:
        """For how long there is no use in a look: a job that was just enqueued has not ended."""
        return min(self._since + START_MS / 1000 - time.monotonic(), patience.left_s())

    def cancel(self) -> bool:
        """Keep the job from running, or from running again.

        One that runs is interrupted by its worker, a third of a lease later at most. It ends as
        cancelled unless it succeeds, and until then `info().cancel_requested` is true. False if it
        had ended already, else True. Raises `JobNotFound`."""
        return self._was_cancelled(self._app.engine.cancel([self.id])[0])

    async def acancel(self) -> bool:
        """`cancel`, for coroutines."""
        return self._was_cancelled(await self._app.batcher.call(_cancel, self.id))

    def retry(self) -> bool:
        """Make a dead or cancelled job ready again, with all its attempts.

        False if the job is neither. Raises `JobNotFound`, and `DuplicateJob` while another job
        holds its unique key."""
        code = self._app.engine.retry([self.id])[0]
        if code is ChangeCode.DUPLICATE:
            record = self._read()
            holder = self._app.engine.holders([_key_of(record)])[0]
            # Nobody: the other has ended since.
            return self.retry() if holder is None else _refuse(record, holder)
        return self._was_changed(code)

    async def aretry(self) -> bool:
        """`retry`, for coroutines."""
        code = await self._app.batcher.call(_retry, self.id)
        if code is ChangeCode.DUPLICATE:
            record = await self._aread()
            holder = await self._app.batcher.call(_holders, _key_of(record))
            return await self.aretry() if holder is None else _refuse(record, holder)
        return self._was_changed(code)

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.task}>" if self.task else f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    if not TYPE_CHECKING:  # for a checker there is nothing of this

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for what is not there."""
            raise foreign_words.missing_attribute(self, name, "A job", foreign_words.OF_JOBS)

        def __await__(self) -> NoReturn:
            raise TypeError(
                f"{self!r} is enqueued already, and nothing to await: in a coroutine write `await "
                "task.aenqueue(...)`, and `await job.aresult()` for its result."
            )

    # --------------------------------------------------------------------------------- inside

    def _read(self) -> JobRecord:
        return self._own(self._app.engine.get([self.id])[0])

    async def _aread(self) -> JobRecord:
        return self._own(await self._app.batcher.call(_get, self.id))

    def _own(self, record: JobRecord | None) -> JobRecord:
        if record is None:
            raise self._not_found()
        self._check_task(record.task)
        return self._app.packing.reveal_failures(record)

    def _own_end(self, end: JobEnd | None) -> JobEnd:
        if end is None:
            raise self._not_found()
        self._check_task(end.task)
        return end

    def _check_task(self, found: str) -> None:
        if self.task not in (None, found) and not self._is_renamed(found):
            raise TypeError(
                f"Job {self.id} belongs to task {found}, not to {self.task}: its result is "
                f"of another type. Get it from {found}.job(id) or app.job(id)."
            )

    def _is_renamed(self, found: str) -> bool:
        """Whether it is stored under a former name of the same task."""
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

    def _was_cancelled(self, code: CancelCode) -> bool:
        if code is CancelCode.UNKNOWN:
            raise self._not_found()
        return code is not CancelCode.FINAL

    def _check_that_somebody_works(self) -> None:
        """In a sandbox nothing runs by itself, and a test would wait for ever."""
        if self._app.is_in_sandbox and not self._app.engine.sessions():
            raise TimeoutError(
                f"Job {self.id} waits in a sandbox, where nothing runs by itself: call drain() of "
                "the sandbox, and then result()."
            )

    def _was_changed(self, code: ChangeCode) -> bool:
        if code is ChangeCode.UNKNOWN:
            raise self._not_found()
        return code is ChangeCode.DONE

    def _not_found(self) -> JobNotFound:
        return JobNotFound(self.id, self._app.engine.location)


class _Patience:
    """How long to wait before the next look, and when to give up."""

    def __init__(self, timeout: Duration | None) -> None:
        self._timeout_ms = None if timeout is None else to_ms(timeout, name="timeout")
        self._begin = time.monotonic()
        self._pause_ms: float = FIRST_LOOK_MS

    def left_s(self) -> float:
        if self._timeout_ms is None:
            return inf
        return self._begin + self._timeout_ms / 1000 - time.monotonic()

    def check(self, end: JobEnd, engine: Engine) -> None:
        """Give up when the time is over."""
        if self._timeout_ms is not None and self.left_s() <= 0:
            raise TimeoutError(
                f"Job {end.id} has not ended within {describe_ms(self._timeout_ms)}: it is "
                f"{end.state} in {engine.location}. It goes on without you: ask again later, or "
                "look at info() and whether workers serve that place."
            )

    def pause_s(self) -> float:
        """How long to wait before the next look, unless woken."""
        pause_ms, self._pause_ms = self._pause_ms, min(self._pause_ms * LOOK_GROWTH, LAST_LOOK_MS)
        return max(0.0, min(pause_ms / 1000, self.left_s()))


def latest_error(record: JobRecord) -> FailureText | None:
    """The newest error in a job's history."""
    for failure in reversed(record.failures):
        if failure.event != Event.REVIVE:  # that entry keeps the call that was replaced
            return FailureText.unpack(failure.error)
    return None


def headers_of(record: JobRecord) -> Mapping[str, str]:
    """What is stored beside the arguments; nothing where that cannot be read."""
    if b'"headers"' not in record.payload:
        return {}
    try:
        return unpack(record.payload).headers
    except DecodeError:
        return {}


def _report_of(record: JobRecord) -> Report:
    data = record.progress
    return _NO_REPORT if data is None else msgspec.json.decode(data, type=Report)


def _progress_in(report: Report) -> Progress | None:
    return None if report.value is None else Progress(report.value, report.message)


def instant(at_ms: int) -> datetime:
    """An instant of an engine's clock."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def _instant_or_none(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else instant(at_ms)


def _get(engine: Engine, ids: Sequence[str]) -> Sequence[JobRecord | None]:
    return engine.get(ids)


def _ends(engine: Engine, ids: Sequence[str]) -> Sequence[JobEnd | None]:
    return engine.ends(ids)


def _cancel(engine: Engine, ids: Sequence[str]) -> Sequence[CancelCode]:
    return engine.cancel(ids)


def _retry(engine: Engine, ids: Sequence[str]) -> Sequence[ChangeCode]:
    return engine.retry(ids)


def _holders(engine: Engine, keys: Sequence[tuple[str, str]]) -> Sequence[str | None]:
    return engine.holders(keys)


def _key_of(record: JobRecord) -> tuple[str, str]:
    assert record.unique_key is not None, "only jobs with a unique key are duplicates"
    return record.task, record.unique_key


def _refuse(record: JobRecord, holder: str) -> NoReturn:
    raise DuplicateJob(record.task, holder, record.id)

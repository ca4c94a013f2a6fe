"""A task: a function whose calls can be enqueued, typed like the function itself.

1. `Task` encodes a call, hands it to the engine and gives back a `Job`. It is never changed:
   `using` gives another one with options of its own.
2. `Call` is a call with its arguments, made by `bind` and enqueued by `enqueue_many`.
3. `SyncTask` and `AsyncTask` differ only in the type of a plain call.

A job stores only what its caller chose. The retry policy, the time-out and the lifetime of results
that the decorator names are read by the worker when the job runs, so that a deploy mends queued
jobs too.
"""

from __future__ import annotations

import copy
import functools
import inspect
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast

import msgspec

from windlass.context import Context
from windlass.core.codec import check_size
from windlass.core.codecs import Codec, Codecs
from windlass.core.envelope import Envelope, Overrides
from windlass.core.ids import check_id, new_id
from windlass.core.lines import line_of, queue_of
from windlass.core.retry import Retry
from windlass.core.unique import Unique
from windlass.engine.contract import Engine, NewJob, Placed, PutCode, UniqueKey
from windlass.errors import (
    DuplicateJob,
    EngineUnavailable,
    IdempotencyConflict,
    InvalidTask,
    QueueFull,
)
from windlass.insisting import Attempts, pauses
from windlass.job import Job
from windlass.options import NO_CHOICES, CallOptions, Choices, Moment, read_call_options

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.core.schedule import Cron, Every
    from windlass.core.timetable import Entry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

#: `enqueue_many` stores so many jobs at a time: all of them, or none.
CHUNK: Final = 500
DEFAULT_QUEUE: Final = "default"
DEFAULT_PRIORITY: Final = 0

_NO_MOMENT: Final = Moment()
_REFUSED: Final = (PutCode.CONFLICT, PutCode.DUPLICATE, PutCode.FULL)


class Task(Generic[P, R_co]):
    """A function whose calls can be enqueued. Made by `@app.task`.

    Called plainly it runs here, without a queue; with `takes_context` it is then given a context
    whose `progress` goes nowhere."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        app: Windlass,
        function: Callable[..., Any],
        *,
        name: str,
        takes_context: bool,
        runs_alone: bool,
        unique: Unique | None = None,
        declared: Choices,
    ) -> None:
        functools.update_wrapper(self, function)
        self.app = app
        self.name = name
        self.function = function
        self.takes_context = takes_context
        self.runs_alone = runs_alone  # run_in="process": in a process of its own
        self.is_async = inspect.iscoroutinefunction(function)
        self.codecs = Codecs(function, takes_context, name=name)  # what reads its calls
        self.codec = self.codecs.get(app.settings.codec)  # and what writes them
        self.unique = _checked_unique(unique, self.codec)
        self._chosen = NO_CHOICES  # by callers, with using()
        self._choices = declared  # those, over the declared ones

    # -------------------------------------------------------------------------------- options

    @property
    def queue(self) -> str:
        return self._choices.queue or DEFAULT_QUEUE

    @property
    def requires(self) -> tuple[str, ...]:
        """Labels that a worker must have to run it."""
        return self._choices.requires or ()

    @property
    def priority(self) -> int:
        return self._choices.priority or DEFAULT_PRIORITY

    @property
    def retry(self) -> Retry | None:
        """The policy chosen for this task, or None for the app's."""
        return self._choices.retry

    @property
    def timeout_ms(self) -> int | None:
        """How long a job may run, 0 for without end, or None for as long as the app says."""
        return self._choices.timeout_ms

    @property
    def result_ttl_ms(self) -> int | None:
        """How long results are kept, or None for as long as the app says."""
        return self._choices.result_ttl_ms

    def using(self, **options: Unpack[CallOptions]) -> Self:
        """This task with options of the caller's choice; what is not given stays as it is."""
        return self._with(read_call_options(options))

    # -------------------------------------------------------------------------------- calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co | Coroutine[Any, Any, R_co]:
        first = (self._detached_context(),) if self.takes_context else ()
        returned: R_co | Coroutine[Any, Any, R_co] = self.function(*first, *args, **kwargs)
        return returned

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a call for a worker to run. Wrong arguments fail here.

        Raises `EncodeError`, `IdempotencyConflict`, `DuplicateJob`, `QueueFull`, and
        `EngineUnavailable` when the engine did not answer within `enqueue_timeout`."""
        job = self._new_job(self.codec.encode(args, kwargs))
        try:
            placed = self._put([job])[0]
        except EngineUnavailable as error:
            error.add_note(_unsure(job))
            raise
        return self._placed(job, placed)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """`enqueue`, for coroutines. Calls under way at the same time share a round trip.

        A call that is cancelled while it is awaited may or may not have been enqueued."""
        job = self._new_job(self.codec.encode(args, kwargs))
        try:
            placed = await self._aput(job)
        except EngineUnavailable as error:
            error.add_note(_unsure(job))
            raise
        return self._placed(job, placed)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """A call for `enqueue_many`. Its arguments are encoded now, with the options of now."""
        return Call(self, self.codec.encode(args, kwargs))

    def enqueue_many(self, calls: Iterable[Call[R_co] | tuple[Any, ...]]) -> list[Job[R_co]]:
        """Store many calls, 500 at a time, each chunk as a whole or not at all.

        A call comes from `bind`, or is a tuple of positional arguments. What `bind` was told by
        `using` comes before what this task was told. When a chunk fails, the error has a note that
        says how many jobs were stored before it."""
        jobs: list[Job[R_co]] = []
        with _counting(jobs):
            for chunk in self._chunks(calls):
                self._collect(chunk, self._put(chunk), jobs)
        return jobs

    async def aenqueue_many(self, calls: Iterable[Call[R_co] | tuple[Any, ...]]) -> list[Job[R_co]]:
        """`enqueue_many`, for coroutines."""
        jobs: list[Job[R_co]] = []
        with _counting(jobs):
            for chunk in self._chunks(calls):
                self._collect(chunk, await self._aput_many(chunk), jobs)
        return jobs

    def job(self, id: str) -> Job[R_co]:
        """A handle on a job of this task. Asks nobody whether there is one."""
        return Job(self.app, check_id(id), self.name)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    # --------------------------------------------------------------------------------- inside

    def _detached_context(self) -> Context:
        return Context(
            job_id=new_id(time.time_ns() // 1_000_000),
            task=self.name,
            queue=self.queue,
            attempt=1,
            max_attempts=1,
            sink=_nowhere,
        )

    def _with(self, chosen: Choices) -> Self:
        if chosen == NO_CHOICES:
            return self
        other = copy.copy(self)
        other._chosen = chosen.over(self._chosen)
        other._choices = chosen.over(self._choices)
        return other

    def _line(self) -> str:
        """Where its jobs stand: in their queue, or beside it when they require labels."""
        choices = self._choices
        queue = choices.queue or DEFAULT_QUEUE
        return line_of(queue, choices.requires) if choices.requires else queue

    def _new_job(self, call: bytes) -> NewJob:
        choices, unique = self._choices, self._unique_key(call)
        packing = self.app.packing
        codec = self.codec
        payload = packing.pack_call(_envelope(self.name, codec.mark, call, self._chosen))
        check_size(payload, self.app.settings.max_payload, f"The call of {self.name}")
        run_after = choices.run_after or _NO_MOMENT
        expires = choices.expires or _NO_MOMENT
        queue = self._line()
        return NewJob(
            id=self.app.engine.new_id(
                self.name, queue, choices.idempotency_key, unique.key if unique else None
            ),
            task=self.name,
            queue=queue,
            payload=payload,
            priority=choices.priority or DEFAULT_PRIORITY,
            run_after_ms=run_after.at_ms,
            run_in_ms=run_after.in_ms or 0,
            expires_ms=expires.at_ms,
            expires_in_ms=expires.in_ms,
            idempotency_key=choices.idempotency_key,
            fingerprint=packing.digest(codec.plain(call)) if choices.idempotency_key else "",
            unique=unique,
        )

    def _unique_key(self, call: bytes) -> UniqueKey | None:
        unique = self.unique
        if unique is None:
            return None
        return UniqueKey(
            key=self.app.packing.digest(self.codec.identity(call, unique.by)),
            until=unique.until,
            period_ms=unique.period_ms,
            on_conflict=unique.on_conflict,
        )

    def _put(self, jobs: Sequence[NewJob]) -> Sequence[Placed]:
        """Store jobs; those whose queue is full are tried again as long as the settings say."""
        placed = self.app.engine.put(jobs)
        if self.app.packing.older_digests:
            placed = [self._settle(*pair) for pair in zip(jobs, placed, strict=True)]
        if all(one.code is not PutCode.FULL for one in placed):
            return placed
        attempts = Attempts(jobs, placed)
        for pause_s in pauses(self.app.settings):
            time.sleep(pause_s)
            attempts.note(self.app.engine.put(attempts.refused()))
            if not attempts.refused():
                break
        return attempts.placed

    async def _aput(self, job: NewJob) -> Placed:
        batcher, size = self.app.batcher, len(job.payload)
        placed = await self._asettle(job, await batcher.call(_put, job, size))
        if placed.code is PutCode.FULL:
            for pause_s in pauses(self.app.settings):
                await _sleep(pause_s)
                placed = await batcher.call(_put, job, size)
                if placed.code is not PutCode.FULL:
                    break
        return placed

    async def _aput_many(self, jobs: Sequence[NewJob]) -> Sequence[Placed]:
        batcher, size = self.app.batcher, sum(len(job.payload) for job in jobs)
        answers = zip(jobs, await batcher.call(_put_chunks, jobs, size), strict=True)
        attempts = Attempts(jobs, [await self._asettle(*pair) for pair in answers])
        if attempts.refused():
            for pause_s in pauses(self.app.settings):
                await _sleep(pause_s)
                refused = attempts.refused()
                attempts.note(await batcher.call(_put_chunks, refused, size))
                if not attempts.refused():
                    break
        return attempts.placed

    def _under_older_keys(self, job: NewJob, placed: Placed) -> Iterator[NewJob]:
        """A job that is in conflict, with the digests that secrets before this one made: the call
        that it is compared with may be the same."""
        packing = self.app.packing
        if placed.code is PutCode.CONFLICT and packing.older_digests:
            plain = self.codec.plain(bytes(packing.unpack_call(job.payload, self.name).call))
            for digest in packing.older_digests:
                yield msgspec.structs.replace(job, fingerprint=digest(plain))

    def _settle(self, job: NewJob, placed: Placed) -> Placed:
        for other in self._under_older_keys(job, placed):
            again = self.app.engine.put([other])[0]
            if again.code is not PutCode.CONFLICT:
                return again
        return placed

    async def _asettle(self, job: NewJob, placed: Placed) -> Placed:
        for other in self._under_older_keys(job, placed):
            again = await self.app.batcher.call(_put, other, len(job.payload))
            if again.code is not PutCode.CONFLICT:
                return again
        return placed

    def entry(self, call: bytes, schedule: Cron | Every) -> Entry:
        """What is stored of a schedule that makes this call."""
        from windlass.core.timetable import Entry

        choices, expires = self._choices, self._choices.expires or _NO_MOMENT
        chosen = _envelope(self.name, self.codec.mark, call, self._chosen)
        # The same each time: a schedule that is declared again is not a new one.
        envelope = self.app.packing.pack_call(chosen, repeatable=True)
        check_size(envelope, self.app.settings.max_payload, f"The call of {self.name}")
        return Entry(
            schedule=schedule,
            task=self.name,
            queue=self._line(),
            envelope=envelope,
            priority=choices.priority or DEFAULT_PRIORITY,
            expires_in_ms=expires.in_ms,
        )

    def unfit_for_schedules(self) -> str | None:
        """What of its options has no place in a call that is made again and again."""
        choices = self._choices
        if self.unique is not None:
            return "its unique key is not kept by schedules, which have overlap for that"
        if choices.expires is not None and choices.expires.at_ms is not None:
            return "expires, as a datetime, is for one call alone"
        given = {"run_after": choices.run_after, "idempotency_key": choices.idempotency_key}
        chosen = next((name for name, value in given.items() if value is not None), None)
        return None if chosen is None else f"{chosen} is for one call alone"

    def _placed(self, job: NewJob, placed: Placed) -> Job[R_co]:
        if placed.code is PutCode.CONFLICT:
            raise IdempotencyConflict(self.name, job.idempotency_key or "", placed.id)
        if placed.code is PutCode.DUPLICATE:
            raise DuplicateJob(self.name, placed.id)
        if placed.code is PutCode.FULL:
            settings = self.app.settings
            waited_ms = settings.enqueue_timeout_ms if settings.when_full == "block" else 0
            raise QueueFull(queue_of(job.queue), self.name, waited_ms / 1000)
        return Job(self.app, placed.id, self.name, created=placed.code is PutCode.CREATED)

    def _collect(
        self, chunk: Sequence[NewJob], placed: Sequence[Placed], jobs: list[Job[R_co]]
    ) -> None:
        pairs = list(zip(chunk, placed, strict=True))
        # Conflicts come last: what was stored is counted before the first of them is raised.
        for job, one in sorted(pairs, key=lambda pair: pair[1].code in _REFUSED):
            jobs.append(self._placed(job, one))

    def _chunks(self, calls: Iterable[Call[R_co] | tuple[Any, ...]]) -> Iterator[list[NewJob]]:
        if self._chosen.idempotency_key is not None:
            raise TypeError(
                "An idempotency key stands for one call, and enqueue_many makes many: give each "
                "its own with task.using(idempotency_key=...).bind(...)."
            )
        if isinstance(calls, str | bytes | Mapping | Call) or not isinstance(calls, Iterable):
            raise TypeError(
                f"enqueue_many expects calls made by bind(...), or tuples of arguments, found one "
                f"{type(calls).__name__}: put the calls into a list."
            )
        rest = iter(calls)
        while chunk := [self._job_of(call) for call in islice(rest, CHUNK)]:
            yield chunk

    def _job_of(self, call: Call[R_co] | tuple[Any, ...]) -> NewJob:
        if isinstance(call, tuple):
            return self._new_job(self.codec.encode(call, {}))
        if not isinstance(call, Call):
            raise TypeError(
                f"enqueue_many expects calls made by {self.name}.bind(...), or tuples of "
                f"arguments, found {call!r}: write ({call!r},) for a single argument."
            )
        if call.task.app is not self.app or call.task.name != self.name:
            raise TypeError(
                f"enqueue_many of {self.name} found a call of {call.task.name}: enqueue the calls "
                "of each task by its own."
            )
        return self._with(call.task._chosen)._new_job(call.encoded)


class SyncTask(Task[P, R_co]):
    """A task made of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here and give its result."""
        return cast(R_co, super().__call__(*args, **kwargs))


class AsyncTask(Task[P, R_co]):
    """A task made of a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """A coroutine that runs the function here when it is awaited."""
        return cast(Coroutine[Any, Any, R_co], super().__call__(*args, **kwargs))


class Call(Generic[R_co]):
    """A call of a task with its arguments, and with the options of the task that bound it."""

    __slots__ = ("encoded", "task")

    def __init__(self, task: Task[..., R_co], encoded: bytes) -> None:
        self.task = task
        self.encoded = encoded

    def __repr__(self) -> str:
        shown = self.encoded[:200].decode("utf-8", "replace")
        if self.task.codec.mark != "json":
            shown = f"{len(self.encoded)} bytes of {self.task.codec.mark}"
        return f"<Call of {self.task.name}: {shown}>"


def _checked_unique(unique: Unique | None, codec: Codec) -> Unique | None:
    """The same, if its key can be made."""
    mismatch = codec.check_names(unique.by) if unique is not None and unique.by else ""
    if mismatch:
        raise InvalidTask(f"The unique key cannot be made: {mismatch}. Mend Unique(by=...).")
    return unique


def _envelope(task: str, codec: str, call: bytes, chosen: Choices) -> Envelope:
    raw = msgspec.Raw(call)
    if chosen.retry is None and chosen.result_ttl_ms is None and chosen.timeout_ms is None:
        return Envelope(task=task, call=raw, codec=codec)
    overrides = Overrides(
        retry=None if chosen.retry is None else chosen.retry.to_data(),
        result_ttl_ms=chosen.result_ttl_ms,
        timeout_ms=chosen.timeout_ms,
    )
    return Envelope(task=task, call=raw, options=overrides, codec=codec)


@contextmanager
def _counting(jobs: Sequence[object]) -> Iterator[None]:
    """Tell with an error how many jobs were stored before it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{len(jobs)} jobs were enqueued before this.")
        raise


def _unsure(job: NewJob) -> str:
    return (
        f"Whether job {job.id} was stored is not known. To repeat the call without running it "
        "twice, enqueue it with using(idempotency_key=...)."
    )


async def _sleep(seconds: float) -> None:
    from asyncio import sleep  # slow to import, and here it is there already

    await sleep(seconds)


def _nowhere(progress: bytes) -> None:
    """Where the progress of a plain call goes."""


def _put(engine: Engine, jobs: Sequence[NewJob]) -> Sequence[Placed]:
    return engine.put(jobs)


def _put_chunks(engine: Engine, chunks: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Placed]]:
    return [engine.put(chunk) for chunk in chunks]

"""Tasks: functions with calls that can be enqueued, typed like the function itself.

1. `Home` is the owner of a task: its app, or the group that no app includes yet.
2. `Task` encodes a call, stores it and returns a `Job`. A task is immutable: `using` returns a copy
   with other options.
3. `SyncTask` and `AsyncTask` differ only in the type of a plain call.
4. `Call` is a call with its arguments, made by `bind` and enqueued by `enqueue_many`; `chunks_of`
   splits many calls into chunks.

A job stores only the options of its caller. The worker reads the retry policy, the time-out and the
result lifetime of the decorator when the job runs, so a deploy changes them for queued jobs too.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from windlass.client.enqueue import ENQUEUE, astore, store, store_many
from windlass.client.job_builder import DEFAULT_PRIORITY, Chunk, JobBuilder
from windlass.client.options import NO_CHOICES, CallOptions, Choices, read_call_options
from windlass.client.payloads import Codecs
from windlass.context import Context
from windlass.core import foreign_words
from windlass.core.headers import ACTOR
from windlass.core.ids import check_id, new_id
from windlass.core.retry import Retry
from windlass.core.serialization.codec import CallCodec
from windlass.core.unique import Unique
from windlass.engine.contract import BATCH, BATCH_BYTES, NewJob
from windlass.errors import InvalidTask, TaskNotIncluded
from windlass.job import Job
from windlass.middleware import MiddlewareStack
from windlass.task_pause import pausing, resuming
from windlass.twins import arun, run

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.client.bindings import (
        Binds0,
        Binds1,
        Binds2,
        Binds3,
        Binds4,
        Binds5,
        ManyArguments,
    )
    from windlass.core.schedules.state import ScheduleEntry
    from windlass.core.schedules.triggers import Cron, Every
    from windlass.hooks import JobHook

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

#: `enqueue_many` stores at most `BATCH` jobs and this many bytes of calls in one atomic chunk. The
#: limit leaves room for the envelope of each call.
CHUNK_BYTES: Final = BATCH_BYTES * 3 // 4
DEFAULT_QUEUE: Final = "default"

#: Names for other parts of windlass, which `dir(task)` leaves out.
_INTERNAL: Final = frozenset(
    {
        *("builder", "codec", "codecs", "declared_schedule", "entry", "home", "hooks"),
        *(
            "in_transaction",
            "is_async",
            "runs_alone",
            "sent_by",
            "takes_context",
            "unfit_for_schedules",
        ),
    }
)
_NO_HEADERS: Final[Mapping[str, str]] = {}
_NO_HOOKS: Final[Mapping[str, JobHook]] = {}
_NO_KEYWORDS: Final[Mapping[str, Any]] = {}


class Home:
    """The owner of a task, and the queue for jobs when neither caller nor decorator names one.

    A task shares its home with all copies that `using` makes, so that an app can include the group
    after the copies were made."""

    __slots__ = ("app", "codec", "group", "queue")

    codec: CallCodec  # encodes the calls of the task

    def __init__(self, app: Windlass | None, queue: str, group: str = "") -> None:
        self.app = app
        self.queue = queue
        self.group = group  # the repr of the group, for error messages


class Task(Generic[P, R_co]):
    """A function that can be enqueued. Made by `@app.task`.

    A plain call runs the function here, without a queue. With `takes_context` the function then
    gets a context that drops progress reports."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        home: Home,
        function: Callable[..., Any],
        *,
        name: str,
        aliases: tuple[str, ...] = (),
        takes_context: bool = False,
        runs_alone: bool = False,
        in_transaction: bool = False,
        unique: Unique | None = None,
        schedule: Any = None,
        hooks: Mapping[str, JobHook] = _NO_HOOKS,
        declared: Choices = NO_CHOICES,
    ) -> None:
        functools.update_wrapper(self, function)
        self.home = home
        self.name = name
        self.aliases = aliases  # former names: the task also runs jobs stored under them
        self.function = function
        self.takes_context = takes_context
        self.runs_alone = runs_alone  # run_in="process": each job has its own process
        self.in_transaction = in_transaction  # transaction=True: the job ends in its transaction
        self.is_async = inspect.iscoroutinefunction(function)
        self.codecs = Codecs(function, takes_context, name=name)  # decode its calls
        home.codec = self.codecs["json" if home.app is None else home.app.settings.codec]
        self.unique = _checked_unique(unique, home.codec)
        self.declared_schedule = schedule
        self.hooks = hooks  # from on_success, on_retry and on_dead
        self._chosen = NO_CHOICES  # the options of using()
        self._choices = declared  # those options merged over the decorator's
        self._builder: JobBuilder | None = None  # made on first use, when the task has an app

    # -------------------------------------------------------------------------------- options

    @property
    def app(self) -> Windlass:
        """The app of the task. Raises `TaskNotIncluded` while no app includes its group."""
        app = self.home.app
        if app is None:
            raise TaskNotIncluded(self.name, self.home.group)
        return app

    @property
    def codec(self) -> CallCodec:
        """The codec that encodes the calls of the task."""
        return self.home.codec

    @property
    def is_remote(self) -> bool:
        """Whether the code of the task is in another program. See `app.remote_tasks`."""
        return False

    @property
    def builder(self) -> JobBuilder:
        """The builder of jobs with the options of this task."""
        return self._builder or self._prepare()

    @property
    def queue(self) -> str:
        return self._choices.queue or self.home.queue

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of each job of this task."""
        return self._choices.headers or _NO_HEADERS

    @property
    def requires(self) -> tuple[str, ...]:
        """Labels that a worker must have to run this task."""
        return self._choices.requires or ()

    @property
    def priority(self) -> int:
        return self._choices.priority or DEFAULT_PRIORITY

    @property
    def retry(self) -> Retry | None:
        """The retry policy of this task, or None for the policy of the app."""
        return self._choices.retry

    @property
    def timeout_ms(self) -> int | None:
        """How long a job may run: 0 for no limit, None for the setting of the app."""
        return self._choices.timeout_ms

    @property
    def result_ttl_ms(self) -> int | None:
        """How long results are kept, or None for the setting of the app."""
        return self._choices.result_ttl_ms

    def using(self, **options: Unpack[CallOptions]) -> Self:
        """A copy of this task with other options; options that are not given stay."""
        return self._with(read_call_options(options))

    def sent_by(self, actor: str) -> Self:
        """A copy of this task whose jobs name the caller who enqueued them, in a header of
        windlass."""
        return self._with(Choices(headers={ACTOR: actor}))

    # -------------------------------------------------------------------------------- calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co | Coroutine[Any, Any, R_co]:
        first = (self._detached_context(),) if self.takes_context else ()
        returned: R_co | Coroutine[Any, Any, R_co] = self.function(*first, *args, **kwargs)
        return returned

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a call for a worker to run. Wrong arguments fail here.

        Raises `EncodeError`, `IdempotencyConflict`, `DuplicateJob`, `QueueFull`, and
        `EngineUnavailable` when the engine did not answer within `enqueue_timeout`."""
        builder = self._builder or self._prepare()
        app, call = builder.app, builder.encode(args, kwargs)
        if not app.enqueue_middleware:
            return store(app, builder.build(call), builder.connection)
        enqueue_call = builder.enqueue_call()
        with MiddlewareStack(app.enqueue_middleware, enqueue_call, ENQUEUE):
            new_job = builder.build(call, enqueue_call)
            job = enqueue_call.job = store(app, new_job, builder.connection)
        return job

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """`enqueue`, for coroutines. Concurrent calls share a round trip.

        A call that is cancelled while it is awaited may or may not have been enqueued."""
        builder = self._builder or self._prepare()
        app, call = builder.app, builder.encode(args, kwargs)
        if not app.enqueue_middleware:
            return await astore(app, builder.build(call), builder.connection)
        enqueue_call = builder.enqueue_call()
        with MiddlewareStack(app.enqueue_middleware, enqueue_call, ENQUEUE):
            new_job = builder.build(call, enqueue_call)
            job = enqueue_call.job = await astore(app, new_job, builder.connection)
        return job

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Make a call for `enqueue_many`. Encodes the arguments now, with the current options."""
        return Call(self, self.codec.encode(args, kwargs))

    @overload
    def enqueue_many(self, calls: Iterable[Call[R_co]]) -> list[Job[R_co]]: ...
    @overload
    def enqueue_many(self: Binds0[R], calls: Iterable[Call[R] | tuple[()]]) -> list[Job[R]]: ...
    @overload
    def enqueue_many(self: Binds1[A, R], calls: Iterable[Call[R] | tuple[A]]) -> list[Job[R]]: ...
    @overload
    def enqueue_many(
        self: Binds2[A, B, R], calls: Iterable[Call[R] | tuple[A, B]]
    ) -> list[Job[R]]: ...
    @overload
    def enqueue_many(
        self: Binds3[A, B, C, R], calls: Iterable[Call[R] | tuple[A, B, C]]
    ) -> list[Job[R]]: ...
    @overload
    def enqueue_many(
        self: Binds4[A, B, C, D, R], calls: Iterable[Call[R] | tuple[A, B, C, D]]
    ) -> list[Job[R]]: ...
    @overload
    def enqueue_many(
        self: Binds5[A, B, C, D, E, R], calls: Iterable[Call[R] | tuple[A, B, C, D, E]]
    ) -> list[Job[R]]: ...
    @overload
    def enqueue_many(self, calls: Iterable[Call[R_co] | ManyArguments]) -> list[Job[R_co]]: ...
    def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[Job[Any]]:
        """Store many calls, in chunks of at most 500 calls or 3 MB.

        Each chunk is atomic in each partition. Over a connection that breaks repeatedly, halves of
        the chunk are atomic. A call comes from `bind`, or is a tuple of positional arguments. The
        options of a bound call override those of this task. When a chunk fails, a note on the error
        says how many jobs were stored before it. `app.enqueue_many` mixes tasks."""
        return run(self.app, store_many(self.app, self._chunks(calls)))

    @overload
    async def aenqueue_many(self, calls: Iterable[Call[R_co]]) -> list[Job[R_co]]: ...
    @overload
    async def aenqueue_many(
        self: Binds0[R], calls: Iterable[Call[R] | tuple[()]]
    ) -> list[Job[R]]: ...
    @overload
    async def aenqueue_many(
        self: Binds1[A, R], calls: Iterable[Call[R] | tuple[A]]
    ) -> list[Job[R]]: ...
    @overload
    async def aenqueue_many(
        self: Binds2[A, B, R], calls: Iterable[Call[R] | tuple[A, B]]
    ) -> list[Job[R]]: ...
    @overload
    async def aenqueue_many(
        self: Binds3[A, B, C, R], calls: Iterable[Call[R] | tuple[A, B, C]]
    ) -> list[Job[R]]: ...
    @overload
    async def aenqueue_many(
        self: Binds4[A, B, C, D, R], calls: Iterable[Call[R] | tuple[A, B, C, D]]
    ) -> list[Job[R]]: ...
    @overload
    async def aenqueue_many(
        self: Binds5[A, B, C, D, E, R], calls: Iterable[Call[R] | tuple[A, B, C, D, E]]
    ) -> list[Job[R]]: ...
    @overload
    async def aenqueue_many(
        self, calls: Iterable[Call[R_co] | ManyArguments]
    ) -> list[Job[R_co]]: ...
    async def aenqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[Job[Any]]:
        """`enqueue_many`, for coroutines."""
        return await arun(self.app, store_many(self.app, self._chunks(calls)))

    def pause(self) -> None:
        """Start no more jobs of this task, in any queue and on any worker. Running jobs continue;
        waiting jobs keep their place, and other jobs of the same queues run."""
        run(self.app, pausing((self.name, *self.aliases)))

    async def apause(self) -> None:
        """`pause`, for coroutines."""
        await arun(self.app, pausing((self.name, *self.aliases)))

    def resume(self) -> None:
        """Let workers start jobs of this task again."""
        run(self.app, resuming((self.name, *self.aliases)))

    async def aresume(self) -> None:
        """`resume`, for coroutines."""
        await arun(self.app, resuming((self.name, *self.aliases)))

    def job(self, id: str) -> Job[R_co]:
        """A handle on a job of this task. Does not check that the job exists."""
        return Job(self.app, check_id(id), self.name)

    def __dir__(self) -> list[str]:
        """The public names, for a shell that completes them."""
        return [name for name in super().__dir__() if name[0] != "_" and name not in _INTERNAL]

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
            headers=self.headers,
        )

    def _with(self, chosen: Choices) -> Self:
        if chosen == NO_CHOICES:
            return self
        other = self.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._chosen = chosen.over(self._chosen)
        other._choices = chosen.over(self._choices)
        other._builder = None
        return other

    def _prepare(self) -> JobBuilder:
        home = self.home
        builder = self._builder = JobBuilder(
            self.app,
            self.name,
            home.codec,
            home.queue,
            unique=self.unique,
            choices=self._choices,
            chosen=self._chosen,
        )
        return builder

    def entry(self, call: bytes, schedule: Cron | Every) -> ScheduleEntry:
        """The stored entry of a schedule that makes this call."""
        from windlass.core.schedules.state import ScheduleEntry

        builder, expires = self.builder, self._choices.expires
        return ScheduleEntry(
            schedule=schedule,
            task=self.name,
            queue=builder.line,
            # Deterministic bytes: declaring the same schedule again must not change it.
            envelope=builder.pack(call, repeatable=True),
            priority=self.priority,
            expires_in_ms=None if expires is None else expires.in_ms,
        )

    def unfit_for_schedules(self) -> str | None:
        """Why the options of this task cannot be used in a schedule and what to do, or None."""
        choices = self._choices
        if self.unique is not None:
            return (
                "the jobs of a schedule have no unique key. Leave out unique=..., and give the "
                'schedule overlap="skip": Cron(..., overlap="skip") makes no job while an earlier '
                "one is unfinished"
            )
        if choices.expires is not None and choices.expires.at_ms is not None:
            return "expires, as a datetime, is for a single call. Give expires as a duration"
        given = {
            "run_after": choices.run_after,
            "idempotency_key": choices.idempotency_key,
            "connection": choices.connection,
        }
        chosen = next((name for name, value in given.items() if value is not None), None)
        return None if chosen is None else f"{chosen} is for a single call. Leave out {chosen}"

    def _chunks(self, calls: object) -> Iterator[Chunk]:
        if self._chosen.idempotency_key is not None:
            raise TypeError(
                "An idempotency key stands for one call, and enqueue_many makes many: give each "
                "its own with task.using(idempotency_key=...).bind(...)."
            )
        return chunks_of(calls, self._own_call, f"{self.name}.bind(...), or tuples of arguments")

    def _own_call(self, call: object) -> tuple[JobBuilder, bytes]:
        if isinstance(call, tuple):
            builder = self._builder or self._prepare()
            return builder, builder.encode(call, _NO_KEYWORDS)
        if not isinstance(call, Call):
            _refuse_call(call, f"{self.name}.bind(...), or tuples of arguments", f"({call!r},)")
        if call.task.app is not self.app or call.task.name != self.name:
            raise TypeError(
                f"enqueue_many of {self.name} found a call of {call.task.name}: enqueue calls of "
                "several tasks with app.enqueue_many(...)."
            )
        return self._with(call.task._chosen).builder, call.encoded

    if not TYPE_CHECKING:  # for a checker there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for missing attributes."""
            raise foreign_words.missing_attribute(self, name)


class SyncTask(Task[P, R_co]):
    """A task made from a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here and return its result."""
        return cast(R_co, super().__call__(*args, **kwargs))


class AsyncTask(Task[P, R_co]):
    """A task made from a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """A coroutine that runs the function here when it is awaited."""
        return cast(Coroutine[Any, Any, R_co], super().__call__(*args, **kwargs))


class Call(Generic[R_co]):
    """A call of a task: its arguments, and the options of the task at `bind`."""

    __slots__ = ("_codec", "_encoded", "task")

    def __init__(self, task: Task[..., R_co], encoded: bytes) -> None:
        self.task = task
        self._codec = task.codec
        self._encoded = encoded

    @property
    def encoded(self) -> bytes:
        """The arguments, encoded by the codec of the app. Encodes them again if `bind` used another
        codec, before an app included the group."""
        codec = self.task.codec
        if codec is not self._codec:
            args, kwargs = self._codec.decode(self._encoded)
            self._codec, self._encoded = codec, codec.encode(args, kwargs)
        return self._encoded

    def new_job(self) -> NewJob:
        return self.task.builder.build(self.encoded)

    def __repr__(self) -> str:
        shown = self.encoded[:200].decode("utf-8", "replace")
        if self.task.codec.mark != "json":
            shown = f"{len(self.encoded)} bytes of {self.task.codec.mark}"
        return f"<Call of {self.task.name}: {shown}>"


def chunks_of(
    calls: object, read: Callable[[object], tuple[JobBuilder, bytes]], expected: str
) -> Iterator[Chunk]:
    """Split the calls of `enqueue_many` into chunks, each for one connection. `read` gives the
    builder and the encoded call of each."""
    if isinstance(calls, str | bytes | Mapping | Call) or not isinstance(calls, Iterable):
        _refuse_all(calls, expected)
    chunk: Chunk = []
    run: list[bytes] = []
    last: JobBuilder | None = None
    number = size = 0
    for given in calls:
        builder, encoded = read(given)
        size += len(encoded)
        is_elsewhere = last is not None and builder.connection is not last.connection
        if (size > CHUNK_BYTES or is_elsewhere) and number:
            yield chunk
            chunk, last, number, size = [], None, 0, len(encoded)
        if builder is not last:
            last, run = builder, []
            chunk.append((builder, run))
        run.append(encoded)
        number += 1
        if number == BATCH:
            yield chunk
            chunk, last, number, size = [], None, 0, 0
    if chunk:
        yield chunk


def _refuse_all(calls: object, expected: str) -> NoReturn:
    advice = "put the calls into a list"
    if inspect.iscoroutine(calls):
        calls.close()  # or Python warns that it was never awaited
        advice = "collect them first, [call async for call in ...], or await the coroutine"
    elif hasattr(calls, "__aiter__"):
        advice = "collect them first, [call async for call in ...]"
    raise TypeError(
        f"enqueue_many expects many calls made by {expected}, found one {type(calls).__name__}: "
        f"{advice}."
    )


def _refuse_call(call: object, expected: str, instead: str) -> NoReturn:
    advice = f"write {instead}"
    if inspect.iscoroutine(call):
        call.close()  # or Python warns that it was never awaited
        advice = "aenqueue(...) already enqueues; write task.bind(...) instead"
    elif isinstance(call, Job):
        advice = "this job is enqueued already; write task.bind(...) instead"
    raise TypeError(f"enqueue_many expects calls made by {expected}, found {call!r}: {advice}.")


def read_call(app: Windlass, call: object) -> tuple[JobBuilder, bytes]:
    """Check that this is a call of a task of this app. Return its builder and its encoded form."""
    if not isinstance(call, Call):
        _refuse_call(call, "task.bind(...)", "task.bind(...) for each call")
    if call.task.app is not app:
        raise TypeError(
            f"enqueue_many found a call of {call.task.name}, which is a task of another app: "
            "enqueue it with that app."
        )
    return call.task.builder, call.encoded


def _checked_unique(unique: Unique | None, codec: CallCodec) -> Unique | None:
    """Check that the key can be made from the parameters of the task."""
    mismatch = codec.check_names(unique.by) if unique is not None and unique.by else ""
    if mismatch:
        raise InvalidTask(f"The unique key cannot be made: {mismatch}. Fix Unique(by=...).")
    return unique


def task_without_code(app: Windlass, name: str) -> Task[..., Any]:
    """Make a task from its name alone. Its arguments are JSON types."""

    def absent(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001  # as every function takes some
        raise InvalidTask(
            f"{name} cannot be called here: only its name is known. Enqueue it for a worker that "
            "has the code."
        )

    return SyncTask(Home(app, app.queue_for(name)), absent, name=name)


def _nowhere(progress: bytes) -> None:
    """Drop the progress of a plain call."""

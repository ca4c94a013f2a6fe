"""A task: a function whose calls can be enqueued, typed like the function itself.

1. `Home` is where a task belongs: its app, or the group that no app includes yet.
2. `Task` encodes a call, has it stored and gives back a `Job`. It is never changed: `using` gives
   another one with options of its own.
3. `SyncTask` and `AsyncTask` differ only in the type of a plain call.
4. `Call` is a call with its arguments, made by `bind` and enqueued by `enqueue_many`; `chunks_of`
   takes many of them apart.

A job stores only what its caller chose. The retry policy, the time-out and the lifetime of results
that the decorator names are read by the worker when the job runs, so that a deploy mends queued
jobs too.
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
)

import msgspec

from windlass.client.enqueue import ENQUEUE, astore, astore_many, store, store_many
from windlass.client.options import NO_CHOICES, CallOptions, Choices, Moment, read_call_options
from windlass.context import Context
from windlass.core import foreign_words
from windlass.core.headers import check_bounds, read_headers
from windlass.core.ids import check_id, new_id
from windlass.core.queues.labels import line_of
from windlass.core.retry import Retry
from windlass.core.serialization.codec import check_size
from windlass.core.serialization.codec_set import Codec, Codecs
from windlass.core.serialization.envelope import TAIL, VERSION, Envelope, Overrides, head_of
from windlass.core.unique import Unique
from windlass.engine.contract import BATCH, BATCH_BYTES, NewJob, UniqueKey
from windlass.errors import InvalidTask, TaskNotIncluded
from windlass.job import Job
from windlass.middleware import Outgoing, Surrounded

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.core.schedules.state import Entry
    from windlass.core.schedules.triggers import Cron, Every

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

#: `enqueue_many` stores at most `BATCH` jobs, whose calls have so many bytes, at a time: all of
#: them, or none. It leaves room for what is stored around each call.
CHUNK_BYTES: Final = BATCH_BYTES * 3 // 4
DEFAULT_QUEUE: Final = "default"
DEFAULT_PRIORITY: Final = 0

_NO_MOMENT: Final = Moment()
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Home:
    """Where a task belongs, and the queue for its jobs when neither caller nor decorator names one.

    Shared by all that `using` makes of the task, because a group may be included after that."""

    __slots__ = ("app", "codec", "group", "queue")

    codec: Codec  # what writes its calls

    def __init__(self, app: Windlass | None, queue: str, group: str = "") -> None:
        self.app = app
        self.queue = queue
        self.group = group  # as code, for a task of one


class Task(Generic[P, R_co]):
    """A function whose calls can be enqueued. Made by `@app.task`.

    Called plainly it runs here, without a queue; with `takes_context` it is then given a context
    whose `progress` goes nowhere."""

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
        unique: Unique | None = None,
        schedule: Any = None,
        declared: Choices = NO_CHOICES,
    ) -> None:
        functools.update_wrapper(self, function)
        self.home = home
        self.name = name
        self.aliases = aliases  # names that it had before: jobs stored under them are run by it
        self.function = function
        self.takes_context = takes_context
        self.runs_alone = runs_alone  # run_in="process": in a process of its own
        self.is_async = inspect.iscoroutinefunction(function)
        self.codecs = Codecs(function, takes_context, name=name)  # what reads its calls
        home.codec = self.codecs["json" if home.app is None else home.app.settings.codec]
        self.unique = _checked_unique(unique, home.codec)
        self.declared_schedule = schedule
        self._chosen = NO_CHOICES  # by callers, with using()
        self._choices = declared  # those, over the declared ones

    # -------------------------------------------------------------------------------- options

    @property
    def app(self) -> Windlass:
        """The app that it belongs to; raises `TaskNotIncluded` while there is none."""
        app = self.home.app
        if app is None:
            raise TaskNotIncluded(self.name, self.home.group)
        return app

    @property
    def codec(self) -> Codec:
        """What writes its calls."""
        return self.home.codec

    @property
    def queue(self) -> str:
        return self._choices.queue or self.home.queue

    @property
    def declared_queue(self) -> str | None:
        """The queue that caller or decorator chose, and that no route changes."""
        return self._choices.queue

    @property
    def headers(self) -> Mapping[str, str]:
        """What travels with each job of it."""
        return self._choices.headers or _NO_HEADERS

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
        home = self.home
        app, call = home.app or self.app, home.codec.encode(args, kwargs)
        if not app.enqueue_middleware:
            return store(app, self._new_job(call))
        outgoing = self._outgoing()
        with Surrounded(app.enqueue_middleware, outgoing, ENQUEUE):
            job = outgoing.job = store(app, self._new_job(call, outgoing))
        return job

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """`enqueue`, for coroutines. Calls under way at the same time share a round trip.

        A call that is cancelled while it is awaited may or may not have been enqueued."""
        app, call = self.app, self.codec.encode(args, kwargs)
        if not app.enqueue_middleware:
            return await astore(app, self._new_job(call))
        outgoing = self._outgoing()
        with Surrounded(app.enqueue_middleware, outgoing, ENQUEUE):
            job = outgoing.job = await astore(app, self._new_job(call, outgoing))
        return job

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """A call for `enqueue_many`. Its arguments are encoded now, with the options of now."""
        return Call(self, self.codec.encode(args, kwargs))

    def enqueue_many(self, calls: Iterable[Call[R_co] | tuple[Any, ...]]) -> list[Job[R_co]]:
        """Store many calls, 500 or 3 MB at a time; in each partition each chunk as a whole or not
        at all, unless the connection breaks again and again: then in halves.

        A call comes from `bind`, or is a tuple of positional arguments. What `bind` was told by
        `using` comes before what this task was told. When a chunk fails, the error has a note that
        says how many jobs were stored before it. `app.enqueue_many` mixes tasks."""
        return store_many(self.app, self._chunks(calls))

    async def aenqueue_many(self, calls: Iterable[Call[R_co] | tuple[Any, ...]]) -> list[Job[R_co]]:
        """`enqueue_many`, for coroutines."""
        return await astore_many(self.app, self._chunks(calls))

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
            headers=self.headers,
        )

    def _with(self, chosen: Choices) -> Self:
        if chosen == NO_CHOICES:
            return self
        other = self.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._chosen = chosen.over(self._chosen)
        other._choices = chosen.over(self._choices)
        return other

    def _line(self) -> str:
        """Where its jobs stand: in their queue, or beside it when they require labels."""
        choices = self._choices
        queue = choices.queue or self.home.queue
        return line_of(queue, choices.requires) if choices.requires else queue

    def _outgoing(self) -> Outgoing:
        return Outgoing(self.name, self.queue, self.priority, dict(self.headers))

    def _new_job(self, call: bytes, outgoing: Outgoing | None = None) -> NewJob:
        home, choices = self.home, self._choices
        app, codec = home.app or self.app, home.codec
        unique = None if self.unique is None else self._unique_key(call, self.unique)
        headers = choices.headers if outgoing is None else read_headers(outgoing.headers)
        packing, limit = app.packing, app.settings.max_payload
        if packing.is_plain and not headers and self._chosen is NO_CHOICES:
            payload = head_of(self.name) + call + TAIL  # what pack_call gives, in less time
        else:
            envelope = _envelope(self.name, codec.mark, call, self._chosen, headers)
            payload = packing.pack_call(envelope)
        if len(payload) > limit:
            check_size(payload, limit, f"The call of {self.name}")
        run_after = choices.run_after or _NO_MOMENT
        expires = choices.expires or _NO_MOMENT
        queue = self._line() if choices.requires else choices.queue or home.queue
        return NewJob(
            id=app.engine.new_id(
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

    def _unique_key(self, call: bytes, unique: Unique) -> UniqueKey:
        return UniqueKey(
            key=self.app.packing.digest(self.codec.identity(call, unique.by)),
            until=unique.until,
            period_ms=unique.period_ms,
            on_conflict=unique.on_conflict,
        )

    def entry(self, call: bytes, schedule: Cron | Every) -> Entry:
        """What is stored of a schedule that makes this call."""
        from windlass.core.schedules.state import Entry

        choices, expires = self._choices, self._choices.expires or _NO_MOMENT
        chosen = _envelope(self.name, self.codec.mark, call, self._chosen, choices.headers)
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

    def _chunks(self, calls: object) -> Iterator[list[Call[Any]]]:
        if self._chosen.idempotency_key is not None:
            raise TypeError(
                "An idempotency key stands for one call, and enqueue_many makes many: give each "
                "its own with task.using(idempotency_key=...).bind(...)."
            )
        return chunks_of(calls, self._own_call, f"{self.name}.bind(...), or tuples of arguments")

    def _own_call(self, call: object) -> Call[R_co]:
        if isinstance(call, tuple):
            return Call(self, self.codec.encode(call, {}))
        if not isinstance(call, Call):
            _refuse_call(call, f"{self.name}.bind(...), or tuples of arguments", f"({call!r},)")
        if call.task.app is not self.app or call.task.name != self.name:
            raise TypeError(
                f"enqueue_many of {self.name} found a call of {call.task.name}: enqueue calls of "
                "several tasks with app.enqueue_many(...)."
            )
        return Call(self._with(call.task._chosen), call.encoded)

    if not TYPE_CHECKING:  # for a checker there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for what is not there."""
            raise foreign_words.missing_attribute(self, name)


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

    __slots__ = ("_codec", "_encoded", "task")

    def __init__(self, task: Task[..., R_co], encoded: bytes) -> None:
        self.task = task
        self._codec = task.codec
        self._encoded = encoded

    @property
    def encoded(self) -> bytes:
        """By the codec of the app: one that was bound before its group was included may be by
        another one."""
        codec = self.task.codec
        if codec is not self._codec:
            args, kwargs = self._codec.decode(self._encoded)
            self._codec, self._encoded = codec, codec.encode(args, kwargs)
        return self._encoded

    def outgoing(self) -> Outgoing:
        return self.task._outgoing()

    def new_job(self, outgoing: Outgoing | None = None) -> NewJob:
        return self.task._new_job(self.encoded, outgoing)

    def __repr__(self) -> str:
        shown = self.encoded[:200].decode("utf-8", "replace")
        if self.task.codec.mark != "json":
            shown = f"{len(self.encoded)} bytes of {self.task.codec.mark}"
        return f"<Call of {self.task.name}: {shown}>"


def chunks_of(
    calls: object, read: Callable[[object], Call[Any]], expected: str
) -> Iterator[list[Call[Any]]]:
    """What `enqueue_many` was given, as calls, a chunk at a time."""
    if isinstance(calls, str | bytes | Mapping | Call) or not isinstance(calls, Iterable):
        _refuse_all(calls, expected)
    chunk: list[Call[Any]] = []
    size = 0
    for given in calls:
        call = read(given)
        size += len(call._encoded)
        if size > CHUNK_BYTES and chunk:
            yield chunk
            chunk, size = [], len(call._encoded)
        chunk.append(call)
        if len(chunk) == BATCH:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _refuse_all(calls: object, expected: str) -> NoReturn:
    advice = "put the calls into a list"
    if inspect.iscoroutine(calls):
        calls.close()  # or Python would say that nobody has awaited it
        advice = "collect them first, [call async for call in ...], or await what gives them"
    elif hasattr(calls, "__aiter__"):
        advice = "collect them first, [call async for call in ...]"
    raise TypeError(
        f"enqueue_many expects many calls made by {expected}, found one {type(calls).__name__}: "
        f"{advice}."
    )


def _refuse_call(call: object, expected: str, instead: str) -> NoReturn:
    advice = f"write {instead}"
    if inspect.iscoroutine(call):
        call.close()  # or Python would say that nobody has awaited it
        advice = "a call of aenqueue enqueues by itself; write task.bind(...) in its place"
    elif isinstance(call, Job):
        advice = "what enqueue gives is enqueued already; write task.bind(...) in its place"
    raise TypeError(f"enqueue_many expects calls made by {expected}, found {call!r}: {advice}.")


def read_call(app: Windlass, call: object) -> Call[Any]:
    """A call of any task of this app."""
    if not isinstance(call, Call):
        _refuse_call(call, "task.bind(...)", "task.bind(...) for each call")
    if call.task.app is not app:
        raise TypeError(
            f"enqueue_many found a call of {call.task.name}, which is a task of another app: "
            "enqueue it with that one."
        )
    return call


def _checked_unique(unique: Unique | None, codec: Codec) -> Unique | None:
    """The same, if its key can be made."""
    mismatch = codec.check_names(unique.by) if unique is not None and unique.by else ""
    if mismatch:
        raise InvalidTask(f"The unique key cannot be made: {mismatch}. Mend Unique(by=...).")
    return unique


def _envelope(
    task: str, codec: str, call: bytes, chosen: Choices, headers: Mapping[str, str] | None
) -> Envelope:
    raw = msgspec.Raw(call)
    if headers:
        check_bounds(headers)  # of the task and of the caller together
    elif chosen.retry is None and chosen.result_ttl_ms is None and chosen.timeout_ms is None:
        return Envelope(version=VERSION, task=task, call=raw, codec=codec)
    overrides = Overrides(
        retry=None if chosen.retry is None else chosen.retry.to_data(),
        result_ttl_ms=chosen.result_ttl_ms,
        timeout_ms=chosen.timeout_ms,
    )
    headers = dict(headers or ())
    return Envelope(task=task, call=raw, headers=headers, options=overrides, codec=codec)


def task_without_code(app: Windlass, name: str) -> Task[..., Any]:
    """A task of which only the name is known here: its arguments are JSON types."""

    def absent(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001  # as every function takes some
        raise InvalidTask(
            f"The code of {name} is not here: only its name is known. Enqueue it for a worker that "
            "has the code."
        )

    return SyncTask(Home(app, app.queue_for(name)), absent, name=name)


def _nowhere(progress: bytes) -> None:
    """Where the progress of a plain call goes."""

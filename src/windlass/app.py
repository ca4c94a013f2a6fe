"""The app: where tasks are registered, and the one place that knows settings and engine.

1. `Windlass` reads the settings, keeps the tasks by name, and opens the engine when it is first
   needed: making an app touches neither disk nor network.
2. `@app.task` checks the function, finds its name and registers it.
3. `lifespan` and `@app.around_run` are what surrounds jobs; a worker makes use of them.

After a fork the child has an app of its own: the engine and the I/O thread see to their own
connections, locks and queues.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FunctionType, MappingProxyType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from windlass.around import (
    AroundRun,
    Lifespan,
    LifespanFunction,
    Middleware,
    read_lifespan,
    read_middleware,
)
from windlass.context import Context
from windlass.core.codec import decode_json
from windlass.core.ids import check_id
from windlass.core.unique import Unique
from windlass.engine.contract import Engine, EngineOptions
from windlass.engine.forking import opening
from windlass.errors import InvalidTask
from windlass.job import Job
from windlass.options import Choices, TaskOptions, read_queue, read_task_options
from windlass.queue import Queue
from windlass.settings import (
    SettingArguments,
    Settings,
    Source,
    read_settings,
    without_secrets,
)
from windlass.task import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from windlass.batching import Batcher
    from windlass.core.schedule import Cron, Every
    from windlass.core.timetable import Entry
    from windlass.dead import DeadLetters
    from windlass.letters import AlertHook, DeadAlert
    from windlass.schedules import Schedules

    Timing = Cron | Every | Sequence[Cron | Every]

P = ParamSpec("P")
R = TypeVar("R")
Around = TypeVar("Around", bound=AroundRun)
Hook = TypeVar("Hook", bound="Callable[[DeadAlert], object]")

_TASK_NAME: Final = re.compile(r"[^\s\x00-\x1f]{1,200}")


class Decorator(Protocol):
    """What `@app.task(...)` gives: makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the more special one comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


class ContextDecorator(Protocol):
    """The same for functions whose first parameter is the context; callers do not pass it."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the more special one comes first
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> SyncTask[P, R]: ...


class Windlass:
    """Tasks, and the place where their jobs live.

    `url` names that place; further settings are keyword arguments. Each can come from the
    environment instead, as `WINDLASS_URL`, `WINDLASS_LEASE` and so on.

    `lifespan` is a function that yields once, written with def or async def, or one that gives a
    context manager: entered by each child of a worker before its first job and left after its last
    one. What it yields is the `state` of every context."""

    def __init__(
        self,
        url: str | None = None,
        *,
        lifespan: LifespanFunction | None = None,
        **settings: Unpack[SettingArguments],
    ) -> None:
        arguments: dict[str, object] = dict(settings)
        if url is not None:
            arguments["url"] = url
        self.settings: Settings = read_settings(arguments, os.environ)
        self._tasks: dict[str, Task[..., Any]] = {}
        self._lifespan = None if lifespan is None else read_lifespan(lifespan)
        self._declared: dict[str, tuple[Task[..., Any], Cron | Every]] = {}
        self._middleware: list[Middleware] = []
        self._alert_hooks: list[AlertHook] = []
        self._unnamed_url = _unnamed(self.settings)
        self._engine: Engine | None = None
        self._wrap: Callable[[Engine], Engine] | None = None
        self._batcher: Batcher | None = None

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._tasks)

    @property
    def lifespan(self) -> Lifespan | None:
        """What a worker's child lives in."""
        return self._lifespan

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What surrounds every run of a job, the outermost first."""
        return tuple(self._middleware)

    @property
    def alert_hooks(self) -> Sequence[AlertHook]:
        """What a worker calls when dead jobs pile up."""
        return tuple(self._alert_hooks)

    @property
    def engine(self) -> Engine:
        """Where the jobs live; opened at the first use."""
        engine = self._engine
        return engine if engine is not None else self._open_engine()

    @property
    def batcher(self) -> Batcher:
        """What talks to the engine for coroutines; made at the first use."""
        batcher = self._batcher
        return batcher if batcher is not None else self._make_batcher()

    @property
    def schedules(self) -> Schedules:
        """What runs again and again: to be saved, seen, paused and removed while workers run."""
        from windlass.schedules import Schedules  # costs a tenth of the import of windlass

        return Schedules(self)

    @property
    def dead(self) -> DeadLetters:
        """The dead letters: to be seen, grouped, retried and discarded."""
        from windlass.dead import DeadLetters  # needed by few

        return DeadLetters(self)

    def job(self, id: str) -> Job[Any]:
        """A handle on any job. Asks nobody whether there is one."""
        return Job(self, check_id(id), None)

    def queue(self, name: str) -> Queue:
        """A handle on a queue, to pause, resume or empty it. Asks nobody whether there is one."""
        return Queue(self, read_queue(name))

    def decode_result(self, task: str, result: bytes) -> Any:
        """A stored result, rebuilt by the annotations of its task; as JSON if that is unknown."""
        known = self._tasks.get(task)
        return decode_json(result) if known is None else known.codec.decode_result(result)

    def wrap_engine(self, wrap: Callable[[Engine], Engine]) -> None:
        """Put something around the engine; for a worker, which must not leave calls half done."""
        with opening:
            self._wrap = wrap
            if self._engine is not None:
                self._engine = wrap(self._engine)

    def close(self) -> None:
        """Send what coroutines have handed over, for at most 2 s, and let go of the engine.

        The app can be used again afterwards; jobs that were kept in memory are gone."""
        if self._batcher is not None and not self._batcher.close():
            _warn(f"{self!r} was closed before all coroutines had their answers.")
        with opening:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Windlass at {without_secrets(self.settings.url)}, {len(self._tasks)} tasks>"

    # -------------------------------------------------------------------------------- running

    def worker(
        self, *, queues: Sequence[str] = (), slots: int = 10, labels: Sequence[str] = ()
    ) -> AbstractContextManager[object]:
        """A worker inside this process: `with app.worker(): ...`. For development and scripts.

        Serves every queue, or the ones named, with so many jobs at a time: each text is a tier that
        is served before the next, `"critical"`, or queues by weight, `"default:5,low:1"`. With
        labels it takes jobs that require them. At the
        end of the block it claims nothing more and lets running jobs end within `shutdown_grace`.
        It has no process of its own, so a task that kills it, or holds up all of its threads for a
        lease, takes its beats along: in production run `windlass worker`."""
        from windlass.worker.inside import InsideWorker  # imports asyncio, which is slow

        for name, given in (("queues", queues), ("labels", labels)):
            if isinstance(given, str):
                raise TypeError(
                    f"{name} must be a list of names, found {given!r}: write [{given!r}]"
                )
        return InsideWorker(self, queues, slots, labels)

    # ---------------------------------------------------------------------------- registering

    @overload
    def task(  # type: ignore[overload-overlap]  # the more special one comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        takes_context: Literal[True],
        name: str = ...,
        run_in: Literal["process"] = ...,
        schedule: Timing = ...,
        unique: Unique = ...,
        **options: Unpack[TaskOptions],
    ) -> ContextDecorator: ...
    @overload
    def task(
        self,
        /,
        *,
        takes_context: Literal[False] = ...,
        name: str = ...,
        run_in: Literal["process"] = ...,
        schedule: Timing = ...,
        unique: Unique = ...,
        **options: Unpack[TaskOptions],
    ) -> Decorator: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", ...)`.

        Takes `name`, `takes_context`, `run_in`, `schedule`, `unique`, `queue`, `requires`,
        `priority`, `retry`, `timeout`, `expires` and `result_ttl`."""
        name = _checked_name(options.pop("name")) if "name" in options else None
        takes_context = options.pop("takes_context", False)
        if not isinstance(takes_context, bool):
            raise TypeError(f"takes_context must be True or False, found {takes_context!r}")
        runs_alone = "run_in" in options and _is_process(options.pop("run_in"))
        unique = _checked_unique(options.pop("unique")) if "unique" in options else None
        schedule = options.pop("schedule", None)
        declared = read_task_options(options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            task = self._register(function, name, takes_context, runs_alone, unique, declared)
            if schedule is not None:
                self._declare(task, schedule)
            return task

        return register if function is None else register(function)

    def _register(
        self,
        function: Callable[..., Any],
        name: str | None,
        takes_context: bool,
        runs_alone: bool,
        unique: Unique | None,
        declared: Choices,
    ) -> Task[..., Any]:
        plain = _plain_function(function, takes_context)
        name = name or _default_name(plain)
        if name in self._tasks:
            known = self._tasks[name].function
            raise InvalidTask(
                f"Two functions want to be the task {name}: {_place_of(known)} and "
                f"{_place_of(plain)}. Rename one, or give it @app.task(name=...)."
            )
        kind = AsyncTask if inspect.iscoroutinefunction(plain) else SyncTask
        task: Task[..., Any] = kind(
            self,
            plain,
            name=name,
            takes_context=takes_context,
            runs_alone=runs_alone,
            unique=unique,
            declared=declared,
        )
        self._tasks[name] = task
        return task

    def _declare(self, task: Task[..., Any], schedule: object) -> None:
        from windlass.schedules import read_declared

        try:
            self._declared.update(dict(read_declared(task, schedule)))
        except BaseException:
            del self._tasks[task.name]  # there is no such task: its declaration is wrong
            raise

    def declared_schedules(self) -> Iterator[tuple[str, Entry]]:
        """The schedules that tasks declare, for a worker to store."""
        for name, (task, schedule) in self._declared.items():
            from windlass.schedules import in_zone

            yield name, task.entry(task.codec.encode((), {}), in_zone(schedule, self))

    def around_run(self, function: Around) -> Around:
        """Run this around every job: a function that takes the context and yields once.

        It may see what the task raises, or raise something itself, which is then the failure of the
        attempt; the rules of retries stay. The first one declared is the outermost."""
        self._middleware.append(read_middleware(function))
        return function

    def on_dead_alert(self, hook: Hook) -> Hook:
        """Call this function when dead jobs pile up, in one child of one worker: it takes a
        `DeadAlert`. When that is, the settings `dead_alert` and `dead_alert_growth` say."""
        self._alert_hooks.append(hook)
        return hook

    # -------------------------------------------------------------------------------- opening

    def _open_engine(self) -> Engine:
        with opening:
            from windlass.engine.url import open_engine

            if self._engine is None:
                settings = self.settings
                options = EngineOptions(
                    lease_ms=settings.lease_ms,
                    dead_ttl_ms=settings.dead_ttl_ms,
                    timeout_ms=settings.enqueue_timeout_ms,
                )
                engine = open_engine(settings.url, options)
                self._engine = engine if self._wrap is None else self._wrap(engine)
                if settings.url == self._unnamed_url:
                    _warn(
                        f"No url was given: jobs are kept in {settings.url}. Give one with "
                        "Windlass(url) or WINDLASS_URL."
                    )
            return self._engine

    def _make_batcher(self) -> Batcher:
        with opening:
            from windlass.batching import Batcher  # imports asyncio, which is slow

            if self._batcher is None:
                self._batcher = Batcher(lambda: self.engine)
            return self._batcher


def _unnamed(settings: Settings) -> str | None:
    """The url, if nobody chose it."""
    return settings.url if settings.sources["url"] is Source.DEFAULT else None


def _warn(message: str) -> None:
    import logging  # slow to import, and seldom needed here

    logging.getLogger("windlass").warning(message)


# ---------------------------------------------------------------------------- functions and names


def _plain_function(function: object, takes_context: bool) -> FunctionType:
    if not isinstance(function, FunctionType):
        raise InvalidTask(
            f"A task is made of a function written with def or async def, found {function!r}. "
            "Options are given by name: @app.task(name=...)."
        )
    if function.__name__ == "<lambda>":
        raise InvalidTask(f"The lambda at {_place_of(function)} has no name: write it with def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTask(
            f"{_place_of(function)} is a generator, whose values nobody would take: return a "
            "list, or enqueue a job for each value."
        )
    if not takes_context and _begins_with_context(function):
        raise InvalidTask(
            f"The first parameter of {_place_of(function)} is the context: write "
            "@app.task(takes_context=True), so that callers need not pass it."
        )
    return function


def _is_process(run_in: object) -> bool:
    if run_in == "process":
        return True
    raise ValueError(
        f'run_in must be "process", for a process of its own, found {run_in!r}: without it plain '
        "functions run in threads and coroutines on an event loop."
    )


def _checked_unique(unique: object) -> Unique:
    if isinstance(unique, Unique):
        return unique
    raise TypeError(f"unique must be a windlass.Unique(...), found {unique!r}")


def _begins_with_context(function: FunctionType) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation in (Context, "Context", "windlass.Context")


def _checked_name(name: object) -> str:
    if isinstance(name, str) and _TASK_NAME.fullmatch(name):
        return name
    raise InvalidTask(
        f"The name of a task must be text of 1 to 200 characters without spaces, found {name!r}."
    )


def _default_name(function: FunctionType) -> str:
    """`module.function`; for a function inside another one, both names."""
    module = function.__module__
    if module == "__main__":
        module = _name_of_main(function)
    return _checked_name(f"{module}.{function.__qualname__.replace('.<locals>', '')}")


def _name_of_main(function: FunctionType) -> str:
    """The name under which a worker imports what this process runs as `__main__`."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    stem = Path(getattr(main, "__file__", None) or "").stem
    if stem.isidentifier() and stem != "__main__":  # python module.py
        return stem
    raise InvalidTask(
        f"The task {function.__qualname__} is defined where a worker cannot import it from "
        f"({_place_of(function)}). Move it into a module, or give it @app.task(name=...)."
    )


def _place_of(function: Callable[..., Any]) -> str:
    code = function.__code__ if isinstance(function, FunctionType) else None
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{function.__module__}.{function.__qualname__}{place}"

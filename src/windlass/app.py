"""The app: where tasks are registered, and the one place that knows settings and engine.

1. `Windlass` reads the settings, keeps the tasks by name, and opens the engine when it is first
   needed: making an app touches neither disk nor network.
2. `@app.task` registers a function, `include` a group of tasks; `task_named` needs neither.
3. `lifespan`, `@app.around_run` and `@app.around_enqueue` are what surrounds jobs.

After a fork the child has an app of its own: the engine and the I/O thread see to their own
connections, locks and queues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack

from windlass.client.enqueue import astore_many, store_many
from windlass.client.options import read_queue
from windlass.client.payloads import Packing
from windlass.client.results import ResultWaiters
from windlass.core import foreign_words
from windlass.core.ids import check_id
from windlass.core.patterns import first_match
from windlass.core.plurals import count
from windlass.core.serialization.codec import decode_plain
from windlass.engine.fork_safety import opening
from windlass.engine.url import check_url, open_engine
from windlass.errors import UnreadableHere
from windlass.job import Job
from windlass.middleware import (
    AroundEnqueue,
    AroundRun,
    Lifespan,
    LifespanFunction,
    Middleware,
    read_lifespan,
    read_middleware,
)
from windlass.registry import Declaration, Registrar, Registry, checked_name, default_name
from windlass.settings import (
    SettingArguments,
    Settings,
    Source,
    read_settings,
    without_secrets,
)
from windlass.task import (
    DEFAULT_QUEUE,
    Call,
    Home,
    Task,
    chunks_of,
    read_call,
    task_without_code,
)
from windlass.task_group import Tasks

if TYPE_CHECKING:
    from windlass.client.async_batcher import Batcher
    from windlass.core.schedules.state import Entry
    from windlass.core.schedules.triggers import Cron, Every
    from windlass.dead_letter import AlertHook, DeadAlert
    from windlass.dead_letters import DeadLetters
    from windlass.engine.contract import Engine
    from windlass.queue import Queue
    from windlass.schedules import Schedules

R = TypeVar("R")
Around = TypeVar("Around", bound=AroundRun)
AroundSend = TypeVar("AroundSend", bound=AroundEnqueue)
Hook = TypeVar("Hook", bound="Callable[[DeadAlert], object]")


class Windlass(Registrar):
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
        check_url(self.settings.url)
        self.packing = Packing.of(self.settings)
        self._registry = Registry()
        self._lifespan = None if lifespan is None else read_lifespan(lifespan)
        self._declared: dict[str, tuple[Task[..., Any], Cron | Every]] = {}
        self._middleware: list[Middleware] = []
        #: What surrounds every enqueue, the outermost first.
        self.enqueue_middleware: tuple[Middleware, ...] = ()
        self._alert_hooks: list[AlertHook] = []
        self._unnamed_url = _unnamed(self.settings)
        self._engine: Engine | None = None
        self._stand_in: Engine | None = None
        self._wrap: Callable[[Engine], Engine] | None = None
        self._batcher: Batcher | None = None
        self.result_waiters = ResultWaiters()

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._registry.tasks)

    @property
    def known_tasks(self) -> Mapping[str, Task[..., Any]]:
        """The same tasks, also by the names that they had before: whose jobs can be run."""
        return MappingProxyType(self._registry.known)

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
        from windlass.dead_letters import DeadLetters  # needed by few

        return DeadLetters(self)

    def job(self, id: str) -> Job[Any]:
        """A handle on any job. Asks nobody whether there is one."""
        return Job(self, check_id(id), None)

    def queue(self, name: str) -> Queue:
        """A handle on a queue, to pause, resume or empty it. Asks nobody whether there is one."""
        from windlass.queue import Queue  # needed by few

        return Queue(self, read_queue(name))

    def decode_result(self, task: str, job_id: str, result: bytes) -> Any:
        """A stored result, rebuilt by the annotations of its task; as plain data if that is
        unknown."""
        known = self._registry.known.get(task)
        codec, encoded = self.packing.unpack_result(result, task, job_id)
        if known is not None:
            return known.codecs[codec].decode_result(encoded)
        if codec == "pickle":
            raise UnreadableHere(f"a pickle of the task {task}, which this app does not know")
        return decode_plain(encoded, codec)

    def wrap_engine(self, wrap: Callable[[Engine], Engine]) -> None:
        """Put something around the engine; for a worker, which must not leave calls half done."""
        with opening:
            self._wrap = wrap
            if self._engine is not None and self._engine is not self._stand_in:
                self._engine = wrap(self._engine)

    def close(self) -> None:
        """Send what coroutines have handed over, for at most 2 s, and let go of the engine.

        The app can be used again afterwards; jobs that were kept in memory are gone."""
        self._flush()
        with opening:
            engine, self._engine = self._engine, self._stand_in
        if engine is not None and engine is not self._stand_in:
            engine.shutdown()

    @contextmanager
    def replace_engine(self, engine: Engine) -> Iterator[None]:
        """Inside the block all goes to another engine, for a test; even after `close`, and from
        all threads. What coroutines had handed over goes where it was meant to go."""
        self._flush()
        with opening:
            own, self._engine, self._stand_in = self._engine, engine, engine
            batcher, self._batcher = self._batcher, None
        try:
            yield
        finally:
            self._flush()
            with opening:
                self._engine, self._stand_in, self._batcher = own, None, batcher

    @property
    def is_in_sandbox(self) -> bool:
        """Whether another engine stands in for its own."""
        return self._stand_in is not None

    def _flush(self) -> None:
        if self._batcher is not None and not self._batcher.close():
            _warn(f"{self!r} was closed before all coroutines had their answers.")

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
        tasks = count(len(self.tasks), "task")
        return f"<Windlass at {without_secrets(self.settings.url)}, {tasks}>"

    if not TYPE_CHECKING:  # for a checker there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for what is not there."""
            raise foreign_words.missing_attribute(self, name, "An app", foreign_words.OF_APPS)

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
        from windlass.worker.embedded import EmbeddedWorker  # imports asyncio, which is slow

        for name, given in (("queues", queues), ("labels", labels)):
            if isinstance(given, str):
                raise TypeError(
                    f"{name} must be a list of names, found {given!r}: write [{given!r}]"
                )
        return EmbeddedWorker(self, queues, slots, labels)

    # ---------------------------------------------------------------------------- registering

    def include(self, *groups: Tasks) -> None:
        """Make the tasks of these groups tasks of this app, also those declared later on."""
        for group in groups:
            if not isinstance(group, Tasks):
                raise TypeError(
                    f"include takes groups made by windlass.Tasks(...), found {group!r}. Modules "
                    "are named by Windlass(include=[...])."
                )
            group.join(self)

    def add_tasks(self, tasks: Sequence[Task[..., Any]]) -> None:
        """Let these tasks, which have no app yet, belong to this one: all of them or none."""
        for task in tasks:
            self._registry.check(task)
        for task in tasks:
            self._registry.add(task)
            task.home.app, task.home.queue = self, self.queue_for(task.name, task.home.queue)
            task.home.codec = task.codecs[self.settings.codec]
            self._declare(task)

    def task_named(self, name: str, *, queue: str | None = None) -> Task[..., Any]:
        """A task by its name, to be enqueued where its code is not.

        Without the code nothing is known of its parameters: arguments are JSON types, and checked
        by the worker. `queue` is needed unless a route is for it, or `default` is meant."""
        known = self._registry.known.get(checked_name(name))
        task = task_without_code(self, name) if known is None else known
        return task if queue is None else task.using(queue=queue)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Store calls of several tasks, made by `bind`, 500 or 3 MB at a time in the order given.

        Each chunk is stored in one step, as a whole or not at all; where the engine has several
        partitions, that holds for the part of the chunk in each of them, and over a connection that
        breaks again and again for halves of it. When a chunk fails, the error has a note that says
        how many jobs were stored before it."""
        return store_many(self, self._chunks(calls))

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """`enqueue_many`, for coroutines."""
        return await astore_many(self, self._chunks(calls))

    def _chunks(self, calls: object) -> Iterator[list[Call[Any]]]:
        return chunks_of(calls, partial(read_call, self), "task.bind(...)")

    def queue_for(self, name: str, otherwise: str = DEFAULT_QUEUE) -> str:
        """The queue for jobs of a task for which neither caller nor decorator chose one."""
        routes = self.settings.routes
        pattern = first_match(routes, name) if routes else None
        return otherwise if pattern is None else routes[pattern]

    def name_of(self, stored: str) -> str:
        """The name of a task by a name under which jobs of it are stored."""
        known = self._registry.known.get(stored)
        return stored if known is None else known.name

    def _add(self, declaration: Declaration) -> Task[..., Any]:
        name = declaration.name or default_name(declaration.function)
        task = declaration.to_task(name, Home(None, DEFAULT_QUEUE))
        self.add_tasks((task,))
        return task

    def _declare(self, task: Task[..., Any]) -> None:
        if task.declared_schedule is None:
            return
        from windlass.schedules import read_declared

        try:
            self._declared.update(dict(read_declared(task, task.declared_schedule)))
        except BaseException:
            self._registry.remove(task)  # there is no such task: its declaration is wrong
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

    def around_enqueue(self, function: AroundSend) -> AroundSend:
        """Run this around every enqueue of this app: a function that takes the `Outgoing` call and
        yields once, where the call is stored.

        It may add headers. What it raises before the yield reaches the caller, and nothing is
        stored. The first one declared is the outermost. Jobs of schedules are made by workers, and
        pass no middleware."""
        found = read_middleware(function, "around_enqueue", "the outgoing call")
        self.enqueue_middleware = (*self.enqueue_middleware, found)
        return function

    def on_dead_alert(self, hook: Hook) -> Hook:
        """Call this function when dead jobs pile up, in one child of one worker: it takes a
        `DeadAlert`. When that is, the settings `dead_alert` and `dead_alert_growth` say."""
        self._alert_hooks.append(hook)
        return hook

    # -------------------------------------------------------------------------------- opening

    def _open_engine(self) -> Engine:
        with opening:
            if self._engine is None:
                from windlass.engine.contract import EngineOptions  # comes with every engine

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
            from windlass.client.async_batcher import Batcher  # imports asyncio, which is slow

            if self._batcher is None:
                stand_in = self._stand_in  # what is late goes there too, and nowhere else
                self._batcher = Batcher(lambda: stand_in or self.engine)
            return self._batcher


def _unnamed(settings: Settings) -> str | None:
    """The url, if nobody chose it."""
    return settings.url if settings.sources["url"] is Source.DEFAULT else None


def _warn(message: str) -> None:
    import logging  # slow to import, and seldom needed here

    logging.getLogger("windlass").warning(message)

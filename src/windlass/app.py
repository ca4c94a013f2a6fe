"""The app: registers tasks, and holds the settings and the engine.

1. `Windlass` reads the settings, keeps the tasks by name, and opens the engine on first use: making
   an app touches neither disk nor network.
2. `@app.task` registers a function, and `include` a group of tasks. `task_named` returns a task
   whose code is elsewhere, and registers it as a remote task if its arguments are described.
3. `lifespan`, `@app.around_run` and `@app.around_enqueue` register lifespan and middleware.

After a fork the child can use its copy of the app: the engine and the I/O thread replace their
connections, locks and queues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from windlass.client.enqueue import store_many
from windlass.client.job_builder import Chunk
from windlass.client.options import TaskOptions, read_queue, read_remote_options
from windlass.client.payloads import Packing
from windlass.client.results import ResultWaiters
from windlass.core import foreign_words
from windlass.core.ids import check_id
from windlass.core.quantities import count
from windlass.core.serialization.codec import decode_plain
from windlass.engine.fork_safety import opening
from windlass.engine.url import check_url, open_engine
from windlass.errors import MissingDecoder
from windlass.hooks import AlertHook, AppHooks, JobHook, read_hook
from windlass.job import Job
from windlass.middleware import (
    AroundEnqueue,
    AroundRun,
    EnqueueTracing,
    Lifespan,
    LifespanFunction,
    Middleware,
    read_lifespan,
    read_middleware,
)
from windlass.registry import Registrar, Registry, checked_name
from windlass.settings import (
    SettingArguments,
    Settings,
    Source,
    matches,
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
from windlass.twins import act, arun, run

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.access_tokens import AccessTokens
    from windlass.alerts.alert_list import Alerts
    from windlass.audit_log import AuditLog
    from windlass.client.async_batcher import Batcher
    from windlass.core.durations import Duration
    from windlass.core.redaction import Redactor
    from windlass.core.schedules.state import ScheduleEntry
    from windlass.core.schedules.triggers import Cron, Every
    from windlass.dead_letters import DeadLetters
    from windlass.engine.contract import Engine
    from windlass.fleet import WorkerCommand, WorkerInfo
    from windlass.history import AppHistory, StepName
    from windlass.jobs import AppStats, Jobs
    from windlass.lost_sessions import LostSession, Suspects
    from windlass.operations.operations import Operations
    from windlass.outbox.producer import Outbox
    from windlass.queue import Queue
    from windlass.schedules import Schedules

#: Names for other parts of windlass, which `dir(app)` leaves out.
_INTERNAL: Final = frozenset(
    {
        *(
            "add_tasks",
            "alert_hooks",
            "batcher",
            "declared_schedules",
            "decode_result",
            "find_task",
        ),
        *("enqueue_middleware", "hooks", "is_in_sandbox", "known_tasks", "lifespan", "middleware"),
        *(
            "name_of",
            "outbox",
            "packing",
            "queue_for",
            "redactor",
            "replace_engine",
            "result_waiters",
        ),
        *("tracing", "wrap_engine"),
    }
)

P = ParamSpec("P")
R = TypeVar("R")
Around = TypeVar("Around", bound=AroundRun)
AroundSend = TypeVar("AroundSend", bound=AroundEnqueue)
OnAlert = TypeVar("OnAlert", bound=AlertHook)
OnJob = TypeVar("OnJob", bound=JobHook)


class Windlass(Registrar):
    """An app: tasks, settings, and the engine that stores the jobs.

    `url` names the engine; further settings are keyword arguments. Each can come from the
    environment instead, as `WINDLASS_URL`, `WINDLASS_LEASE` and so on.

    `lifespan` is a function that yields once, written with def or async def, or a function that
    returns a context manager. Each child of a worker enters the lifespan before its first job and
    leaves it after its last job. The yielded value is the `state` of every context."""

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
        #: The lifespan that each child of a worker enters.
        self.lifespan: Lifespan | None = None if lifespan is None else read_lifespan(lifespan)
        self._declared: dict[str, tuple[Task[..., Any], Cron | Every]] = {}
        #: Middleware around every run of a job, and around every enqueue, the outermost first.
        self.middleware: tuple[Middleware, ...] = ()
        self.enqueue_middleware: tuple[Middleware, ...] = ()
        #: The tracing of enqueues, set by `windlass.telemetry.otel.instrument`.
        self.tracing: EnqueueTracing | None = None
        #: The functions that a worker calls when an alert fires or clears.
        self.alert_hooks: tuple[AlertHook, ...] = ()
        #: The functions that a worker calls after a job has succeeded, failed or died.
        self.hooks = AppHooks()
        self._engine: Engine | None = None
        self._stand_in: Engine | None = None
        self._wrap: Callable[[Engine], Engine] | None = None
        self._batcher: Batcher | None = None
        self._redactor: Redactor | None = None
        self._outbox: Outbox | None = None
        self.result_waiters = ResultWaiters()

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._registry.tasks)

    @property
    def known_tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name and by alias: workers can run jobs stored under these."""
        return MappingProxyType(self._registry.known)

    @property
    def remote_tasks(self) -> Mapping[str, Task[..., Any]]:
        """The remote tasks by name: described by `task_named`, and run by other programs."""
        return MappingProxyType(self._registry.remote)

    def find_task(self, name: str) -> Task[..., Any] | None:
        """The task of this name or alias, with code or remote, which checks its calls."""
        return self._registry.find(name)

    @property
    def engine(self) -> Engine:
        """The engine that stores the jobs. Opened on first use."""
        engine = self._engine
        return engine if engine is not None else self._open_engine()

    @property
    def batcher(self) -> Batcher:
        """The batcher that calls the engine for coroutines. Made on first use."""
        batcher = self._batcher
        return batcher if batcher is not None else self._make_batcher()

    @property
    def schedules(self) -> Schedules:
        """Periodic jobs: save, list, pause and remove schedules while workers run."""
        from windlass.schedules import Schedules  # costs a tenth of the import of windlass

        return Schedules(self)

    @property
    def dead(self) -> DeadLetters:
        """The dead letters: list, group, retry and discard them."""
        from windlass.dead_letters import DeadLetters  # needed by few

        return DeadLetters(self)

    @property
    def jobs(self) -> Jobs:
        """All jobs: list them, or read many by id."""
        from windlass.jobs import Jobs  # needed by few

        return Jobs(self)

    @property
    def access_tokens(self) -> AccessTokens:
        """The access tokens of the HTTP API: create, list, revoke and check them."""
        from windlass.access_tokens import AccessTokens  # needed by few

        return AccessTokens(self)

    @property
    def alerts(self) -> Alerts:
        """The alerts: list the rules and what fires."""
        from windlass.alerts.alert_list import Alerts  # needed by few

        return Alerts(self)

    @property
    def audit(self) -> AuditLog:
        """The audit trail: who changed what."""
        from windlass.audit_log import AuditLog  # needed by few

        return AuditLog(self)

    @property
    def operations(self) -> Operations:
        """Bulk operations, which continue when a process dies: start, list and stop them."""
        from windlass.operations.operations import Operations  # needed by few

        return Operations(self)

    @property
    def redactor(self) -> Redactor:
        """Replaces the values that the setting `redact` names. Made on first use."""
        from windlass.core.redaction import Redactor  # needed by few

        if self._redactor is None:
            self._redactor = Redactor(self.settings.redact)
        return self._redactor

    @property
    def outbox(self) -> Outbox | None:
        """The outbox of producers, if the setting `outbox` names one. Made on first use."""
        if self._outbox is None and self.settings.outbox:
            from windlass.outbox.producer import Outbox  # needed by few

            self._outbox = Outbox(self.settings.outbox)
        return self._outbox

    def stats(self) -> AppStats:
        """The number of jobs by queue and state, as the engine counts them."""
        from windlass.jobs import read_stats  # needed by few

        return run(self, act(read_stats))

    async def astats(self) -> AppStats:
        """`stats`, for coroutines."""
        from windlass.jobs import read_stats

        return await arun(self, act(read_stats))

    def history(
        self,
        since: datetime | Duration = "1h",
        *,
        queue: str | None = None,
        task: str | Task[..., Any] | None = None,
        step: StepName = "minute",
    ) -> AppHistory:
        """What happened in queues and tasks: jobs enqueued, outcomes, rates, quantiles of the time
        that jobs waited and ran, and samples of the depth of each queue.

        `since` is a datetime or an age such as "1h": at most a day ago with the step "minute", 30
        days with the step "hour". Runs of the last seconds, and jobs enqueued in the last minute,
        may be missing."""
        from windlass.history import choose_history, read_history  # needed by few

        return run(self, act(read_history, choose_history(since, queue, task, step)))

    async def ahistory(
        self,
        since: datetime | Duration = "1h",
        *,
        queue: str | None = None,
        task: str | Task[..., Any] | None = None,
        step: StepName = "minute",
    ) -> AppHistory:
        """`history`, for coroutines."""
        from windlass.history import choose_history, read_history

        return await arun(self, act(read_history, choose_history(since, queue, task, step)))

    def workers(self) -> list[WorkerInfo]:
        """The live workers and their running jobs, by host and pid. At most 500 running jobs are
        named."""
        from windlass.fleet import read_fleet  # needed by few

        return run(self, act(read_fleet))

    async def aworkers(self) -> list[WorkerInfo]:
        """`workers`, for coroutines."""
        from windlass.fleet import read_fleet

        return await arun(self, act(read_fleet))

    def lost_sessions(self, limit: int = 20) -> list[LostSession]:
        """The sessions of workers that were lost last, the latest first: when and why, the jobs
        that they held, and what became of these. The engine keeps 100."""
        from windlass.lost_sessions import read_lost  # needed by few

        return run(self, act(read_lost, limit))

    async def alost_sessions(self, limit: int = 20) -> list[LostSession]:
        """`lost_sessions`, for coroutines."""
        from windlass.lost_sessions import read_lost

        return await arun(self, act(read_lost, limit))

    def crash_suspects(self) -> Suspects:
        """Jobs that ran when processes died: those that wait to run alone, and those among the
        latest dead jobs that died of crashes or lost workers."""
        from windlass.lost_sessions import read_suspects  # needed by few

        return run(self, act(read_suspects))

    async def acrash_suspects(self) -> Suspects:
        """`crash_suspects`, for coroutines."""
        from windlass.lost_sessions import read_suspects

        return await arun(self, act(read_suspects))

    def command_workers(self, names: Iterable[str], command: WorkerCommand) -> list[WorkerInfo]:
        """Command workers: `"quiet"` (finish running jobs, and claim no more), `"run"` (claim
        again) or `"stop"` (finish running jobs within `shutdown_grace`, and end).

        Each name is `WorkerInfo.name`, which is host and pid, or a session of the worker. Returns
        these workers with their new state; they obey within a heartbeat, a third of their lease.
        A worker that is stopping stays so."""
        from windlass.fleet import commanding  # needed by few

        return run(self, commanding(names, command))

    async def acommand_workers(
        self, names: Iterable[str], command: WorkerCommand
    ) -> list[WorkerInfo]:
        """`command_workers`, for coroutines."""
        from windlass.fleet import commanding

        return await arun(self, commanding(names, command))

    def job(self, id: str) -> Job[Any]:
        """A handle on any job. Does not check that the job exists."""
        return Job(self, check_id(id), None)

    def queue(self, name: str) -> Queue:
        """A handle to pause, resume or purge a queue. Does not check that the queue exists."""
        from windlass.queue import Queue  # needed by few

        return Queue(self, read_queue("queue", name))

    def decode_result(self, task: str, job_id: str, result: bytes) -> Any:
        """Rebuild a stored result by the annotations of its task. For an unknown task, return
        plain data."""
        known = self._registry.find(task)
        codec, encoded = self.packing.unpack_result(result, task, job_id)
        if known is not None:
            return known.codecs[codec].decode_result(encoded)
        if codec == "pickle":
            raise MissingDecoder(f"a pickle of the task {task}, which this app does not know")
        return decode_plain(encoded, codec)

    def wrap_engine(self, wrap: Callable[[Engine], Engine]) -> None:
        """Wrap the engine. Workers do, so that no interruption cuts off a call of the engine."""
        with opening:
            self._wrap = wrap
            if self._engine is not None and self._engine is not self._stand_in:
                self._engine = wrap(self._engine)

    def close(self) -> None:
        """Send the pending calls of coroutines, for at most 2 s, and close the engine.

        The app can be used again afterwards. Jobs of an in-memory engine are lost."""
        self._flush()
        with opening:
            engine, self._engine = self._engine, self._stand_in
        if engine is not None and engine is not self._stand_in:
            engine.shutdown()

    @contextmanager
    def replace_engine(self, engine: Engine) -> Iterator[None]:
        """Use another engine inside the block, in all threads and even after `close`. For tests.

        The batcher still sends calls that were made before the block to the old engine."""
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
        """Whether `replace_engine` is active."""
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

    def __dir__(self) -> list[str]:
        """The public names, for a shell that completes them."""
        return [name for name in super().__dir__() if name[0] != "_" and name not in _INTERNAL]

    def __repr__(self) -> str:
        tasks = count(len(self.tasks), "task")
        return f"<Windlass at {without_secrets(self.settings.url)}, {tasks}>"

    if not TYPE_CHECKING:  # for a checker there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Called only for missing attributes."""
            raise foreign_words.missing_attribute(self, name, "An app", foreign_words.OF_APPS)

    # -------------------------------------------------------------------------------- running

    def worker(
        self, *, queues: Sequence[str] = (), slots: int = 10, labels: Sequence[str] = ()
    ) -> AbstractContextManager[object]:
        """A worker inside this process: `with app.worker(): ...`. For development and scripts.

        Serves all queues, or only `queues`, and runs at most `slots` jobs at a time. Each text in
        `queues` is a tier, served before the next tier: one queue, `"critical"`, or queues by
        weight, `"default:5,low:1"`. With `labels` the worker also claims jobs that require them.
        At the end of the block the worker stops claiming, and running jobs get `shutdown_grace`.

        The worker shares the process with its tasks. A task that kills the process, or blocks all
        threads for a lease, stops the heartbeats: in production run `windlass worker`."""
        from windlass.worker.embedded import EmbeddedWorker  # imports asyncio, which is slow

        for name, given in (("queues", queues), ("labels", labels)):
            if isinstance(given, str):
                raise TypeError(
                    f"{name} must be a list of names, found {given!r}: write [{given!r}]"
                )
        return EmbeddedWorker(self, queues, slots, labels)

    # ---------------------------------------------------------------------------- registering

    def include(self, *groups: Tasks) -> None:
        """Register the tasks of these groups, including tasks that a group declares later."""
        for group in groups:
            if not isinstance(group, Tasks):
                raise TypeError(
                    f"include takes groups made by windlass.Tasks(...), found {group!r}. Modules "
                    "are named by Windlass(include=[...])."
                )
            group.join(self)

    def add_tasks(self, tasks: Sequence[Task[..., Any]]) -> None:
        """Register tasks that have no app yet. If one is refused, none is registered."""
        for task in tasks:
            self._registry.check(task)
        for task in tasks:
            self._registry.add(task)
            self.hooks.is_used |= bool(task.hooks)
            task.home.app, task.home.queue = self, self.queue_for(task.name, task.home.queue)
            task.home.codec = task.codecs[self.settings.codec]
            self._declare(task)

    @overload
    def task_named(
        self,
        name: str,
        signature: None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Task[..., Any]: ...
    @overload
    def task_named(
        self,
        name: str,
        signature: Callable[P, Coroutine[Any, Any, R]],
        **options: Unpack[TaskOptions],
    ) -> Task[P, R]: ...
    @overload
    def task_named(
        self, name: str, signature: Callable[P, R], **options: Unpack[TaskOptions]
    ) -> Task[P, R]: ...
    def task_named(
        self,
        name: str,
        signature: Callable[..., Any] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Task[..., Any]:
        """A task by name, for a producer that does not have the code of the task.

        `signature`, a function whose body never runs, or `schema`, a JSON Schema of the keyword
        arguments, declares a remote task: a call is checked here and typed, and the result is
        rebuilt by the annotation. Workers of this app do not run it, so give it a queue or a label
        of its own. Options are stored with each job. Declaring it again in the same way returns the
        same task.

        With neither, the parameters are unknown: arguments are JSON types, and the worker checks
        them. Pass `queue` unless a route matches the name or the queue is `default`."""
        checked_name(name)
        choices = read_remote_options(options)
        if signature is None and schema is None:
            known = self._registry.find(name)
            return (known or task_without_code(self, name)).using(**options)
        from windlass.remote_task import declare_remote  # needed by few

        return declare_remote(self, self._registry, name, signature, schema, choices)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Store calls of several tasks, made by `bind`, 500 or 3 MB at a time in the order given.

        Each chunk is stored atomically. With several partitions, the part of the chunk in each
        partition is atomic. Over a connection that breaks repeatedly, halves of the chunk are
        atomic. When a chunk fails, a note on the error says how many jobs were stored before it."""
        return run(self, store_many(self, self._chunks(calls)))

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """`enqueue_many`, for coroutines."""
        return await arun(self, store_many(self, self._chunks(calls)))

    def _chunks(self, calls: object) -> Iterator[Chunk]:
        return chunks_of(calls, partial(read_call, self), "task.bind(...)")

    def queue_for(self, name: str, otherwise: str = DEFAULT_QUEUE) -> str:
        """The queue for jobs of a task when neither the caller nor the decorator names one."""
        routes = self.settings.routes
        queues = (queue for pattern, queue in routes.items() if matches(pattern, name))
        return next(queues, otherwise)

    def name_of(self, stored: str) -> str:
        """The current name of a task, from the name or alias in a stored job."""
        known = self._registry.known.get(stored)
        return stored if known is None else known.name

    def _home(self) -> Home:
        return Home(None, DEFAULT_QUEUE)

    def _add(self, task: Task[..., Any]) -> None:
        self.add_tasks((task,))

    def _declare(self, task: Task[..., Any]) -> None:
        if task.declared_schedule is None:
            return
        from windlass.schedules import read_declared

        try:
            self._declared.update(dict(read_declared(task, task.declared_schedule)))
        except BaseException:
            self._registry.remove(task)  # an invalid declaration registers nothing
            raise

    def declared_schedules(self) -> Iterator[tuple[str, ScheduleEntry]]:
        """The schedules that tasks declare, for a worker to store."""
        for name, (task, schedule) in self._declared.items():
            from windlass.schedules import in_zone

            yield name, task.entry(task.codec.encode((), {}), in_zone(schedule, self))

    def around_run(self, function: Around) -> Around:
        """Register middleware around every job: a function that takes the context and yields once.

        An error of the task is raised at the yield. If the function raises another error, that
        error becomes the failure of the attempt. The retry policy still applies. The first
        middleware declared is the outermost."""
        self.middleware = (*self.middleware, read_middleware(function))
        return function

    def around_enqueue(self, function: AroundSend) -> AroundSend:
        """Register middleware around every enqueue of this app: a function that takes an
        `EnqueueCall` and yields once. The call is stored at the yield.

        The function may add headers. An error before the yield reaches the caller, and nothing is
        stored. The first middleware declared is the outermost. Jobs of schedules pass no
        middleware, because workers make them."""
        found = read_middleware(function, "around_enqueue", "the call")
        self.enqueue_middleware = (*self.enqueue_middleware, found)
        return function

    def on_success(self, hook: OnJob) -> OnJob:
        """Call this function, plain or a coroutine, with a `JobEvent` after each job that
        succeeded, unless its task has an `on_success` of its own.

        Hooks run in the worker, after the outcome is stored: at most once, in one thread of each
        child, apart from the jobs. An error of a hook is logged, and fails no job."""
        return self._add_hook("on_success", hook)

    def on_retry(self, hook: OnJob) -> OnJob:
        """Call this function like `on_success`, after each attempt that failed and will be
        retried."""
        return self._add_hook("on_retry", hook)

    def on_dead(self, hook: OnJob) -> OnJob:
        """Call this function like `on_success`, after each job that became a dead letter."""
        return self._add_hook("on_dead", hook)

    def _add_hook(self, name: str, hook: OnJob) -> OnJob:
        self.hooks.add(name, read_hook(f"@app.{name}", hook))
        return hook

    def on_alert(self, hook: OnAlert) -> OnAlert:
        """Call this function, plain or a coroutine, with an `AlertEvent` when an alert fires or
        clears: best effort, in one child of a worker or in `windlass serve`.

        The settings `alerts`, `dead_alert` and `dead_alert_growth` declare the alerts."""
        self.alert_hooks = (*self.alert_hooks, read_hook("@app.on_alert", hook, "AlertEvent"))
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
                    idempotency_ms=settings.idempotency_ttl_ms,
                    timeout_ms=settings.enqueue_timeout_ms,
                )
                engine = open_engine(settings.url, options)
                self._engine = engine if self._wrap is None else self._wrap(engine)
                if settings.sources["url"] is Source.DEFAULT:
                    _warn(
                        f"No url was given: jobs are kept in {settings.url}. Give one with "
                        "Windlass(url) or WINDLASS_URL."
                    )
            return self._engine

    def _make_batcher(self) -> Batcher:
        with opening:
            from windlass.client.async_batcher import Batcher  # imports asyncio, which is slow

            if self._batcher is None:
                stand_in = self._stand_in  # late calls go to the same engine
                self._batcher = Batcher(lambda: stand_in or self.engine)
            return self._batcher


def _warn(message: str) -> None:
    import logging  # slow to import, and seldom needed here

    logging.getLogger("windlass").warning(message)

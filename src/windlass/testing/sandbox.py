"""The sandbox: keeps the jobs of an app in memory, and runs them when a test calls `drain`.

`with Sandbox(app) as box:` gives the app the SQLite engine on a private database in memory, and
restores the app's own engine at the end. The code under test uses a real engine: arguments are
encoded, keys are unique, delays apply.

1. `drain` and `adrain` run the due jobs like a worker, and return the jobs that ran.
2. `jobs` returns all jobs.
3. `now` and `advance` are the clock of the engine. It starts at the same instant in every test, so
   that no test depends on the hour at which it runs, and then runs on in real time.
4. `faults` injects faults into the engine of the app; the sandbox's own calls bypass them.

An app is in at most one sandbox at a time. The threads of a process share the sandbox; each process
has its own. One drain runs at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload
from weakref import WeakSet

from windlass.app import Windlass
from windlass.app_loader import load_tasks
from windlass.core.durations import Duration, instant, instant_ms, to_ms
from windlass.core.ids import created_ms_of, new_id, partition_of
from windlass.engine import url
from windlass.engine.contract import Engine, EngineOptions
from windlass.task import Task
from windlass.testing.drain import Drain, raise_first
from windlass.testing.faults import Faults
from windlass.testing.snapshots import Drained, SandboxJob, see, see_all
from windlass.testing.stages import HereStage, LoopStage, complete
from windlass.worker.maintenance.schedules import Scheduler, declarations
from windlass.worker.run.interrupts import shield_engine

__all__ = ["Drained", "Sandbox", "SandboxJob", "forbid_engines"]

R = TypeVar("R")

#: The default limit of the number of jobs in a drain.
LIMIT: Final = 10_000
#: The time at which a sandbox starts.
START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)

_IN_USE: Final[WeakSet[Windlass]] = WeakSet()


class _InOrder:
    """Wrapper of an engine with ids that sort by creation even within a millisecond, so that a test
    sees jobs in the order in which they were enqueued."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._latest_ms = 0

    def new_id(
        self, task: str, queue: str, idempotency_key: str | None, unique_key: str | None = None
    ) -> str:
        given = self._engine.new_id(task, queue, idempotency_key, unique_key)
        with self._lock:
            self._latest_ms = max(created_ms_of(given), self._latest_ms + 1)
            return new_id(self._latest_ms, partition_of(given))

    def new_ids(self, number: int, task: str, queue: str) -> list[str]:
        return [self.new_id(task, queue, None) for _ in range(number)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Sandbox:
    """A sandbox as a context manager; enter it once. The clock starts at `now`, or at
    `START`. Schedules fire only with `schedules=True`."""

    def __init__(
        self, app: Windlass, *, now: datetime | None = None, schedules: bool = False
    ) -> None:
        self.app = app
        self._begin_ms = instant_ms(START if now is None else now, name="now")
        self._has_schedules = schedules
        self._stack = ExitStack()
        self._opened: Engine | None = None
        self._is_draining = False
        self.faults: Faults

    def __enter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("This sandbox was entered before: make another one.")
        if self.app in _IN_USE:
            raise RuntimeError(
                f"{self.app!r} is in a sandbox already. An app is in one at a time: use that one, "
                "or leave it first."
            )
        load_tasks(self.app)
        settings = self.app.settings
        options = EngineOptions(
            lease_ms=settings.lease_ms,
            dead_ttl_ms=settings.dead_ttl_ms,
            idempotency_ms=settings.idempotency_ttl_ms,
        )
        engine = self._opened = url.open_engine(url.IN_MEMORY, options)
        engine.clock_offset_ms = self._begin_ms - self._now_ms()
        if self._has_schedules:
            Scheduler(engine, declarations(self.app)).declare()  # schedules start now
        self.faults = Faults(cast(Engine, _InOrder(engine)))
        # Shielded, as in a worker: a time-out may interrupt a task, but not its engine calls.
        self._stack.enter_context(self.app.replace_engine(shield_engine(self.faults.engine)))
        _IN_USE.add(self.app)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _IN_USE.discard(self.app)
        self._stack.close()
        self._engine.shutdown()

    @property
    def _engine(self) -> Engine:
        if self._opened is None:
            raise RuntimeError("This sandbox was not entered: write `with Sandbox(app) as box:`.")
        return self._opened

    # -------------------------------------------------------------------------------- the clock

    @property
    def now(self) -> datetime:
        """The time of the engine's clock, in UTC."""
        return instant(self._now_ms())

    def advance(self, by: Duration) -> datetime:
        """Move the clock forward, and return the new time. Runs no jobs: it is as if no
        worker ran meanwhile."""
        self._engine.clock_offset_ms += to_ms(by, name="by")
        return self.now

    def _now_ms(self) -> int:
        return self._engine.due_schedules(limit=0).now_ms

    # ---------------------------------------------------------------------------------- running

    def drain(self, *, raise_errors: bool = True, limit: int = LIMIT) -> Drained:
        """Run due jobs, and the jobs that they enqueue, until none is due; return the jobs that
        ran.

        Each job runs inside lifespan and middleware as in a worker: plain functions in this thread,
        coroutines on an event loop of the drain. After the last job, `drain` raises the first error
        of a job, unless `raise_errors` is false. A `Snooze` is not an error. Raises `EndlessDrain`
        when more than `limit` jobs are due."""
        _refuse_running_loop()
        stage = HereStage()
        try:
            with self._draining():
                drain = Drain(self.app, self._engine, stage, limit, self._has_schedules)
                complete(drain.run())
        finally:
            stage.close()
        return self._conclude(drain, raise_errors)

    async def adrain(self, *, raise_errors: bool = True, limit: int = LIMIT) -> Drained:
        """`drain`, for coroutines. Jobs that are coroutines run on this event loop, and plain
        functions in a thread."""
        with self._draining():
            drain = Drain(self.app, self._engine, LoopStage(), limit, self._has_schedules)
            await drain.run()
        return self._conclude(drain, raise_errors)

    @contextmanager
    def _draining(self) -> Iterator[None]:
        if self._is_draining:
            raise RuntimeError(
                "A drain of this sandbox is already running. It also runs the jobs that a job "
                "enqueues: a task cannot call drain()."
            )
        self._is_draining = True
        try:
            yield
        finally:
            self._is_draining = False

    def _conclude(self, drain: Drain, raise_errors: bool) -> Drained:
        if raise_errors:
            raise_first(drain.ended)
        ids = list(dict.fromkeys(one.claim.id for one in drain.ended))
        return Drained(see(self.app, self._engine, ids))

    # ----------------------------------------------------------------------------------- seeing

    @overload
    def jobs(self, task: None = None) -> list[SandboxJob[Any]]: ...
    @overload
    def jobs(self, task: Task[..., R]) -> list[SandboxJob[R]]: ...
    def jobs(self, task: Task[..., Any] | None = None) -> list[SandboxJob[Any]]:
        """The jobs of one task, or of all tasks, in any state, the oldest first."""
        if not isinstance(task, Task | None):
            raise TypeError(
                f"jobs takes a task, as in jobs(resize), found {task!r}. For a task known by name "
                "only, use app.task_named(name)."
            )
        if task is not None and task.app is not self.app:
            raise ValueError(
                f"{task!r} is not a task of {self.app!r}, the app of this sandbox. Make a sandbox "
                "of the app of that task."
            )
        return see_all(self.app, self._engine, None if task is None else task.name)


@contextmanager
def forbid_engines() -> Iterator[None]:
    """Let this process open only engines in memory, so that a test without a sandbox cannot reach
    the jobs of production. `pytest --windlass-sandbox-only` does this for a whole run."""
    before = url.why_memory_only
    url.why_memory_only = (
        "this test run allows only engines in memory. Use the fixture windlass_sandbox, or "
        "Sandbox(app), around the code that enqueues."
    )
    try:
        yield
    finally:
        url.why_memory_only = before


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "drain() was called in a coroutine, and would block its event loop: write "
        "`await box.adrain()`."
    )

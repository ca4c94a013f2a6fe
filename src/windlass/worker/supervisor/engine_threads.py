"""The threads of a worker that call the engine for all children: heartbeat, maintenance, waiter.

Each thread has its own engine object, so that no thread waits for calls of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from windlass.dead_letter import DeadAlert
from windlass.engine.contract import Engine, EngineOptions, Outcome, Plan
from windlass.engine.url import open_engine
from windlass.worker.ipc.channel import Ready
from windlass.worker.maintenance.dead_letters import DeadWatch
from windlass.worker.maintenance.heartbeat import Contact, Heartbeat, Living
from windlass.worker.maintenance.schedules import Scheduler
from windlass.worker.maintenance.service import Maintenance
from windlass.worker.supervisor.waiter import WorkerWaiter


class EngineThreads:
    """Heartbeat, maintenance and waiter. Maintenance uses `engine`, and ends it. Without `options`
    all three share `engine`, which stays open. `suspects` is the plan of jobs that must run alone,
    if the worker runs such jobs. These threads call the callbacks."""

    def __init__(
        self,
        ready: Ready,
        engine: Engine,
        options: EngineOptions | None,
        *,
        living: Callable[[], Sequence[Living]],
        on_gone: Callable[[str], None],
        on_cancel: Callable[[str, tuple[str, ...]], None],
        on_suspects: Callable[[], None],
        on_alert: Callable[[DeadAlert], None],
        on_answer: Callable[[], None] | None = None,
        on_forced_end: Callable[[Outcome], None] | None = None,
        suspects: Plan | None = None,
    ) -> None:
        beating = waiting = engine
        if options is not None:
            beating = open_engine(ready.url, replace(options, has_own_connections=True))
            waiting = open_engine(ready.url, options)
        contact, ends_engine = Contact(engine.location), options is not None
        self.heartbeat = Heartbeat(
            beating, ready.lease_ms, living, on_gone, on_cancel, contact, ends_engine=ends_engine
        )
        dead_watch = DeadWatch(
            engine,
            ready.dead_alert,
            ready.dead_alert_growth,
            sessions=lambda: [child.session for child in living()],
            on_alert=on_alert,
        )
        self.maintenance = Maintenance(
            engine,
            living,
            on_suspects,
            self.heartbeat,
            contact,
            Scheduler(engine, ready.schedules),
            dead_watch,
            on_answer=on_answer,
            on_forced_end=on_forced_end,
            ends_engine=ends_engine,
        )
        self.waiter = WorkerWaiter(waiting, suspects, on_suspects, ends_engine=ends_engine)

    def start(self) -> None:
        for thread in (self.heartbeat, self.maintenance, self.waiter):
            thread.start()

"""The threads of a worker that call the engine for all children: heartbeat, maintenance, waiter
and, for an app with an outbox, its relay.

Each thread has its own engine object, so that no thread waits for calls of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from windlass.calls.redaction import CallRedactor
from windlass.core.alerts.rules import AlertEvent
from windlass.core.introduction import Introduction
from windlass.engine.contract import Engine, EngineOptions, Outcome, Plan, SessionCommand
from windlass.engine.url import open_engine
from windlass.outbox.url import OutboxUrl
from windlass.worker.ipc.channel import Ready
from windlass.worker.maintenance.alerts import AlertEvaluator
from windlass.worker.maintenance.heartbeat import Contact, Heartbeat, Living
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.maintenance.outbox import OutboxRelay
from windlass.worker.maintenance.schedules import Scheduler
from windlass.worker.maintenance.service import Maintenance
from windlass.worker.supervisor.waiter import WorkerWaiter

OpenEngine = Callable[[str, EngineOptions], Engine]


class EngineThreads:
    """Heartbeat, maintenance, waiter and relay. Maintenance uses `engine`, and ends it. Without
    `options` all of them share `engine`, which stays open. `suspects` is the plan of jobs that must
    run alone, if the worker runs such jobs. These threads call the callbacks."""

    def __init__(
        self,
        ready: Ready,
        engine: Engine,
        options: EngineOptions | None,
        *,
        living: Callable[[], Sequence[Living]],
        on_gone: Callable[[str], None],
        on_cancel: Callable[[str, tuple[str, ...]], None],
        on_command: Callable[[SessionCommand], None],
        on_suspects: Callable[[], None],
        on_alert: Callable[[AlertEvent], None],
        measures: WorkerMeasures,
        open_engine: OpenEngine = open_engine,
        on_answer: Callable[[], None] | None = None,
        on_forced_end: Callable[[Outcome], None] | None = None,
        suspects: Plan | None = None,
    ) -> None:
        beating = waiting = engine
        if options is not None:
            beating = open_engine(ready.url, replace(options, has_own_connections=True))
            waiting = open_engine(ready.url, options)
        contact, ends_engine = Contact(engine.location), options is not None
        self._on_command = on_command
        self.heartbeat = Heartbeat(
            beating,
            ready.lease_ms,
            living,
            on_gone,
            on_cancel,
            self._pass_on,
            contact,
            ends_engine=ends_engine,
        )
        app = Introduction.unpack(ready.introduction).app
        alerts = AlertEvaluator(
            engine, ready.alerts, on_alert, webhook=ready.alert_webhook, app=app
        )
        self.maintenance = Maintenance(
            engine,
            living,
            on_suspects,
            self.heartbeat,
            contact,
            Scheduler(engine, ready.schedules),
            alerts,
            CallRedactor.without_code(ready.redact, ready.parameters),
            measures,
            on_answer=on_answer,
            on_forced_end=on_forced_end,
            ends_engine=ends_engine,
        )
        self.waiter = WorkerWaiter(waiting, suspects, on_suspects, ends_engine=ends_engine)
        self.relay: OutboxRelay | None = None
        if ready.outbox:
            relaying = engine if options is None else open_engine(ready.url, options)
            self.relay = OutboxRelay(relaying, OutboxUrl(ready.outbox), ends_engine=ends_engine)

    def _pass_on(self, command: SessionCommand) -> None:
        """Pass on a command of an operator. First end the wait for jobs, or begin it again: a quiet
        worker must get no wake-up, because another worker would miss it."""
        self.waiter.set_quiet(command is not SessionCommand.RUN)
        self._on_command(command)

    def start(self) -> None:
        for thread in (self.heartbeat, self.maintenance, self.waiter):
            thread.start()
        if self.relay is not None:
            self.relay.start()

    def stop_relay(self, timeout_s: float) -> None:
        """Stop the relay, if there is one, after its batch."""
        if self.relay is not None:
            self.relay.stop(timeout_s)

"""Assemble the parts that run jobs in one process: fetcher, slot queue, runners, watchdog."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from threading import Thread
from typing import Protocol

from windlass.app import Windlass
from windlass.calls.redaction import sensitive_parameters
from windlass.engine.contract import Beat, Engine
from windlass.errors import EngineError
from windlass.settings import describe_unusual, find_overruled, matches
from windlass.worker.child.watchdog import FetchWatchdog, LoopWatchdog, Watchdog
from windlass.worker.fetch.fetcher import Fetcher, Owner
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.channel import Ready
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver
from windlass.worker.logs.events import LogEvent
from windlass.worker.maintenance.schedules import declarations
from windlass.worker.run.end_log import EndLog
from windlass.worker.run.hooks import HookThread
from windlass.worker.run.pipeline import Execution
from windlass.worker.run.runners import LoopRunner, ThreadRunner
from windlass.worker.run.slot_queue import Lease, SlotQueue
from windlass.worker.run.timeouts import Limits
from windlass.worker.run.transactions import transactions_of

log = getLogger("windlass.worker")


class PartsOwner(Owner, Protocol):
    """Methods of a child or embedded worker for its parts."""

    def report_limited(self) -> None:
        """Report that runs with a limit may exist from now on."""

    def report_wedged(self, text: str) -> None:
        """Report where the fetcher is stuck."""


class Assembly:
    """All parts of one process that run jobs. Create them on the event loop that runs coroutines.
    `state` is the value of the lifespan, and `wakes` wakes an idle fetcher."""

    def __init__(
        self,
        app: Windlass,
        engine: Engine,
        queue_turns: QueueTurns,
        table: SlotTable,
        owner: PartsOwner,
        state: object,
        wakes: WakeReceiver,
    ) -> None:
        settings, is_solo = app.settings, queue_turns.plan.suspects
        self._engine = engine
        limits = self.limits = Limits(
            table, settings.kill_after_ms, owner.report_limited, is_solo=is_solo
        )
        slot_queue = SlotQueue(Lease(table, settings.lease_ms, is_solo=is_solo))
        hooks = self.hooks = HookThread(app)
        transactions = transactions_of(engine)
        fetcher = self.fetcher = Fetcher(
            engine,
            queue_turns,
            slot_queue,
            limits,
            app.known_tasks,
            owner,
            wakes,
            hooks,
            transactions,
        )
        execution = Execution(
            settings,
            fetcher.report_progress,
            fetcher.leave_task,
            app.middleware,
            state,
            app.packing,
            hooks.notes,
            transactions,
            engine,
        )
        kinds = (ThreadRunner, LoopRunner)
        end_log = self.end_log = EndLog()
        self._runners = [
            kind(slot_queue, limits, execution, fetcher.report, end_log, fetcher.measures)
            for kind in kinds
        ]
        self.thread = Thread(target=self._run_fetcher, name="windlass-fetcher", daemon=True)
        self._introduction = b""
        self.watchdog = Watchdog(
            slot_queue,
            limits,
            LoopWatchdog(),
            FetchWatchdog(self.thread, fetcher),
            end_log,
            owner.report_wedged,
        )

    def start(self, introduction: bytes) -> None:
        """Start the fetcher and the watchdog. The introduction, if any, is sent before the first
        claim, so that the engine knows a worker that dies with its first job."""
        self._introduction = introduction
        self.thread.start()
        self.watchdog.start()

    def _run_fetcher(self) -> None:
        if self._introduction:
            with suppress(EngineError):  # a later heartbeat describes the session
                self._engine.beat([Beat(session=self.fetcher.session, info=self._introduction)])
        self.fetcher.run()

    def close(self) -> None:
        """End the threads, except those that run jobs."""
        for runner in self._runners:
            runner.close()
        self.limits.close()
        self.watchdog.stop()
        self.end_log.flush()


def run_until(is_over: Callable[[], bool], loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop. Restart it when a task stops it, or when SystemExit escapes from a task."""
    while not is_over():
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # an error of a background task fails no job
            with suppress(BaseException):  # a log handler of the app may fail
                log.error(LogEvent.LOOP_LEFT, type(error).__name__)


def describe_app(app: Windlass, introduction: bytes) -> Ready:
    """Describe an app to the threads of its worker. Routes that match no task may be misspelt: the
    worker warns."""
    settings = app.settings
    return Ready(
        url=settings.url,
        lease_ms=settings.lease_ms,
        shutdown_grace_ms=settings.shutdown_grace_ms,
        kill_after_ms=settings.kill_after_ms,
        dead_ttl_ms=settings.dead_ttl_ms,
        alerts=settings.alert_rules,
        alert_webhook=settings.alert_webhook.url,
        tasks=tuple(app.tasks),
        log_level=settings.log_level,
        log_format=settings.log_format,
        unusual=describe_unusual(settings),
        overruled=find_overruled(settings, os.environ),
        schedules=declarations(app),
        idle_routes=tuple(
            pattern
            for pattern in settings.routes
            if not any(matches(pattern, name) for name in (*app.tasks, *app.remote_tasks))
        ),
        queues=tuple(sorted({task.queue for task in app.tasks.values()})),
        introduction=introduction,
        redact=settings.redact,
        parameters=sensitive_parameters(app),
        outbox=settings.outbox.url,
    )

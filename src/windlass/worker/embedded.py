"""A worker inside this process, for development and scripts: `with app.worker(): ...`.

The worker has the same parts as a child: fetcher, slot queue, runners, and an event loop in a
thread. There is no supervisor. A thread of this process sends heartbeats, so code that holds the
GIL for longer than a lease loses the session: its jobs then run again elsewhere, fenced as always.
A job that kills the process kills the script. Jobs that must run alone are left to real workers,
and a run that ignores its time-out is not ended by force.

1. Entering starts the event loop, the lifespan of the app, the heartbeat, the fetcher and the
   watchdog.
2. Leaving stops claiming, and gives jobs the grace of the app to end. Jobs that still run are
   handed back; their threads continue until the process ends, and their results are dropped.
3. A command of an operator makes the worker quiet, or lets it claim again. After a command to stop
   it claims nothing more; the program leaves the block when it wants to.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from logging import getLogger
from threading import Event, Thread
from time import monotonic, time_ns
from types import TracebackType
from typing import Final, NoReturn, Self
from weakref import WeakSet

from windlass.app import Windlass
from windlass.app_loader import load_tasks
from windlass.core.ids import new_session
from windlass.engine.contract import Capability, Engine, EngineOptions, SessionCommand, Waiter
from windlass.engine.url import open_engine
from windlass.worker.child.assembly import Assembly, describe_app, run_until
from windlass.worker.child.lifespan import HeldLifespan
from windlass.worker.fetch.fetcher import FetcherDrained
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.channel import RunsMeasured
from windlass.worker.ipc.session_info import introduce
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver, open_wake_pair
from windlass.worker.logs.events import LogEvent, listed
from windlass.worker.maintenance.alerts import call_alert_hooks
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.maintenance.service import Closing
from windlass.worker.maintenance.session_commands import log_quiet
from windlass.worker.options import WorkerOptions
from windlass.worker.run.interrupts import shield_engine
from windlass.worker.run.transactions import check_tasks
from windlass.worker.supervisor.engine_threads import EngineThreads

log = getLogger("windlass.worker")

#: How long the lifespan may take to end, in seconds.
LEAVE_S = 5.0
#: How long handing back jobs, and then closing the session, may take, in seconds.
CLOSE_S = 5.0
#: How long coroutines may take to end after their cancellation, in seconds.
CANCEL_S = 1.0


_SHIELDED: Final[WeakSet[Windlass]] = WeakSet()


class EmbeddedWorker:
    """A worker in the process of the app: a context manager, to be entered once. It owns the
    fetcher."""

    def __init__(
        self, app: Windlass, queues: Sequence[str], slots: int, labels: Sequence[str] = ()
    ) -> None:
        self._app = app
        program = os.path.basename(sys.argv[0]) or "python"
        self._options = WorkerOptions(
            f"inside {program}", tuple(queues), 1, slots, labels=tuple(labels)
        )
        self._queue_turns = QueueTurns(self._options.queues, self._options.labels)
        self._measures = WorkerMeasures()
        self._ended = Event()
        self._is_over = Event()
        self._is_wedged = False
        # The attributes of a child that heartbeat and maintenance read.
        self.session = ""
        self.table = SlotTable.create(slots)
        self.table.close_descriptor()
        self.introduction = b""
        self.introduced = ""
        self._engine_options: EngineOptions | None = None  # None if the app shares its engine

    def is_running(self) -> bool:
        """Return False for a stuck fetcher, which stops the heartbeat: so other workers get its
        jobs."""
        return not self._is_wedged

    # ------------------------------------------------------------------------------ starting

    def __enter__(self) -> Self:
        if self.session:
            raise RuntimeError("This worker was entered before: make another one by app.worker().")
        load_tasks(self._app)
        # Read the pid here: the program may fork before it enters.
        options, now_ms = self._options, time_ns() // 1_000_000
        self.introduction = introduce(
            options, self._app.settings, os.getpid(), options.slots, now_ms, is_solo=False
        )
        self._engine = self._open_engine()
        self.wakes, woken = open_wake_pair()
        self._wakes = WakeReceiver(woken)
        self._loop = asyncio.new_event_loop()
        self._loop_thread = Thread(target=self._run_loop, name="windlass-loop", daemon=True)
        self._loop_thread.start()
        self._lifespan = HeldLifespan(self._app.lifespan, on_loss=self._lose_lifespan)
        try:
            asyncio.run_coroutine_threadsafe(self._prepare(), self._loop).result()
        except BaseException:
            self._stop_loop()
            self.wakes.close()
            self._wakes.close()
            raise
        self._threads = EngineThreads(
            describe_app(self._app, self.introduction),
            self._engine,
            self._engine_options,
            living=lambda: [self],
            on_gone=self._fetcher.lose_session,
            on_cancel=self._cancel,
            on_command=self._obey,
            on_suspects=self.see_suspects,
            on_alert=lambda event: call_alert_hooks(self._app.alert_hooks, event),
            measures=self._measures,
        )
        self._threads.start()
        self._log_left_out()
        self._assembly.start(self.introduction)
        return self

    def _log_left_out(self) -> None:
        alone = sorted(task.name for task in self._app.tasks.values() if task.runs_alone)
        if alone:
            log.warning(LogEvent.TASKS_LEFT_TO_OTHERS, listed(alone))

    def _open_engine(self) -> Engine:
        """Open a separate engine, so that no other caller disturbs its waits. The app shares an
        engine in memory, because its data exists only there."""
        if self._app not in _SHIELDED:
            self._app.wrap_engine(shield_engine)  # an interrupt must not cut off an enqueue
            _SHIELDED.add(self._app)
        engine, settings = self._app.engine, self._app.settings
        if Capability.MANY_PROCESSES not in engine.capabilities:
            return engine
        self._engine_options = EngineOptions(
            lease_ms=settings.lease_ms, dead_ttl_ms=settings.dead_ttl_ms, owns_sessions=True
        )
        return open_engine(settings.url, self._engine_options)

    async def _prepare(self) -> None:
        """Prepare on the loop. After the lifespan is entered there is no await, so that `on_loss`
        always finds a fetcher."""
        for task in self._app.tasks.values():
            task.codec.resolve()  # report an unusable signature at the start
        check_tasks(self._app.tasks.values(), self._engine)
        state = await self._lifespan.enter()
        self._assembly = Assembly(
            self._app, self._engine, self._queue_turns, self.table, self, state, self._wakes
        )
        self._fetcher = self._assembly.fetcher

    def _run_loop(self) -> None:
        run_until(lambda: self._is_over.is_set() or self._loop.is_closed(), self._loop)

    # -------------------------------------------------------------------- asked by the fetcher

    def new_session(self) -> str:
        if self.session:
            self._threads.waiter.leave(self.session)
        release = self._app.settings.release
        self.session = new_session(socket.gethostname(), os.getpid(), release)
        return self.session

    def see_suspects(self) -> None:
        """Do nothing: jobs that must run alone need a separate process, so real workers run
        them."""

    def report_limited(self) -> None:
        """Do nothing: runs that ignore their time-out are part of this process, and cannot be
        ended."""

    def rest(self, session: str, nonce: str | None) -> None:
        if nonce is None:
            self._threads.waiter.leave(session)
        else:
            self._threads.waiter.rest(self, Waiter(session, self._queue_turns.plan, nonce))

    def report_measures(self, measured: RunsMeasured) -> None:
        self._measures.add(measured.measures, measured.stale)

    def end(self) -> None:
        self._assembly.watchdog.stop()
        self._ended.set()

    def end_at_once(self) -> NoReturn:
        """End the fetcher after running jobs were handed back. Their threads cannot be ended, and
        their outcomes are dropped. A job can see in its context that it was reassigned."""
        self._assembly.limits.note_loss()
        raise FetcherDrained

    def _cancel(self, session: str, ids: Collection[str]) -> None:
        if session == self.session:
            self._fetcher.cancel(ids)

    def _obey(self, command: SessionCommand) -> None:
        """Obey an operator. The process is not ours, so a stop only ends the claims for good."""
        if command is SessionCommand.STOP:
            log.info(LogEvent.INSIDE_STOPPED)
            self._fetcher.drain()
        else:
            is_quiet = command is SessionCommand.QUIET
            log_quiet(is_quiet)
            self._fetcher.set_quiet(is_quiet)

    def _lose_lifespan(self) -> None:
        self._fetcher.drain()

    def report_wedged(self, text: str) -> None:
        self._is_wedged = True
        log.error(LogEvent.INSIDE_WEDGED, text)
        self._ended.set()

    # --------------------------------------------------------------------------------- ending

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        interrupted: KeyboardInterrupt | None = None
        ends_at = monotonic() + self._app.settings.shutdown_grace_ms / 1000
        self._fetcher.drain()
        try:
            has_ended = self._ended.wait(self._app.settings.shutdown_grace_ms / 1000)
        except KeyboardInterrupt as interrupt:  # hand back now, and still shut down
            has_ended, interrupted = False, interrupt
        if not has_ended:
            self._fetcher.hand_back()
            self._ended.wait(CLOSE_S)
        self._assembly.hooks.close(max(0.0, ends_at - monotonic()) if has_ended else 0.0)
        self._shut_down()
        if interrupted is not None and error is None:
            raise interrupted

    def _shut_down(self) -> None:
        self._lifespan.leave(LEAVE_S)
        self._threads.stop_relay(CLOSE_S)
        self._threads.waiter.stop(CLOSE_S)
        self._threads.heartbeat.stop(CLOSE_S)  # first: a beat would renew the closed session
        self._threads.maintenance.request(Closing(self.session, (), "the end of its program"))
        self._threads.maintenance.stop(CLOSE_S)
        self._assembly.close()
        self._stop_loop()
        self.wakes.close()
        self._assembly.thread.join(CLOSE_S)
        if not self._assembly.thread.is_alive():
            self._wakes.close()

    def _stop_loop(self) -> None:
        """Cancel coroutines that still run: coroutines of jobs handed back, or left behind by
        jobs."""
        ending = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        with suppress(TimeoutError):
            ending.result(CANCEL_S)
        self._is_over.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join(CLOSE_S)
        if not self._loop_thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

"""A child: the process in which jobs run. Only the supervisor starts it.

1. Before the import of user code, the child leaves signals to the supervisor, arranges to die with
   the supervisor, and starts a thread that reads commands.
2. The child loads the app, opens the engine and enters the lifespan. It reports errors to the
   supervisor.
3. The fetcher claims and reports in its own thread. Plain functions run in threads, coroutines on
   the event loop of the main thread. A watchdog thread checks all of them.
4. When the fetcher is done, the lifespan is exited and the process ends. That takes a few seconds
   at most, also when tasks leave threads, background coroutines or a blocked event loop behind.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import importlib
import os
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from logging import getLogger
from threading import Lock, Thread, Timer
from types import FrameType
from typing import NoReturn

import msgspec

import windlass
from windlass.app import Windlass
from windlass.app_loader import load_app, load_tasks
from windlass.core.ids import new_session
from windlass.engine.contract import Engine, EngineOptions
from windlass.engine.instrumented import instrument
from windlass.engine.url import absolute_url, open_engine
from windlass.errors import EngineUnavailable, IncludeFailed, WindlassError
from windlass.hooks import AlertHook
from windlass.settings import Source
from windlass.worker.child.assembly import Assembly, describe_app, run_until
from windlass.worker.child.lifespan import HeldLifespan, call_if_slow
from windlass.worker.fetch.fetcher import Fetcher
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.channel import (
    CallAlertHooks,
    Cancel,
    Channel,
    ChildSessionStarted,
    Command,
    Disown,
    DrainChild,
    Draining,
    EndedByForce,
    Failed,
    HandBack,
    Limited,
    Resting,
    RunsMeasured,
    SessionGone,
    SetQuiet,
    Start,
    SuspectsSeen,
    Wedged,
    join_pair,
)
from windlass.worker.ipc.session_info import introduce
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver, join_wake_pair
from windlass.worker.logs.events import LogEvent
from windlass.worker.logs.setup import configure_all, configure_early
from windlass.worker.maintenance.alerts import call_alert_hooks
from windlass.worker.options import SWITCH_INTERVAL_S
from windlass.worker.run.interrupts import shield_engine
from windlass.worker.run.transactions import check_tasks

log = getLogger("windlass.worker")

#: The most engine calls at a time: one of the fetcher, and one of the jobs.
MOST_CALLS = 2
#: An engine that has not answered after this many seconds is logged.
SLOW_S = 1.0
#: How long a child that stops waits for the first answer of the engine, in seconds.
UNANSWERED_S = 0.5
#: How long the lifespan may take to end, in seconds.
LEAVE_S = 5.0
#: The longest wait for hooks of jobs that have ended, in seconds: shorter than the watchdog's
#: patience with the thread that waits. A shorter grace limits it too.
HOOKS_S = 30.0
#: How long the shutdown may take, in seconds: longer than an app needs to close, and shorter than
#: the supervisor waits.
SHUTDOWN_S = 3.0
#: The exit code of a child that could not load the app, after a report to the supervisor.
EXIT_FAILED = 1
#: The exit code of a child without a supervisor. No process reads it.
EXIT_ORPHANED = 1
#: The folder of the windlass package.
_PACKAGE = os.path.dirname(os.path.abspath(windlass.__file__)) + os.sep
#: Prefixes of the files of Python's import system.
_IMPORTING = ("<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)
#: An operation of prctl(2).
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> NoReturn:
    control, table, wakes, supervisor = map(int, arguments)
    _leave_signals_to_supervisor()
    _die_with(supervisor)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    Child(supervisor, join_pair(control), table, join_wake_pair(wakes)).run()


class Child:
    """The parts of a child, and its messages to and from the supervisor."""

    def __init__(
        self, supervisor: int, channel: Channel[Command], table: int, wakes: WakeReceiver
    ) -> None:
        self._supervisor = supervisor
        self._channel = channel
        self._wakes = wakes
        self._fetcher: Fetcher | None = None
        self._assembly: Assembly | None = None
        self._forced_ends: deque[EndedByForce] = deque()  # that came before the assembly
        self._alert_hooks: Sequence[AlertHook] = ()
        self._release = ""
        self._lifespan: HeldLifespan | None = None
        self._is_ending = False
        self._has_left = False  # the lifespan; only functions at exit are left
        self._drains_early = False
        self._is_quiet = False
        self._quieting = Lock()  # held to set the fetcher, or what it must know
        start = self._start = self._first_command()
        configure_early(start.options.log_level)
        self._has_answered = False  # whether the engine answered while the app was loaded
        self._queue_turns = QueueTurns(
            start.options.queues, start.options.labels, is_solo=start.is_solo
        )
        self._table = SlotTable.attach(table, start.slots)

    def _first_command(self) -> Start:
        """Read the first command, which is always `Start`. A stop may follow at once."""
        commands: list[Command] = []
        while not commands:
            commands = self._channel.receive()
        start, *others = commands
        assert isinstance(start, Start), "the supervisor begins with it"
        for command in others:
            self._handle(command)
        return start

    def run(self) -> NoReturn:
        Thread(target=self._listen, name="control", daemon=True).start()
        try:
            app, engine = self._load()
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self._serve(app, engine))
        except BaseException as error:  # noqa: BLE001  # an import can raise anything, even SystemExit
            self._channel.send(Failed(_explain(error)))
            os._exit(EXIT_FAILED)  # do not wait for threads of the app
        run_until(loop.is_closed, loop)  # returns only if a task closes the loop
        os._exit(EXIT_FAILED)

    # ---------------------------------------------------------------------------------- loading

    def _load(self) -> tuple[Windlass, Engine]:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        # Resolve the url before the import of the app, which may change the current folder.
        options = self._start.options
        url = None if options.url is None else absolute_url(options.url)
        app = load_app(options.app)
        load_tasks(app)
        if options.log_level is not None:
            _override(app, log_level=options.log_level)
        configure_all(app.settings.log_level, app.settings.log_format)
        for task in app.tasks.values():
            task.codec.resolve()  # report an unusable signature at the start
        if url is not None:
            app.close()  # its module may have used the engine of its own url already
            # For the app too: a task enqueues to the engine that its worker claims from.
            _override(app, url=url)
        app.wrap_engine(shield_engine)
        settings = app.settings
        limits = EngineOptions(
            lease_ms=settings.lease_ms,
            dead_ttl_ms=settings.dead_ttl_ms,
            most_calls=MOST_CALLS,
            owns_sessions=True,
        )
        engine = open_engine(settings.url, limits)
        if options.metrics is not None:
            engine = instrument(engine, self._table.call_times)
        check_tasks(app.tasks.values(), engine)
        # Log a slow engine: a child that waits here logs nothing else.
        slowness = call_if_slow(
            SLOW_S, lambda: log.warning(LogEvent.ENGINE_SLOW, SLOW_S, engine.location)
        )
        # Ignore an outage, which passes. Any other engine error ends the child, with a report.
        with slowness, suppress(EngineUnavailable):
            engine.migrate()
            self._has_answered = True
        return app, engine

    # ---------------------------------------------------------------------------------- serving

    async def _serve(self, app: Windlass, engine: Engine) -> None:
        """Enter the lifespan, then start the fetcher, the runners and the watchdog."""
        self._shutdown_steps = [app.close, engine.shutdown, atexit._run_exitfuncs, _flush]
        lifespan = self._lifespan = HeldLifespan(app.lifespan, on_loss=self._lose_lifespan)
        state = await lifespan.enter()
        self._alert_hooks = app.alert_hooks
        self._release = app.settings.release
        start = self._start
        introduction = introduce(
            start.options,
            app.settings,
            self._supervisor,
            start.slots,
            start.worker_started_ms,
            is_solo=start.is_solo,
        )
        self._channel.send(describe_app(app, introduction))
        assembly = Assembly(app, engine, self._queue_turns, self._table, self, state, self._wakes)
        self._shutdown_steps.insert(0, assembly.end_log.flush)
        self._assembly = assembly
        with self._quieting:
            self._fetcher = assembly.fetcher
            assembly.fetcher.set_quiet(self._is_quiet)
        self._hooks_s = min(HOOKS_S, app.settings.shutdown_grace_ms / 1000)
        self._report_forced_ends()
        if self._drains_early:
            assembly.fetcher.drain()
        # Without an answer so far, skip the introduction, a call that may take long.
        assembly.start(introduction if self._has_answered else b"")

    def report_wedged(self, text: str) -> None:
        self._report(Wedged(text))

    def report_limited(self) -> None:
        self._report(Limited())

    def _lose_lifespan(self) -> None:
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.drain()

    # ----------------------------------------------------------------------- asked by the fetcher

    def new_session(self) -> str:
        session = new_session(socket.gethostname(), os.getpid(), self._release)
        self._channel.send(ChildSessionStarted(session))
        return session

    def see_suspects(self) -> None:
        self._channel.send(SuspectsSeen())

    def rest(self, session: str, nonce: str | None) -> None:
        self._report(Resting(session, nonce))

    def report_measures(self, measured: RunsMeasured) -> None:
        self._report(measured)

    def end(self) -> NoReturn:
        """Shut down from the fetcher's thread, because a task may have blocked the main thread. A
        normal exit of the interpreter would wait for threads that tasks left behind."""
        self._is_ending = True
        self._fetcher = None  # from here on there is nothing to hand back
        with suppress(BaseException):  # any error: the process ends
            if self._assembly is not None:
                self._assembly.hooks.close(self._hooks_s)
            if self._lifespan is not None:
                self._lifespan.leave(LEAVE_S)
        self._has_left = True
        shutdown = Thread(target=self._shut_down, name="shutdown", daemon=True)
        try:
            shutdown.start()
            shutdown.join(SHUTDOWN_S)
        finally:
            os._exit(0)

    def _shut_down(self) -> None:
        for action in self._shutdown_steps:
            with suppress(BaseException):  # errors of the app do not matter: the process ends
                action()

    def end_at_once(self) -> NoReturn:
        """End at once. Running jobs were handed back: none becomes a suspect."""
        self._table.vacate_all()
        os._exit(0)

    # -------------------------------------------------------------- commands of the supervisor

    def _listen(self) -> None:
        """Handle commands until the supervisor is gone; then end this process."""
        try:
            while True:
                for command in self._channel.receive():
                    self._handle(command)
        except EOFError:
            os._exit(EXIT_ORPHANED)

    def _handle(self, command: Command) -> None:
        fetcher = self._fetcher
        match command:
            case DrainChild() if fetcher is None:
                self._drain_early()
            case DrainChild() if fetcher is not None:
                fetcher.drain()
                self._end_if_unanswered()
                self._report(Draining())
            case SetQuiet(is_quiet):
                self._set_quiet(is_quiet)
            case Cancel(ids) if fetcher is not None:
                fetcher.cancel(ids)
            case Disown(id, token) if fetcher is not None:
                fetcher.disown(id, token)
            case EndedByForce():
                self._forced_ends.append(command)
                self._report_forced_ends()
            case CallAlertHooks(event):
                call_alert_hooks(self._alert_hooks, event)
            case HandBack():
                self._hand_back(fetcher)
            case SessionGone(session) if fetcher is not None:
                fetcher.lose_session(session)

    def _set_quiet(self, is_quiet: bool) -> None:
        """Tell the fetcher, or remember it for a fetcher that is created later."""
        with self._quieting:
            self._is_quiet = is_quiet
            if self._fetcher is not None:
                self._fetcher.set_quiet(is_quiet)

    def _hand_back(self, fetcher: Fetcher | None) -> None:
        """End soon: at once, if nothing was claimed yet, or only functions at exit are left. If all
        is reported, the shutdown that has begun, or begins at this moment, continues without
        waiting for hooks: exiting the lifespan has a time limit of its own."""
        if self._assembly is not None:
            self._assembly.hooks.abandon()
        if fetcher is not None:
            fetcher.hand_back()
            self._end_if_unanswered()
        elif not self._is_ending or self._has_left:
            os._exit(0)

    def _report_forced_ends(self) -> None:
        with suppress(IndexError):  # another thread has reported the last one
            while self._assembly is not None and self._forced_ends:
                self._assembly.hooks.report_forced_end(self._forced_ends.popleft())

    def _drain_early(self) -> None:
        """Drain a child without a fetcher: either no job was claimed yet, or all jobs are reported.
        A shutdown that has begun continues, and an entered lifespan is exited."""
        if self._is_ending:
            return
        if self._lifespan is None or not self._lifespan.is_held:
            os._exit(0)
        self._drains_early = True
        if self._fetcher is not None:  # created meanwhile: `_serve` may have missed the flag
            self._fetcher.drain()

    def _end_if_unanswered(self) -> None:
        """End soon if the engine never answered, however long the current call takes. The fetcher
        is draining, so it starts no further claim. If a claim is answered later, the supervisor
        releases its jobs with the session."""
        if not self._table.answered_at():
            timer = Timer(UNANSWERED_S, self._end_unanswered)
            timer.daemon = True
            timer.start()

    def _end_unanswered(self) -> None:
        if not self._table.answered_at() and not self._is_ending:
            self.end()

    def _report(self, report: Draining | Limited | RunsMeasured | Resting | Wedged) -> None:
        """Send a report. If the supervisor is gone, the next read notices it."""
        with suppress(OSError):
            self._channel.send(report)


def _override(app: Windlass, **values: str) -> None:
    """Replace settings of the app by options of the command."""
    sources = {**app.settings.sources, **dict.fromkeys(values, Source.OPTION)}
    app.settings = msgspec.structs.replace(app.settings, sources=sources, **values)


def _leave_signals_to_supervisor() -> None:
    """Set a handler that does nothing, because programs that a task starts would inherit
    SIG_IGN."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _pass)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the supervisor blocked it


def _pass(number: int, frame: FrameType | None) -> None:
    """Do nothing: the supervisor gets the signal too, and sends a command."""


def _die_with(supervisor: int) -> None:
    """Ask the system to kill this process when the supervisor dies. Where that is not possible, the
    closed channel ends this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(EXIT_ORPHANED)


def _flush() -> None:
    """Flush the streams, as the interpreter does at a normal exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _explain(error: BaseException) -> str:
    """Describe an error: errors of windlass as text, all others with their traceback."""
    if isinstance(error, IncludeFailed) and error.__cause__ is not None:
        return f"{_trace(error.__cause__)}\n{error}"
    return str(error) if isinstance(error, WindlassError) else _trace(error)


def _trace(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(error)
    _begin_with_the_app(shown)
    return "".join(shown.format())


def _begin_with_the_app(shown: traceback.TracebackException) -> None:
    """Drop the outer frames of windlass and of the import, which are always the same. Show an error
    without a frame of the app in full: it is a bug of windlass."""
    for one in (shown.__cause__, shown.__context__):
        if one is not None:
            _begin_with_the_app(one)
    frames = [frame for frame in shown.stack if not frame.filename.startswith(_IMPORTING)]
    is_ours = [frame.filename.startswith(_PACKAGE) for frame in frames]
    if not all(is_ours):
        shown.stack = traceback.StackSummary.from_list(frames[is_ours.index(False) :])
    elif issubclass(shown.exc_type or object, SyntaxError):
        # A file of the app with a syntax error has no frame; the error itself has the position.
        shown.stack = traceback.StackSummary()


if __name__ == "__main__":
    main(sys.argv[1:])

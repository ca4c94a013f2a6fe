"""A child: the process in which jobs run. Started by the supervisor, and never by hand.

1. Before any user code is imported: signals are left to the supervisor, the child dies with it, and
   a thread listens to what it says.
2. The app is loaded, its engine opened and its lifespan entered; what goes wrong is told to the
   supervisor.
3. The fetcher claims and reports in a thread of its own, plain functions run in threads, and
   coroutines on the event loop of the main thread, until the fetcher is done. One more thread watches
   over them.
4. Then the lifespan is left, and the process takes leave and ends, in a few seconds at most,
   whatever tasks have left behind: threads, background coroutines, a blocked event loop.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from logging import getLogger
from threading import Thread, Timer
from types import FrameType
from typing import NoReturn

import msgspec

import windlass
from windlass.app import Windlass
from windlass.app_loader import load_app, load_tasks
from windlass.core.ids import new_session
from windlass.dead_letter import AlertHook
from windlass.engine.contract import Engine, EngineOptions
from windlass.engine.url import absolute_url, open_engine
from windlass.errors import EngineUnavailable, IncludeFailed, WindlassError
from windlass.settings import Source, describe_unusual, find_overruled
from windlass.worker.child.app_report import declarations, idle_routes
from windlass.worker.child.assembly import assemble
from windlass.worker.child.event_loop import run_until
from windlass.worker.child.fetch_watchdog import FetchWatchdog
from windlass.worker.child.lifespan import HeldLifespan
from windlass.worker.child.loop_watchdog import LoopWatchdog
from windlass.worker.child.watchdog import Watchdog
from windlass.worker.fetch.fetcher import Fetcher
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.channel import (
    Alert,
    Cancel,
    Channel,
    Command,
    Disown,
    Drain,
    Draining,
    Failed,
    HandBack,
    Limited,
    Ready,
    Resting,
    SessionGone,
    SessionStarted,
    Start,
    SuspectsSeen,
    Wedged,
    join_pair,
)
from windlass.worker.ipc.session_info import add_settings, say_first
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeReceiver, join_wake_pair
from windlass.worker.logs.setup import configure_all, configure_early
from windlass.worker.maintenance.dead_letters import call_hooks
from windlass.worker.options import SWITCH_INTERVAL_S
from windlass.worker.run.interrupts import shield_engine

log = getLogger("windlass.worker")

#: The fetcher makes one call at a time, and jobs share the other one.
MOST_CALLS = 2
#: An engine that has not answered after so many seconds is told of.
SLOW_S = 1.0
#: How long a child that is to stop, and that no engine ever answered, waits for one, in seconds.
UNANSWERED_S = 0.5
#: How long it may take to leave the lifespan, in seconds.
LEAVE_S = 5.0
#: How long taking leave may take, in seconds: more than an app takes to close, and less than the
#: supervisor waits.
SHUTDOWN_S = 3.0
#: The exit code of a child that could not load the app; the supervisor was told why.
EXIT_FAILED = 1
#: The exit code of a child without a supervisor, which nobody will see.
EXIT_ORPHANED = 1
#: Where the files of windlass are.
_PACKAGE = os.path.dirname(os.path.abspath(windlass.__file__)) + os.sep
#: Where the import of Python is.
_IMPORTING = ("<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)
#: Of prctl(2).
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> NoReturn:
    control, table, wakes, supervisor = map(int, arguments)
    _leave_signals_to_supervisor()
    _die_with(supervisor)
    configure_early()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    Child(join_pair(control), table, join_wake_pair(wakes)).run()


class Child:
    """Owns the parts of a child, and speaks with the supervisor for them."""

    def __init__(self, channel: Channel[Command], table: int, wakes: WakeReceiver) -> None:
        self._channel = channel
        self._wakes = wakes
        self._fetcher: Fetcher | None = None
        self._alert_hooks: Sequence[AlertHook] = ()
        self._lifespan: HeldLifespan | None = None
        self._is_ending = False
        self._drains_early = False
        start = self._first_command()
        self._options = start.options
        self._introduction = start.introduction
        self._session = ""  # until the fetcher asks for one
        self._has_answered = False  # the engine, while the app was loaded
        self._queue_turns = QueueTurns(
            start.options.queues, start.options.labels, is_solo=start.is_solo
        )
        self._table = SlotTable.attach(table, start.slots)

    def _first_command(self) -> Start:
        """The supervisor begins with this one; a stop may come right behind it."""
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
            os._exit(EXIT_FAILED)  # threads that the app has started must not keep us
        run_until(loop.is_closed, loop)  # by a task: the fetcher ends this process otherwise
        os._exit(EXIT_FAILED)

    # ---------------------------------------------------------------------------------- loading

    def _load(self) -> tuple[Windlass, Engine]:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        # Before the app is imported, which may change the current folder.
        url = None if self._options.url is None else absolute_url(self._options.url)
        app = load_app(self._options.app)
        load_tasks(app)
        configure_all(app.settings.log_level, app.settings.log_format)
        for task in app.tasks.values():
            task.codec.resolve()  # a task that no call can reach is for a person to see now
        if url is not None:
            app.close()  # its module may have used the engine of its own url already
            # For the app too: what a task enqueues belongs where its worker claims.
            sources = {**app.settings.sources, "url": Source.OPTION}
            app.settings = msgspec.structs.replace(app.settings, url=url, sources=sources)
        app.wrap_engine(shield_engine)
        settings = app.settings
        options = EngineOptions(
            lease_ms=settings.lease_ms, dead_ttl_ms=settings.dead_ttl_ms, most_calls=MOST_CALLS
        )
        engine = open_engine(settings.url, options)
        # An engine that is away costs time only; one that refuses us is for a person to see.
        with _telling_slowness(engine), suppress(EngineUnavailable):
            engine.migrate()
            self._has_answered = True
        return app, engine

    def _tell_ready(self, app: Windlass) -> None:
        settings = app.settings
        self._alert_hooks = app.alert_hooks
        self._channel.send(
            Ready(
                url=settings.url,
                lease_ms=settings.lease_ms,
                shutdown_grace_ms=settings.shutdown_grace_ms,
                kill_after_ms=settings.kill_after_ms,
                dead_ttl_ms=settings.dead_ttl_ms,
                dead_alert=settings.dead_alert,
                dead_alert_growth=settings.dead_alert_growth,
                tasks=tuple(app.tasks),
                log_level=settings.log_level,
                log_format=settings.log_format,
                unusual=describe_unusual(settings),
                overruled=find_overruled(settings, os.environ),
                schedules=declarations(app),
                idle_routes=idle_routes(app),
                queues=tuple(sorted({task.queue for task in app.tasks.values()})),
                keys=settings.secret.names,
            )
        )

    # ---------------------------------------------------------------------------------- serving

    async def _serve(self, app: Windlass, engine: Engine) -> None:
        """Begin: from here on the loop, the fetcher and the runners go on by themselves."""
        self._farewell = [app.close, engine.shutdown, atexit._run_exitfuncs, _flush]
        lifespan = self._lifespan = HeldLifespan(app.lifespan, on_loss=self._lose_lifespan)
        state = await lifespan.enter()
        self._tell_ready(app)
        assembly = assemble(
            app,
            engine,
            self._queue_turns,
            self._table,
            self,
            state,
            self._tell_limited,
            self._wakes,
        )
        fetcher, slot_queue, limits = assembly.fetcher, assembly.slot_queue, assembly.limits
        self._limits = limits
        self._fetcher = fetcher
        if self._drains_early:
            fetcher.drain()
        settings = app.settings
        introduction = add_settings(
            self._introduction,
            settings.dead_alert,
            settings.dead_alert_growth,
            settings.secret.names,
        )

        def run_fetcher() -> None:
            if self._has_answered:  # else it may take long, and the fetcher has to tell of that
                say_first(engine, self._session, introduction)
            fetcher.run()

        thread = Thread(target=run_fetcher, name="fetcher", daemon=True)
        thread.start()
        fetch_watchdog = FetchWatchdog(thread, fetcher)
        Watchdog(
            slot_queue, limits, self._table, LoopWatchdog(), fetch_watchdog, self._tell_wedged
        ).start()

    def _tell_wedged(self, text: str) -> None:
        with suppress(OSError):  # nobody is there to hear it, and this process ends
            self._channel.send(Wedged(text))

    def _lose_lifespan(self) -> None:
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.drain()

    # ----------------------------------------------------------------------- asked by the fetcher

    def new_session(self) -> str:
        self._session = new_session(socket.gethostname(), os.getpid())
        self._channel.send(SessionStarted(self._session))
        return self._session

    def see_suspects(self) -> None:
        self._channel.send(SuspectsSeen())

    def rest(self, session: str, nonce: str | None) -> None:
        self._tell(Resting(session, nonce))

    def note_loss(self) -> None:
        self._limits.note_loss()

    def end(self) -> NoReturn:
        """Everything is reported. This is the fetcher's thread, because the main one may be blocked by
        what a task left on the event loop; an ordinary exit would wait for other leftovers."""
        self._is_ending = True
        self._fetcher = None  # from here on a hand-back has nothing to wait for
        with suppress(BaseException):  # whatever it is, it ends with the process
            if self._lifespan is not None:
                self._lifespan.leave(LEAVE_S)
        farewell = Thread(target=self._shut_down, name="farewell", daemon=True)
        try:
            farewell.start()
            farewell.join(SHUTDOWN_S)
        finally:
            os._exit(0)

    def _shut_down(self) -> None:
        for action in self._farewell:
            with suppress(BaseException):  # functions of the app, which end with the process
                action()

    def end_at_once(self) -> NoReturn:
        """What runs was handed back and is nobody's suspect."""
        self._table.vacate_all()
        os._exit(0)

    # -------------------------------------------------------------- listening to the supervisor

    def _listen(self) -> None:
        """Until the supervisor is gone; then so is this process."""
        try:
            while True:
                for command in self._channel.receive():
                    self._handle(command)
        except EOFError:
            os._exit(EXIT_ORPHANED)

    def _handle(self, command: Command) -> None:
        fetcher = self._fetcher
        match command:
            case HandBack() if fetcher is None:
                os._exit(0)  # nothing was claimed yet, or all is reported
            case Drain() if fetcher is None:
                self._drain_early()
            case Drain() if fetcher is not None:
                fetcher.drain()
                self._end_if_unanswered()
                self._tell(Draining())
            case Cancel(ids) if fetcher is not None:
                fetcher.cancel_waiting(ids)
                self._limits.cancel(ids)
            case Disown(id, token) if fetcher is not None:
                fetcher.disown(id, token)
            case Alert(alert):
                call_hooks(self._alert_hooks, alert)
            case HandBack() if fetcher is not None:
                fetcher.hand_back()
                self._end_if_unanswered()
            case SessionGone(session) if fetcher is not None:
                fetcher.lose_session(session)

    def _drain_early(self) -> None:
        """Nothing was claimed yet, or all is reported. Whoever takes leave goes on with that, and
        what was entered is left."""
        if self._is_ending:
            return
        if self._lifespan is None or not self._lifespan.is_held:
            os._exit(0)
        self._drains_early = True
        if self._fetcher is not None:  # it was made meanwhile, and perhaps before it could see this
            self._fetcher.drain()

    def _end_if_unanswered(self) -> None:
        """End soon, however long the call takes that is under way, if no engine ever answered. The
        fetcher was told to stop before this look at the answers: a claim that is answered later is
        not started, and goes back with its session."""
        if not self._table.answered_at():
            timer = Timer(UNANSWERED_S, self._end_unanswered)
            timer.daemon = True
            timer.start()

    def _end_unanswered(self) -> None:
        if not self._table.answered_at() and not self._is_ending:
            self.end()

    def _tell_limited(self) -> None:
        self._tell(Limited())

    def _tell(self, report: Draining | Limited | Resting) -> None:
        """When nobody is there to hear it, the next read tells."""
        with suppress(OSError):
            self._channel.send(report)


@contextmanager
def _telling_slowness(engine: Engine) -> Iterator[None]:
    """Until it answers nothing is claimed, and nothing else is logged."""
    timer = Timer(SLOW_S, _tell_slow, (engine.location,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell_slow(location: str) -> None:
    log.warning("the engine has not answered within %g s, and is waited for: %s", SLOW_S, location)


def _leave_signals_to_supervisor() -> None:
    """By a handler and not by ignoring them, which programs that a task starts would inherit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _pass)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # until now it was put off


def _pass(number: int, frame: FrameType | None) -> None:
    """The supervisor was told as well, and says what to do."""


def _die_with(supervisor: int) -> None:
    """Where the system can do it, be killed with the supervisor; elsewhere, and when it was gone
    before this call, the closed channel tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(EXIT_ORPHANED)


def _flush() -> None:
    """What the interpreter does at an ordinary exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _explain(error: BaseException) -> str:
    """Our own errors say what to do; of others the traceback is what helps."""
    if isinstance(error, IncludeFailed) and error.__cause__ is not None:
        return f"{_trace(error.__cause__)}\n{error}"
    return str(error) if isinstance(error, WindlassError) else _trace(error)


def _trace(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(error)
    _begin_with_the_app(shown)
    return "".join(shown.format())


def _begin_with_the_app(shown: traceback.TracebackException) -> None:
    """Without the way there, which is the same every time: our own frames and those of the import.
    What no frame of the app led to is a bug of ours, and is shown whole."""
    for one in (shown.__cause__, shown.__context__):
        if one is not None:
            _begin_with_the_app(one)
    frames = [frame for frame in shown.stack if not frame.filename.startswith(_IMPORTING)]
    is_ours = [frame.filename.startswith(_PACKAGE) for frame in frames]
    if not all(is_ours):
        shown.stack = traceback.StackSummary.from_list(frames[is_ours.index(False) :])
    elif issubclass(shown.exc_type or object, SyntaxError):
        # A file of the app that is no Python was never entered; the error itself says where it is.
        shown.stack = traceback.StackSummary()


if __name__ == "__main__":
    main(sys.argv[1:])

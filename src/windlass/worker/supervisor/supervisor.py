"""The supervisor: a lean process that owns the children and never imports user code.

1. It starts one child, which loads the app and reports the settings. If that fails, the worker ends
   with the traceback. Then the supervisor starts the other children.
2. It waits for signals, reports of children, deaths of children and timers in one reactor. The
   calls of the engine are made by heartbeat, maintenance and waiter, each in its own thread.
3. A child that dies is replaced at once, and its session is closed with its running jobs as
   suspects. Suspects, and jobs of tasks with `run_in="process"`, run alone in *solo* children,
   which start when there are jobs for them and end when there are none.
4. `retirement` replaces a child while the worker keeps running, `child_health` finds children that
   have reached a limit, and `hard_timeouts` ends runs that ignore a time-out or a cancellation.
5. On the first SIGTERM or SIGINT children drain. When the grace is over, or on a second signal,
   they hand back running jobs. The supervisor kills children that still live 5 s later. SIGUSR1
   does the same with a short grace.
6. Operators command a worker by its sessions: the heartbeat gets the command. A quiet worker claims
   nothing and its running jobs finish; children that start meanwhile are quiet too. A command to
   stop is like SIGTERM.
7. With `most_processes`, `autoscale` changes the number of children by demand.
"""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from logging import getLogger
from math import inf
from time import monotonic, time_ns

from windlass.core.alerts.rules import AlertEvent
from windlass.engine.contract import (
    Engine,
    EngineOptions,
    Outcome,
    Plan,
    Retried,
    SessionCommand,
    Waiter,
)
from windlass.engine.instrumented import instrument
from windlass.engine.url import open_engine
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.ipc.channel import (
    CallAlertHooks,
    ChildSessionStarted,
    Command,
    DrainChild,
    Draining,
    EndedByForce,
    Failed,
    HandBack,
    Limited,
    Ready,
    Report,
    Resting,
    RunsMeasured,
    SessionGone,
    SetQuiet,
    SuspectsSeen,
    Wedged,
)
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import LOOK
from windlass.worker.logs.events import LogEvent, listed
from windlass.worker.logs.setup import configure_early, configure_own
from windlass.worker.maintenance.demand import DemandWatch
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.maintenance.service import Closing
from windlass.worker.maintenance.session_commands import log_quiet
from windlass.worker.options import SWITCH_INTERVAL_S, WorkerOptions
from windlass.worker.supervisor.autoscale import Autoscaler
from windlass.worker.supervisor.child_health import ChildHealth, Recycling
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.engine_threads import EngineThreads
from windlass.worker.supervisor.hard_timeouts import Enforcement
from windlass.worker.supervisor.health_socket import WorkerStatus, answer_probes, describe_worker
from windlass.worker.supervisor.monitor import WorkerMonitor
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import KILL_S, Retirements
from windlass.worker.supervisor.scale_policy import SCALE_PERIODS, ScalePeriods
from windlass.worker.supervisor.startup_report import log_start, show_banner

log = getLogger("windlass.worker")

#: A signal that comes this soon after the first, in seconds, is a duplicate: programs such as
#: `timeout` signal a process and then its group.
ECHO_S = 0.25
#: How long closing the last sessions may take, in seconds.
CLOSE_S = 5.0
#: The same limit if the engine has never answered, when no child can have a claim.
UNANSWERED_S = 1.0
#: The most engine calls at a time. Maintenance and renewals of the waiter share one connection; the
#: heartbeat and the waiter have their own.
MOST_CALLS = 1
#: How long the waiter may take to end, in seconds.
WAITER_S = 1.0
#: How long jobs may take to end, in seconds, when a worker with newer code replaces this worker.
REPLACED_S = 2.0
#: After a child that lived for less than this, in seconds, the next start backs off.
SHORT_LIFE_S = 1.0
#: After several short lives the next child starts after this many seconds, doubled each time.
FIRST_RESPAWN_S = 0.1
MOST_RESPAWN_S = 5.0
#: How long a child that closed its channel may take to end, in seconds.
SILENT_S = 1.0
#: How often a worker in a burst checks whether it is done, in seconds.
BURST_S = 0.1
#: The most retiring children, for each configured process.
MOST_RETIRING = 2

#: The most forced ends that wait for a child that calls their hooks.
MOST_FORCED_ENDS = 1_000
#: The most alerts that wait for a child. Further ones drop the oldest.
MOST_ALERT_EVENTS = 100

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

#: `--reload` sends SIGUSR1, and waits to start the next worker.
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Supervisor:
    """The parent process of one worker. `run` returns the exit code."""

    def __init__(self, options: WorkerOptions, scale_periods: ScalePeriods = SCALE_PERIODS) -> None:
        self._options = options
        self._scale_periods = scale_periods
        self._started_ms = time_ns() // 1_000_000
        self._reactor = Reactor([*_STOPPING, signal.SIGCHLD])
        self._children: dict[int, ChildProcess] = {}
        self._retirements = Retirements(
            self._reactor,
            MOST_RETIRING * options.most_children,
            replace=lambda: self._start_later(is_solo=False),
            kill=self._kill,
        )
        self._child_health = ChildHealth(
            self._reactor,
            Recycling(options, self._retirements),
            living=lambda: [] if self._stops else self._living(),
        )
        # Set when the first child is ready:
        self._threads: EngineThreads | None = None
        self._plans: dict[bool, Plan] = {}  # of shared children, and of solo ones
        self._enforcement: Enforcement | None = None
        # Forced ends without a child to call their hooks:
        self._forced_ends: deque[EndedByForce] = deque(maxlen=MOST_FORCED_ENDS)
        #: Alerts for which no child has called the hooks.
        self._alert_events: deque[AlertEvent] = deque(maxlen=MOST_ALERT_EVENTS)
        self._respawns = 0  # children that will be started soon
        self._is_solo_coming = False
        self._short_lives = 0
        self._stops = 0
        self._is_quiet = False
        self._is_signalled = False  # a signal or a command has requested the stop
        self._stopped_at = 0.0
        self._is_handing_back = False
        self._exit_code = EXIT_OK
        self._location = ""
        self._measures = WorkerMeasures()
        self._monitor = WorkerMonitor(self._measures, is_up=lambda: self._status().is_answered)

    def _living(self) -> list[ChildProcess]:
        return list(self._children.values())

    def run(self) -> int:
        configure_early(self._options.log_level)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            metrics = self._open_metrics()
        except OSError as error:
            log.error(LogEvent.METRICS_UNSERVED, self._options.metrics, error.strerror or error)
            return EXIT_FAILED
        with metrics as url, self._reactor, answer_probes(self._reactor, self._status):
            self._reactor.on_signal(self._on_signal)
            log_start(self._options)
            if url is not None:
                log.info(LogEvent.METRICS_SERVED, url)
            try:
                self._start_child(is_solo=False)
                while self._children or (self._respawns and not self._stops):
                    self._reactor.wait()
            finally:
                self._kill_all()
            if self._threads is not None:
                maintenance = self._threads.maintenance
                self._threads.stop_relay(WAITER_S)
                self._threads.waiter.stop(WAITER_S)
                maintenance.stop(CLOSE_S if maintenance.answered_at else UNANSWERED_S)
                self._threads.heartbeat.stop(UNANSWERED_S)
        log.info(LogEvent.WORKER_STOPPED)
        return self._exit_code

    def _open_metrics(self) -> AbstractContextManager[str | None]:
        """Open the port of metrics, if the worker serves them."""
        if self._options.metrics is None:
            return nullcontext()
        from windlass.worker.supervisor.metrics_server import MetricsServer  # needs an extra

        return MetricsServer(self._options.metrics, self._monitor.collect)

    def _show_banner(self, engine: Engine, ready: Ready) -> None:
        """Log the start. A worker that a signal has stopped is not ready. A burst that has ended
        was ready."""
        is_ready = not self._is_signalled and (self._options.burst or not self._stops)
        show_banner(self._options, engine, ready, is_ready=is_ready)

    def _status(self) -> WorkerStatus:
        threads = self._threads
        answered_at = None if threads is None else threads.maintenance.answered_at
        return describe_worker(
            self._options, self._location, self._living(), answered_at, is_stopping=self._stops > 0
        )

    # --------------------------------------------------------------------------------- starting

    def _start_child(self, *, is_solo: bool) -> None:
        try:
            child = ChildProcess(self._options, self._started_ms, is_solo=is_solo)
        except OSError as error:  # no memory or no descriptors: retry later
            log.error(LogEvent.CHILD_NOT_STARTED, error)
            self._short_lives += 1
            self._start_later(is_solo=is_solo)
            return
        self._children[child.pid] = child
        self._monitor.note_start(child)
        self._reactor.watch(child.channel, partial(self._listen, child))
        child.on_unsent = partial(self._reactor.await_room, child.channel, child.flush)
        child.flush()  # the first message was sent before `on_unsent` was set
        if self._is_quiet:
            child.send(SetQuiet(True))

    def _start_later(self, *, is_solo: bool) -> None:
        """Start a child: at once, or after a back-off if several children ended early."""
        self._respawns += 1
        self._is_solo_coming |= is_solo
        wait_s = 0.0
        if self._short_lives > 1:
            wait_s = min(MOST_RESPAWN_S, FIRST_RESPAWN_S * 2 ** min(self._short_lives - 2, 10))
        self._reactor.after(wait_s, partial(self._restart_child, is_solo=is_solo))

    def _restart_child(self, *, is_solo: bool) -> None:
        self._respawns -= 1
        if is_solo:
            self._is_solo_coming = False
        if not self._stops:
            self._start_child(is_solo=is_solo)

    def _serve_alone(self) -> None:
        """Serve jobs that must run alone: wake idle solo children. If all are busy, start another
        one, up to the number of processes. A quiet worker leaves these jobs to others."""
        if self._is_quiet:
            return
        solo = [child for child in self._children.values() if child.is_solo]
        idle = [child for child in solo if not child.table.occupied()]
        for child in idle:
            child.wakes.send(LOOK)
        has_room = len(solo) < self._options.most_children and not idle
        if not self._stops and not self._is_solo_coming and has_room:
            self._start_later(is_solo=True)

    def _begin(self, ready: Ready) -> None:
        """Start the threads, with the settings that the first child has reported."""
        configure_own(ready.log_level, ready.log_format)
        options = EngineOptions(
            lease_ms=ready.lease_ms, dead_ttl_ms=ready.dead_ttl_ms, most_calls=MOST_CALLS
        )
        engine = self._open_engine(ready.url, options)
        self._retirements.grace_s = ready.shutdown_grace_ms / 1000
        queues, labels = self._options.queues, self._options.labels
        self._plans = {
            solo: QueueTurns(queues, labels, is_solo=solo).plan for solo in (False, True)
        }

        post = self._reactor.post
        threads = self._threads = EngineThreads(
            ready,
            engine,
            options,
            open_engine=self._open_engine,
            living=self._living,
            on_gone=lambda session: post(partial(self._report_gone, session)),
            on_cancel=lambda session, ids: post(partial(self._cancel, session, ids)),
            on_command=lambda command: post(partial(self._obey, command)),
            on_suspects=lambda: post(self._serve_alone),
            on_alert=lambda event: post(partial(self._call_alert_hooks, event)),
            measures=self._measures,
            on_answer=partial(self._show_banner, engine, ready),
            on_forced_end=lambda outcome: post(partial(self._note_forced_end, outcome)),
            suspects=self._plans[True],
        )
        self._enforcement = Enforcement(
            self._reactor,
            ready.kill_after_ms,
            self._living,
            self._retirements,
            finish=threads.maintenance.request,
            kill=self._kill,
        )
        self._location = engine.location
        if self._options.most_processes is not None:
            self._begin_scaling(engine, threads)
        threads.start()
        self._child_health.start()
        for _ in range(0 if self._stops else self._options.processes - 1):
            self._start_child(is_solo=False)
        if self._options.burst:
            self._end_burst()

    def _open_engine(self, url: str, options: EngineOptions) -> Engine:
        engine = open_engine(url, options)
        is_timed = self._options.metrics is not None
        return instrument(engine, self._monitor.call_times) if is_timed else engine

    def _begin_scaling(self, engine: Engine, threads: EngineThreads) -> None:
        scaler = Autoscaler(
            self._reactor,
            self._options,
            self._scale_periods,
            self._retirements,
            living=self._living,
            count_coming=lambda: self._respawns - self._is_solo_coming,
            start_child=lambda: self._start_later(is_solo=False),
            is_held=lambda: self._is_quiet or self._stops > 0,
        )
        watch = DemandWatch(
            engine,
            self._options,
            sessions=lambda: [child.session for child in self._living()],
            on_demand=lambda demand: self._reactor.post(partial(scaler.note, demand)),
        )
        scaler.start(threads.maintenance.add_duty(watch.look))

    # -------------------------------------------------------------------------------- listening

    def _listen(self, child: ChildProcess) -> bool:
        """Read once from the child; return whether the child may have sent more."""
        try:
            reports = child.channel.receive()
        except BlockingIOError:
            return False
        except EOFError:
            # The child is ending, or has closed the channel and cannot receive commands.
            self._reactor.unwatch(child.channel)
            self._reactor.after(SILENT_S, partial(self._kill, child))
            return False
        for report in reports:
            self._handle(child, report)
        return True

    def _handle(self, child: ChildProcess, report: Report) -> None:
        match report:
            case Ready():
                child.introduction = report.introduction
                if self._threads is None:
                    self._begin(report)
                elif not child.is_solo:  # a solo child is never a replacement
                    self._retirements.notice_ready()
            case Draining():
                child.has_heard = True
            case Limited():
                if self._enforcement is not None:
                    self._enforcement.watch(child)
            case Failed():
                child.failure = report.text
            case ChildSessionStarted():
                self._forget_wait(child)
                child.session = report.session
                if self._threads is not None:
                    self._threads.heartbeat.beat_soon()
                self._report_forced_ends()
                self._pass_alert_events()
            case Resting():
                self._wait_for(child, report)
            case SuspectsSeen():
                self._serve_alone()
            case RunsMeasured():
                self._measures.add(report.measures, report.stale)
            case Wedged():
                log.error(LogEvent.CHILD_WEDGED, child.pid, report.text)
                self._kill(child)

    def _wait_for(self, child: ChildProcess, report: Resting) -> None:
        if report.nonce is None:
            self._forget_wait(child)
        elif self._threads is not None and report.session == child.session:
            plan = self._plans[child.is_solo]
            self._threads.waiter.rest(child, Waiter(report.session, plan, report.nonce))

    def _forget_wait(self, child: ChildProcess) -> None:
        if self._threads is not None and child.session:
            self._threads.waiter.leave(child.session)

    def _report_gone(self, session: str) -> None:
        """Tell the child. Heartbeats may find the session expired again before the child has a new
        one: log it once."""
        for child in self._children.values():
            if child.session == session:
                if child.expired != session:
                    log.warning(LogEvent.SESSION_GONE, session, child.pid)
                child.expired = session
                child.send(SessionGone(session))

    def _call_alert_hooks(self, event: AlertEvent) -> None:
        """Let one child call the alert hooks: the supervisor does not load the app."""
        self._alert_events.append(event)
        self._pass_alert_events()

    def _pass_alert_events(self) -> None:
        """Send alerts to a child that stays. Without one they wait: alerts fire when children
        die."""
        for child in self._children.values():
            stays = not child.is_retiring or self._stops
            if child.session and stays and not child.was_killed:
                while self._alert_events:
                    child.send(CallAlertHooks(self._alert_events.popleft()))
                break

    def _note_forced_end(self, outcome: Outcome) -> None:
        retry_in_ms = outcome.delay_ms if isinstance(outcome, Retried) else None
        self._forced_ends.append(EndedByForce(outcome.id, retry_in_ms))
        self._report_forced_ends()

    def _report_forced_ends(self) -> None:
        """Let one child call the hooks of jobs that were ended by force. The child of such a job
        retires or is killed: wait for one that stays."""
        for child in self._children.values():
            if child.session and not child.is_retiring and not child.was_killed:
                while self._forced_ends:
                    child.send(self._forced_ends.popleft())
                break

    def _cancel(self, session: str, ids: tuple[str, ...]) -> None:
        for child in self._children.values():
            if child.session == session and self._enforcement is not None:
                self._enforcement.cancel(child, ids)

    # ----------------------------------------------------------------------------------- deaths

    def _on_signal(self, number: signal.Signals) -> None:
        if number in _STOPPING:
            self._stop(number)
        else:
            self._reap()

    def _reap(self) -> None:
        for child in [child for child in self._children.values() if child.has_ended()]:
            while self._listen(child):
                pass  # the last reports of the child
            self._reactor.unwatch(child.channel)
            self._forget_wait(child)
            child.close_channels()
            del self._children[child.pid]
            self._monitor.note_end(child)
            self._retirements.forget(child)
            self._handle_death(child)

    def _handle_death(self, child: ChildProcess) -> None:
        if self._threads is None:
            self._give_up(child)
            return
        suspects = child.suspects()
        if self._enforcement is not None:
            self._enforcement.report_retries(child)
        if child.session:
            self._threads.maintenance.request(Closing(child.session, suspects, child.cause()))
        if suspects or not self._ended_well(child):
            self._log_death(child, suspects)
        if child.is_retiring or child.is_leaving:
            return  # its replacement exists or is starting, or the worker needs fewer children
        self._count_life(child)
        if not self._stops and not child.is_solo:
            self._start_later(is_solo=False)  # a solo child starts when there are jobs for it

    def _give_up(self, child: ChildProcess) -> None:
        """Stop the worker: its first child was never ready. If the child reported an error, the app
        needs a fix; otherwise a restart may help."""
        if not self._stops:
            self._stops += 1
            self._exit_code = EXIT_FAILED if child.failure is None else EXIT_USAGE
            log.error(LogEvent.WORKER_FAILED, self._options.app, child.failure or child.cause())

    def _ended_well(self, child: ChildProcess) -> bool:
        """Return whether the end of a child was expected. Only solo children end without a command.
        Kills by the supervisor are already logged."""
        may_end = child.is_solo or child.is_retiring or self._stops > 0
        return child.was_killed or (may_end and child.cause() == "exit code 0")

    def _log_death(self, child: ChildProcess, suspects: tuple[str, ...]) -> None:
        if child.failure is not None:
            log.error(LogEvent.CHILD_FAILED, child.pid, child.failure)
        else:
            running = listed(suspects, "running: ", none="no job was known to be running")
            log.error(LogEvent.CHILD_DIED, child.pid, child.cause(), running)

    def _count_life(self, child: ChildProcess) -> None:
        was_short = child.failure is not None or monotonic() - child.started_at < SHORT_LIFE_S
        self._short_lives = self._short_lives + 1 if was_short else 0

    # --------------------------------------------------------------------------------- commands

    def _obey(self, command: SessionCommand) -> None:
        """Obey an operator. A burst that is quiet would never end, so it stops."""
        if self._stops:
            return
        is_quiet = command is SessionCommand.QUIET
        if command is SessionCommand.STOP or (is_quiet and self._options.burst):
            self._stop_on_command()
        else:
            self._is_quiet = is_quiet
            log_quiet(is_quiet)
            for child in self._children.values():
                child.send(SetQuiet(is_quiet or child.is_leaving))

    def _stop_on_command(self) -> None:
        self._stops += 1
        self._is_signalled = True
        self._stopped_at = monotonic()
        log.info(LogEvent.WORKER_STOP_COMMANDED, self._retirements.grace_s)
        self._drain(self._retirements.grace_s)

    # --------------------------------------------------------------------------------- stopping

    def _stop(self, number: signal.Signals) -> None:
        if self._stops and monotonic() - self._stopped_at < ECHO_S:
            return  # the same signal, sent to this process and to its group
        self._stops += 1
        self._is_signalled = True
        self._stopped_at = monotonic()
        if self._stops == 1:
            is_replaced = number is signal.SIGUSR1
            grace_s = self._retirements.grace_s
            grace_s = min(grace_s, REPLACED_S) if is_replaced else grace_s
            log.info(LogEvent.WORKER_STOPPING, number.name, grace_s)
            self._drain(grace_s)
        elif self._stops == 2:
            self._hand_back()

    def _drain(self, grace_s: float) -> None:
        if self._threads is not None:
            self._threads.heartbeat.note_stop()
        self._send_all(DrainChild())
        self._reactor.after(grace_s, self._hand_back)

    def _end_burst(self) -> None:
        """Stop when nothing is left to do; otherwise check again soon."""
        if self._stops or self._threads is None:
            return
        tables = [child.table for child in self._children.values()]
        settled_at, relay = self._threads.maintenance.settled_at(), self._threads.relay
        if relay is not None:
            settled_at = max(settled_at, relay.relayed_at)
        if not is_burst_done(tables, settled_at, inf if relay is None else relay.looked_at):
            for child in self._children.values():
                child.wakes.send(LOOK)
            self._reactor.after(BURST_S, self._end_burst)
            return
        log.info(LogEvent.WORKER_DONE)
        self._stops += 1
        self._stopped_at = monotonic()
        self._drain(self._retirements.grace_s)

    def _hand_back(self) -> None:
        if not self._is_handing_back:
            self._is_handing_back = True
            log.info(LogEvent.WORKER_HANDING_BACK)
            self._send_all(HandBack())
            self._reactor.after(KILL_S, self._kill_all)

    def _send_all(self, command: Command) -> None:
        for child in self._children.values():
            child.send(command)

    def _kill(self, child: ChildProcess) -> None:
        if self._children.get(child.pid) is child:
            log.warning(LogEvent.CHILD_KILLED, child.pid)
            child.kill()

    def _kill_all(self) -> None:
        for child in self._living():
            self._kill(child)


def is_burst_done(tables: Sequence[SlotTable], settled_at: float, looked_at: float = inf) -> bool:
    """Return whether nothing is left to do: all children were idle at one moment, jobs of dead
    children were released and those of an outbox relayed by then (`settled_at`), and each child has
    made one more empty claim since. One idle moment is not enough: a child may have been granted a
    job that another child enqueued, without a reply yet. The outbox was found empty after that
    moment (`looked_at`): jobs that ran before may have enqueued there. A child that never claimed
    is ignored, because it may be unable to start."""
    spans = [table.idle() for table in tables if table.newest_nonce.read()]
    if not spans or not all(since for since, _ in spans):
        return False
    idle_since = max(since for since, _ in spans)
    return max(settled_at, idle_since) < min(at for _, at in spans) and idle_since < looked_at

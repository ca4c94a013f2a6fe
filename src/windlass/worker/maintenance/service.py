"""The maintenance thread of a supervisor: all calls of the engine except heartbeats.

1. Report jobs that were ended by force, and close the sessions of children that died, so that
   their jobs start again at once.
2. At the start, end the sessions of workers that died on this machine (`lost_jobs`).
3. Tend the engine in bounded batches: reap expired sessions, purge expired jobs. Dead letters are
   logged before they are purged. If the engine has lost its data, log that, describe the sessions
   again and declare the schedules again. Log calls of suspended processes that the engine has
   ended.
4. Once, log the durability of the engine, and its problems.
5. Evaluate the rules of alerts (`alerts`), log when jobs were reclaimed from workers that stopped
   responding (`lost_jobs`), and note their sessions (`windlass.lost_sessions`).
6. Declare the schedules of the app, and fire due schedules (`schedules`).
7. Record the measures of runs in the history of the engine (`measures`), also those of runs that
   were ended by force, and once more at the end.

An engine that is away or frozen blocks this thread only: the main thread handles signals and the
deaths of children, and the heartbeat has its own thread. A call that fails is retried soon. A
session that cannot be closed expires after a lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from logging import getLogger
from threading import Event, Thread
from time import monotonic

import msgspec

from windlass.calls.redaction import CallRedactor
from windlass.core.durations import describe_ms
from windlass.core.failures import FailureText
from windlass.core.introduction import Introduction
from windlass.core.quantities import Count
from windlass.core.queues.labels import queue_of
from windlass.engine.contract import (
    Buried,
    Engine,
    Grade,
    JobRecord,
    Outcome,
    Tended,
    Verdict,
)
from windlass.lost_sessions import LossKind, SessionWatch, try_note_loss
from windlass.worker.logs.events import LogEvent, log_dead_letter
from windlass.worker.maintenance.alerts import AlertEvaluator
from windlass.worker.maintenance.dead_groups import DeadLabeller, ReleaseWatch
from windlass.worker.maintenance.dead_letters import sweep
from windlass.worker.maintenance.heartbeat import Contact, Heartbeat, Living
from windlass.worker.maintenance.lost_jobs import LossWatch, Predecessors
from windlass.worker.maintenance.measures import RECORD_S, HistoryRecorder, WorkerMeasures
from windlass.worker.maintenance.schedules import Scheduler
from windlass.worker.run.measures import POSITIONS, is_stored

log = getLogger("windlass.worker")

#: How long to wait before the next `tend`, in seconds: after a full batch (other callers want to
#: write too), and otherwise.
TEND_ON_S = 0.01
TEND_S = 5.0
NEVER = float("inf")
#: Findings about these subjects are logged even without a problem.
DURABILITY = ("durability", "persistence")


class Closing(msgspec.Struct, frozen=True):
    """A request to close the session of a process that is gone."""

    session: str
    suspects: tuple[str, ...]
    cause: str


class Duty:
    """A call that runs when due or requested. `action` returns the seconds until the next call.
    Other threads set only `is_asked`, never `due`, so that no thread overwrites a change of
    another."""

    def __init__(self, action: Callable[[], float], due: float) -> None:
        self.action = action
        self.due = due
        self.is_asked = False

    def is_wanted(self) -> bool:
        return self.is_asked or self.due <= monotonic()


class Maintenance:
    """For the children that `living` returns. The callbacks are called in its thread; `on_answer`
    is called at the first reply of the engine, `on_forced_end` with each accepted outcome of a job
    that was ended by force."""

    def __init__(
        self,
        engine: Engine,
        living: Callable[[], Sequence[Living]],
        on_suspects: Callable[[], None],
        heartbeat: Heartbeat,
        contact: Contact,
        scheduler: Scheduler,
        alerts: AlertEvaluator,
        redactor: CallRedactor,
        measures: WorkerMeasures,
        *,
        on_answer: Callable[[], None] | None = None,
        on_forced_end: Callable[[Outcome], None] | None = None,
        ends_engine: bool = True,
    ) -> None:
        self._engine = engine
        self._redactor = redactor
        self._heartbeat = heartbeat
        self._contact = contact
        self._measures = measures
        recorder = self._recorder = HistoryRecorder(engine, measures)
        self._on_suspects = on_suspects
        self._on_answer = on_answer
        self._on_forced_end = on_forced_end
        self._ends_engine = ends_engine
        self._requests: deque[Closing | Outcome] = deque()
        self._settled_at = 0.0
        self._wake = Event()
        self._is_stopping = False
        self._is_left = False  # `stop` no longer waits for the thread
        self._request_duty = Duty(self._send_requests, NEVER)
        # Declare first: firing pauses schedules that no worker has declared for a day.
        self._declaring = Duty(scheduler.declare, 0.0)
        losses = LossWatch(engine, lambda: [child.session for child in living()])
        self._alerts = alerts
        sessions = SessionWatch(engine)
        releases = ReleaseWatch(engine, lambda: [child.session for child in living()])
        labeller = DeadLabeller(engine)
        actions = (
            *(scheduler.look, self._tend, self._examine),
            *(losses.look, sessions.look, alerts.look),
            *(releases.look, labeller.look),
        )
        predecessors = Duty(Predecessors(engine).look, 0.0)
        others = (Duty(action, 0.0) for action in actions)
        self._recording = Duty(recorder.record, monotonic() + RECORD_S)
        self._duties = [
            self._request_duty, predecessors, self._declaring, *others, self._recording
        ]  # fmt: skip
        self._thread = Thread(target=self._run, name="maintenance", daemon=True)

    def add_duty(self, action: Callable[[], float]) -> Callable[[], None]:
        """Add a call that runs on request; return the function that requests it. Before `start`."""
        duty = Duty(action, NEVER)
        self._duties.append(duty)
        return partial(self._ask, duty)

    def start(self) -> None:
        self._thread.start()

    def request(self, request: Closing | Outcome) -> None:
        """Request to close a session, or to report an outcome. Requests are sent in order."""
        self._requests.append(request)
        self._ask(self._request_duty)

    @property
    def answered_at(self) -> float:
        """Return when the engine last answered, by the monotonic clock; 0 before the first
        answer."""
        return self._contact.answered_at

    def settled_at(self) -> float:
        """Return when the last request was done; infinite while requests wait."""
        return NEVER if self._requests else self._settled_at

    def _ask(self, duty: Duty) -> None:
        duty.is_asked = True
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """Send the last requests and measures within the time limit, then stop. Sessions that are
        not closed expire after a lease."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        left = sum(isinstance(request, Closing) for request in list(self._requests))
        if left:
            log.warning(LogEvent.UNCLOSED_SESSIONS, Count(left, "session"))
        if not self._recorder.is_settled:
            self._recorder.close()
        self._is_left = True
        self._wake.set()

    # -------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before `is_wanted`: otherwise a request could be lost
            for duty in self._duties:
                if duty.is_wanted():
                    self._perform(duty)
            if self._is_left or (self._is_stopping and self._has_nothing_left()):
                break
            self._wake.wait(max(0.0, min(duty.due for duty in self._duties) - monotonic()))
        if not self._is_left:
            self._alerts.stop()
        if self._ends_engine:
            self._engine.shutdown()

    def _has_nothing_left(self) -> bool:
        # Growth since the last report, perhaps by the last request, is reported at once. A report
        # that failed waits for its time: the engine is away.
        if self._measures.has_growth() and not self._recorder.has_reports:
            self._recording.due = 0.0
        return not self._requests and self._recorder.is_settled

    def _perform(self, duty: Duty) -> None:
        duty.is_asked = False  # before the action: a request during the action is a new one
        wait_s = self._contact.attempt(duty, duty.action)
        duty.due = monotonic() + wait_s

    # ------------------------------------------------------------------------------ the duties

    def _send_requests(self) -> float:
        """Send requests in order. Retry a failed request before the next request."""
        while self._requests:
            request = self._requests[0]
            if isinstance(request, Closing):
                self._close(request)
            else:
                self._finish(request)
            self._settled_at = monotonic()
            self._requests.popleft()
        return NEVER

    def _finish(self, outcome: Outcome) -> None:
        """Report an outcome. The engine rejects it if the job has ended by itself meanwhile. A
        repeat is either ours, after a lost reply, or the child has reported an end of the same
        kind: then the child counts the run."""
        [verdict] = self._engine.finish([outcome])
        if verdict is Verdict.STALE:
            return
        [record] = self._engine.get([outcome.id])
        if verdict is Verdict.REPEATED and not is_stored(outcome, record):
            return
        if record is not None:
            self._measures.add_run(
                queue_of(record.queue), record.task, POSITIONS[type(outcome)], None, _run_s(record)
            )
            if isinstance(outcome, Buried):
                text = FailureText.unpack(outcome.error)
                log_dead_letter(record.id, record.task, outcome.reason, text)
        if self._on_forced_end is not None:
            self._on_forced_end(outcome)

    def _close(self, closing: Closing) -> None:
        [info] = self._engine.infos([closing.session]) if closing.suspects else [None]
        closed = self._engine.close(closing.session, closing.suspects, closing.cause)
        if closed.crashed or closed.suspected:
            self._on_suspects()
            try_note_loss(
                self._engine,
                closing.session,
                LossKind.CRASHED,
                closing.cause,
                Introduction.unpack(info or b""),
                closing.suspects,
                job_count=closed.crashed + closed.suspected + closed.released,
                suspects=closing.suspects,
            )
        if closed.crashed or closed.suspected or closed.released:
            log.info(
                LogEvent.SESSION_CLOSED,
                closing.session,
                Count(closed.crashed, "job"),
                closed.suspected,
                closed.released,
            )

    def _tend(self) -> float:
        """Tend the engine. The call always writes, so that a read-only engine does not count as
        available."""
        tended = self._engine.tend(())
        is_first = not self._contact.answered_at
        self._contact.answered_at = monotonic()
        if is_first and self._on_answer is not None:
            self._on_answer()
        doomed = tended.doomed
        swept = sweep(self._engine, doomed, self._redactor) if doomed else Tended()
        for call in (*tended.ended_calls, *swept.ended_calls):
            duration = describe_ms(call.silent_ms // 1000 * 1000)
            log.warning(LogEvent.SUSPENDED_CALL_ENDED, call.client, duration)
        if tended.emptied or swept.emptied:
            self._recover_from_data_loss()
        return TEND_ON_S if tended.more else TEND_S

    def _recover_from_data_loss(self) -> None:
        log.error(LogEvent.ENGINE_EMPTIED, self._engine.location)
        self._heartbeat.introduce_again()
        self._ask(self._declaring)

    def _examine(self) -> float:
        for finding in self._engine.examine():
            if finding.grade is Grade.PROBLEM:
                log.warning(LogEvent.ENGINE_PROBLEM, finding.subject, finding.text)
            elif finding.subject in DURABILITY:
                log.info(LogEvent.ENGINE_DURABILITY, finding.text)
        return NEVER


def _run_s(record: JobRecord) -> float | None:
    """Return how long the run took that the newest entry of the history ended."""
    entry = record.failures[-1] if record.failures else None
    if entry is None or entry.started_ms is None:
        return None
    return max(0, entry.at_ms - entry.started_ms) / 1000

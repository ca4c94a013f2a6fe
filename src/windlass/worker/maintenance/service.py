"""What a supervisor says to the engine beside its beats, in one thread of its own.

1. Report jobs that were ended by force, and close the sessions of children that died, so that
   their jobs go on at once.
2. At the start, end the sessions of workers that died on this machine: `predecessors` says which.
3. Tend: reap silent sessions and purge what was kept long enough, a bite at a time; dead jobs
   only after it was written down what they were. If the engine has lost what was stored in it, say
   so, and tell it again who there is and which schedules.
4. Once, say what a job that was confirmed survives, and what is wrong with the place.
5. Alert when dead jobs pile up: `dead_watch` says when; and say when jobs were taken back from
   workers that fell silent: `loss_watch`.
6. Declare the schedules of the app, and fire those that are due: `timekeeping` says how.

An engine that is away or frozen holds up this thread and nothing else: signals and the deaths of
children are the main thread's, and beats are sent by the heartbeat. What fails is tried again soon;
a session that cannot be closed ends by itself after a lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from logging import getLogger
from threading import Event, Thread
from time import monotonic

import msgspec

from windlass.core.failures import FailureText
from windlass.core.plurals import Count
from windlass.engine.contract import Buried, Engine, Grade, Outcome, Verdict
from windlass.worker.logs.dead_letter import log_dead_letter
from windlass.worker.logs.outage import Contact
from windlass.worker.maintenance.dead_letters import DeadWatch, sweep
from windlass.worker.maintenance.heartbeat import Heartbeat, Living
from windlass.worker.maintenance.lost_jobs import LossWatch
from windlass.worker.maintenance.predecessors import Predecessors
from windlass.worker.maintenance.schedules import Scheduler

log = getLogger("windlass.worker")

#: How long to wait, in seconds, before the next bite of upkeep when the last one was full (others
#: want to write too), and when it was not.
TEND_ON_S = 0.01
TEND_S = 5.0
NEVER = float("inf")
#: What engines call that which is said in any case.
DURABILITY = ("durability", "persistence")


class Closing(msgspec.Struct, frozen=True):
    """The end of a session whose process is gone."""

    session: str
    suspects: tuple[str, ...]
    cause: str


class Duty:
    """Something to be done when it is due, or was asked for; `action` gives the seconds until the
    next time. Other threads ask, and leave `due` alone: so neither overwrites the other."""

    def __init__(self, action: Callable[[], float], due: float) -> None:
        self.action = action
        self.due = due
        self.is_asked = False

    def is_wanted(self) -> bool:
        return self.is_asked or self.due <= monotonic()


class Maintenance:
    """For the children that `living` gives. The callbacks are called in this thread, `on_answer`
    when the engine has answered for the first time."""

    def __init__(
        self,
        engine: Engine,
        living: Callable[[], Sequence[Living]],
        on_suspects: Callable[[], None],
        heartbeat: Heartbeat,
        contact: Contact,
        *,
        on_answer: Callable[[], None] | None = None,
        scheduler: Scheduler | None = None,
        dead_watch: DeadWatch | None = None,
        ends_engine: bool = True,
    ) -> None:
        self._engine = engine
        self._heartbeat = heartbeat
        self._contact = contact
        self._on_suspects = on_suspects
        self._on_answer = on_answer
        self._ends_engine = ends_engine
        self._requests: deque[Closing | Outcome] = deque()
        self._settled_at = 0.0
        self._wake = Event()
        self._is_stopping = False
        self._is_left = False  # nobody waits for its end any more
        self._request_duty = Duty(self._send_requests, NEVER)
        # What was declared nowhere for a day is paused: declare first.
        self._declaring = Duty(scheduler.declare if scheduler else _never, 0.0)
        losses = LossWatch(engine, lambda: [child.session for child in living()])
        actions: tuple[Callable[[], float], ...]
        actions = (self._tend, self._examine, losses.look)
        if scheduler is not None:
            actions = (scheduler.look, *actions)
        if dead_watch is not None:
            actions = (*actions, dead_watch.look)
        others = (Duty(action, 0.0) for action in actions)
        predecessors = Duty(Predecessors(engine).look, 0.0)
        self._duties = [self._request_duty, predecessors, self._declaring, *others]
        self._thread = Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, closing: Closing) -> None:
        """Close a session as soon as possible."""
        self._send(closing)

    def finish(self, outcome: Outcome) -> None:
        """Report an outcome as soon as possible, and before any session that is closed later."""
        self._send(outcome)

    @property
    def answered_at(self) -> float:
        """When the engine answered last, by the monotonic clock; 0 before the first answer."""
        return self._contact.answered_at

    def settled_at(self) -> float:
        """When the last errand was done; as long as there are some, never."""
        return NEVER if self._requests else self._settled_at

    def _send(self, request: Closing | Outcome) -> None:
        self._requests.append(request)
        self._ask(self._request_duty)

    def _ask(self, duty: Duty) -> None:
        duty.is_asked = True
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """Let the last errands be run, if that is possible in time. What is left of them is not
        tried for ever: sessions end by themselves after a lease."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        left = sum(isinstance(request, Closing) for request in list(self._requests))
        if left:
            log.warning(
                "%s could not be closed: the jobs that they hold, and those that have ended and "
                "could not be reported, run again when the lease is over",
                Count(left, "session"),
            )
        self._is_left = True
        self._wake.set()

    # -------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before the look at what was asked for, never after it
            for duty in self._duties:
                if duty.is_wanted():
                    self._perform(duty)
            if self._is_left or (self._is_stopping and not self._requests):
                break
            self._wake.wait(max(0.0, min(duty.due for duty in self._duties) - monotonic()))
        if self._ends_engine:
            self._engine.shutdown()

    def _perform(self, duty: Duty) -> None:
        duty.is_asked = False  # before the action: a request that comes meanwhile is the next one
        wait_s = self._contact.attempt(duty, duty.action)
        duty.due = monotonic() + wait_s

    # ------------------------------------------------------------------------------ the duties

    def _send_requests(self) -> float:
        """In their order; one that fails is tried again before the next."""
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
        """Refused when it ended by itself after all."""
        [verdict] = self._engine.finish([outcome])
        if verdict is Verdict.OK and isinstance(outcome, Buried):
            [record] = self._engine.get([outcome.id])
            if record is not None:
                text = FailureText.unpack(outcome.error)
                log_dead_letter(record.id, record.task, outcome.reason, text)

    def _close(self, closing: Closing) -> None:
        closed = self._engine.close(closing.session, closing.suspects, closing.cause)
        if closed.crashed or closed.suspected:
            self._on_suspects()
        if closed.crashed or closed.suspected or closed.released:
            log.info(
                "session %s closed: %s charged a crash, %d to run alone, %d given back",
                closing.session,
                Count(closed.crashed, "job"),
                closed.suspected,
                closed.released,
            )

    def _tend(self) -> float:
        """It writes, on every engine: an engine that can only be read from has not answered."""
        tended = self._engine.tend(())
        is_first = not self._contact.answered_at
        self._contact.answered_at = monotonic()
        if is_first and self._on_answer is not None:
            self._on_answer()
        swept = sweep(self._engine, tended.doomed) if tended.doomed else tended
        if tended.emptied or swept.emptied:
            self._recover_from_data_loss()
        return TEND_ON_S if tended.more else TEND_S

    def _recover_from_data_loss(self) -> None:
        log.error(
            "the engine has come back without its data: the jobs that were in %s are gone; see how "
            "it keeps them with windlass doctor",
            self._engine.location,
        )
        self._heartbeat.introduce_again()
        self._ask(self._declaring)

    def _examine(self) -> float:
        for finding in self._engine.examine():
            if finding.grade is Grade.PROBLEM:
                log.warning("a problem of the engine, %s: %s", finding.subject, finding.text)
            elif finding.subject in DURABILITY:
                log.info("how the engine keeps jobs: %s", finding.text)
        return NEVER


def _never() -> float:
    return NEVER

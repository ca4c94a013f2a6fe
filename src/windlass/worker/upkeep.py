"""What a supervisor says to the engine, in one thread of its own.

1. Report jobs that were ended by force, and close the sessions of children that died, so that
   their jobs go on at once.
2. Beat for the children that live, every third of a lease; every third beat, and the first one of
   a session, tells who they are, and every third one the nonces too.
3. Tend: reap silent sessions and purge what was kept long enough, a bite at a time; dead jobs
   only after it was written down what they were. If the engine has lost what was stored in it, say
   so, and tell it again who there is and which schedules.
4. Once, say what a job that was confirmed survives, and what is wrong with the place.
5. Alert when dead jobs pile up: `dead_watch` says when; and say when jobs were taken back from
   workers that fell silent: `loss_watch`.
6. Declare the schedules of the app, and fire those that are due: `timekeeping` says how.

An engine that is away or frozen holds up this thread and nothing else: signals and the deaths of
children are the main thread's. What fails is tried again soon; a session that cannot be closed ends
by itself after a lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from logging import getLogger
from random import uniform
from threading import Event, Thread
from time import monotonic
from typing import Protocol

import msgspec

from windlass.core.counting import Count
from windlass.core.failure import FailureText
from windlass.engine.contract import Beat, Buried, Engine, Grade, Outcome, Verdict
from windlass.errors import EngineError
from windlass.worker.burial import tell_burial
from windlass.worker.dead_watch import DeadWatch, sweep
from windlass.worker.loss_watch import LossWatch
from windlass.worker.slots import SlotTable
from windlass.worker.timekeeping import Timekeeper

log = getLogger("windlass.worker")

#: Beats in one lease.
BEATS = 3
#: Every so many beats tell which nonces are known.
TELLING = 3
#: The longest wait, in seconds, before a call that failed is tried again.
AGAIN_S = 1.0
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


class Living(Protocol):
    """Somebody to beat for."""

    session: str  # empty as long as there is none
    table: SlotTable
    introduction: bytes
    introduced: str  # the session that the engine knows it by

    def is_running(self) -> bool: ...


class Duty:
    """Something to be done when it is due, or was asked for; `action` gives the seconds until the
    next time. Other threads ask, and leave `due` alone: so neither overwrites the other."""

    def __init__(self, action: Callable[[], float], due: float) -> None:
        self.action = action
        self.due = due
        self.is_asked = False

    def is_wanted(self) -> bool:
        return self.is_asked or self.due <= monotonic()


class Upkeep:
    """For the children; `living` gives those to beat for. The callbacks are called in this thread,
    `on_answer` when the engine has answered for the first time."""

    def __init__(
        self,
        engine: Engine,
        lease_ms: int,
        living: Callable[[], Sequence[Living]],
        on_gone: Callable[[str], None],
        on_cancel: Callable[[str, tuple[str, ...]], None],
        on_suspects: Callable[[], None],
        *,
        on_answer: Callable[[], None] | None = None,
        timekeeper: Timekeeper | None = None,
        dead_watch: DeadWatch | None = None,
        ends_engine: bool = True,
    ) -> None:
        self._engine = engine
        self._lease_s = lease_ms / 1000
        self._living = living
        self._on_gone = on_gone
        self._on_cancel = on_cancel
        self._on_suspects = on_suspects
        self._on_answer = on_answer
        self._ends_engine = ends_engine
        self._errands: deque[Closing | Outcome] = deque()
        self._settled_at = 0.0
        self._beats = count(1)
        self._wake = Event()
        self._is_stopping = False
        self._is_left = False  # nobody waits for its end any more
        self._failed: set[Duty] = set()  # a read may succeed while no write does
        self._has_told_away = False
        self.answered_at = 0.0  # when the engine did, by the monotonic clock
        self._errand = Duty(self._run_errands, NEVER)
        self._beating = Duty(self._beat, 0.0)
        # What was declared nowhere for a day is paused: declare first.
        self._declaring = Duty(timekeeper.declare if timekeeper else _never, 0.0)
        losses = LossWatch(engine, lambda: [child.session for child in living()])
        actions: tuple[Callable[[], float], ...]
        actions = (self._tend, self._examine, losses.look)
        if timekeeper is not None:
            actions = (timekeeper.look, *actions)
        if dead_watch is not None:
            actions = (*actions, dead_watch.look)
        others = (Duty(action, 0.0) for action in actions)
        self._duties = [self._errand, self._beating, self._declaring, *others]
        self._thread = Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, closing: Closing) -> None:
        """Close a session as soon as possible."""
        self._send(closing)

    def finish(self, outcome: Outcome) -> None:
        """Report an outcome as soon as possible, and before any session that is closed later."""
        self._send(outcome)

    def settled_at(self) -> float:
        """When the last errand was done; as long as there are some, never."""
        return NEVER if self._errands else self._settled_at

    def _send(self, errand: Closing | Outcome) -> None:
        self._errands.append(errand)
        self._ask(self._errand)

    def beat_soon(self) -> None:
        """There is a new session, which nobody has heard of."""
        self._ask(self._beating)

    def _ask(self, duty: Duty) -> None:
        duty.is_asked = True
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """Let the last errands be run, if that is possible in time. What is left of them is not
        tried for ever: sessions end by themselves after a lease."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        left = sum(isinstance(errand, Closing) for errand in list(self._errands))
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
            if self._is_left or (self._is_stopping and not self._errands):
                break
            self._wake.wait(max(0.0, min(duty.due for duty in self._duties) - monotonic()))
        if self._ends_engine:
            self._engine.shutdown()

    def _perform(self, duty: Duty) -> None:
        duty.is_asked = False  # before the action: a request that comes meanwhile is the next one
        try:
            wait_s = duty.action()
            self._note_back(duty)
        except EngineError as error:
            wait_s = uniform(0.2, AGAIN_S)
            self._note_away(duty, error)
        except Exception:
            wait_s = uniform(0.2, AGAIN_S)
            log.exception("the upkeep of the worker failed and is tried again")
        duty.due = monotonic() + wait_s

    def _note_away(self, duty: Duty, error: EngineError) -> None:
        if self.answered_at and not self._has_told_away:
            log.warning("the supervisor cannot reach the engine, and tries on: %s", error)
            self._has_told_away = True
        elif not self.answered_at and not self._failed:
            log.warning("waiting for the engine, and ready when it answers: %s", error)
        self._failed.add(duty)

    def _note_back(self, duty: Duty) -> None:
        """Only when everything that failed has succeeded."""
        self._failed.discard(duty)
        if self._has_told_away and not self._failed:
            log.warning("the supervisor reaches the engine again: %s", self._engine.location)
            self._has_told_away = False

    # ------------------------------------------------------------------------------ the duties

    def _run_errands(self) -> float:
        """In their order; one that fails is tried again before the next."""
        while self._errands:
            errand = self._errands[0]
            if isinstance(errand, Closing):
                self._close(errand)
            else:
                self._finish(errand)
            self._settled_at = monotonic()
            self._errands.popleft()
        return NEVER

    def _finish(self, outcome: Outcome) -> None:
        """Refused when it ended by itself after all."""
        [verdict] = self._engine.finish([outcome])
        if verdict is Verdict.OK and isinstance(outcome, Buried):
            [record] = self._engine.get([outcome.id])
            if record is not None:
                text = FailureText.unpack(outcome.error)
                tell_burial(record.id, record.task, outcome.reason, text)

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

    def _beat(self) -> float:
        children = [child for child in self._living() if child.session and child.is_running()]
        tells_nonces = next(self._beats) % TELLING == 0
        sent_at = monotonic()
        pulses = self._engine.beat([_beat_of(child, tells_nonces) for child in children])
        for child, pulse in zip(children, pulses, strict=True):
            child.introduced = pulse.session
            if pulse.alive:
                child.table.confirm_beat(sent_at)
            else:
                self._on_gone(pulse.session)
            if pulse.cancel:
                self._on_cancel(pulse.session, pulse.cancel)
        return self._lease_s / BEATS

    def _tend(self) -> float:
        """It writes, on every engine: an engine that can only be read from has not answered."""
        tended = self._engine.tend(())
        is_first = not self.answered_at
        self.answered_at = monotonic()
        if is_first and self._on_answer is not None:
            self._on_answer()
        swept = sweep(self._engine, tended.doomed) if tended.doomed else tended
        if tended.emptied or swept.emptied:
            self._begin_anew()
        return TEND_ON_S if tended.more else TEND_S

    def _begin_anew(self) -> None:
        log.error(
            "the engine has come back without its data: the jobs that were in %s are gone; see how "
            "it keeps them with windlass doctor",
            self._engine.location,
        )
        for child in self._living():
            child.introduced = ""
        self._ask(self._beating)
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


def _beat_of(child: Living, tells_nonces: bool) -> Beat:
    session = child.session
    info = child.introduction if tells_nonces or child.introduced != session else b""
    if not tells_nonces:
        return Beat(session=session, info=info)
    # The newest is read first: a nonce that is announced meanwhile is later than it, and is then
    # none of this beat's business.
    newest = "".join(child.table.newest_nonce.read())
    nonces = tuple(child.table.nonces.read())
    return Beat(session=session, nonces=nonces, newest=newest, info=info)

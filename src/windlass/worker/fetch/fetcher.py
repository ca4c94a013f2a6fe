"""The fetcher of a child: one thread that reports outcomes and claims jobs.

Each round is one round trip to the engine, `turn`:

1. Run commands of the supervisor: drain, be quiet, hand back, replace an expired session.
2. Release claims that have waited for a slot for too long.
3. Collect the outcomes that runners reported, and compute the room for new claims.
4. Make the call, and repeat the same call until its reply is known.
5. Settle the call: log rejected outcomes, forget ended nonces, count accepted outcomes and pass
   them to hooks, queue the new claims.
6. With nothing to report and nothing to claim, rest until there is.

The fetcher never forgets a call with an unknown reply: it repeats the call with the same nonce,
which is idempotent, or releases its claims. After an unexpected error the fetcher logs a traceback,
reports the outcomes of the call one by one, releases its claims, and starts the next round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from logging import getLogger
from math import inf
from threading import Event
from time import monotonic, time
from typing import Any, NoReturn, Protocol

from msgspec.structs import replace

from windlass.core.quantities import Count
from windlass.engine.contract import (
    Batch,
    Beat,
    Claim,
    Engine,
    Outcome,
    Released,
    Turn,
    Verdict,
)
from windlass.errors import EngineError, PayloadTooLarge
from windlass.task import Task
from windlass.worker.fetch.idle_wait import IdleWait
from windlass.worker.fetch.mailbox import Mailbox
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.fetch.queue_turns import QueueTurns
from windlass.worker.fetch.round_trip import (
    LEAVE_S,
    Adoption,
    Backoff,
    Releaser,
    RoundTrip,
    log_refused,
)
from windlass.worker.ipc.channel import RunsMeasured
from windlass.worker.ipc.wake_socket import WakeReceiver
from windlass.worker.logs.events import LogEvent, Notices
from windlass.worker.run.hooks import HookThread
from windlass.worker.run.measures import RunMeasures
from windlass.worker.run.pipeline import unknown_task
from windlass.worker.run.slot_queue import SlotQueue
from windlass.worker.run.timeouts import Limits
from windlass.worker.run.transactions import Transactions

log = getLogger("windlass.worker")

#: How often the loop of an idle child runs, in seconds, without a call of the engine.
REST_S = 1.0
#: After more than this many empty claims in a row, the child sleeps `PAUSE_S` seconds before the
#: next wait, so that no fault makes the child spin.
MOST_IN_A_ROW = 3
PAUSE_S = 0.05
#: Jobs per hand-off. Few, because a signal may stop the child while it waits.
HANDED = 1
#: The most outcomes or claims of one round trip. Runners work on earlier claims meanwhile.
MAX_TURN = 400
#: When no job ends for this long, in seconds, the fetcher wakes runners for all free slots.
PRESS_S = 0.002
#: How long the fetcher sleeps after a hand-off, in seconds: the job needs the interpreter.
BEGIN_S = 0.0005
#: A claim that has waited for a slot for this long, in seconds, is released.
MAX_QUEUED_S = 0.25
#: After such a release the child claims nothing for this long, in seconds, so that a free worker
#: claims the job first.
CLAIM_PAUSE_S = 0.25
#: A solo child ends after this many seconds without a job.
SOLO_IDLE_S = 10.0
#: The supervisor gets a report of waiting suspects at most this often, in seconds.
SUSPECTS_S = 1.0


class Owner(Protocol):
    """The methods of a child that the fetcher calls."""

    def new_session(self) -> str:
        """Start a session, and return its id. The supervisor keeps it alive."""

    def see_suspects(self) -> None:
        """Report waiting jobs that must run alone."""

    def rest(self, session: str, nonce: str | None) -> None:
        """Report an idle child, or a busy child if the nonce is None. A put may claim for an idle
        child under a nonce that is not empty."""

    def report_measures(self, measured: RunsMeasured) -> None:
        """Report the growth of the measures."""

    def end(self) -> None:
        """End this process after the last report."""

    def end_at_once(self) -> NoReturn:
        """End this process at once, also while jobs run."""


class FetcherDrained(Exception):
    """End the loop: nothing is left to report."""


class Fetcher:
    """Claim jobs and report outcomes. Other threads may call the methods above `run`."""

    def __init__(
        self,
        engine: Engine,
        queue_turns: QueueTurns,
        slot_queue: SlotQueue,
        limits: Limits,
        tasks: Mapping[str, Task[..., Any]],
        owner: Owner,
        wakes: WakeReceiver,
        hooks: HookThread | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        self._engine = engine
        self._queue_turns = queue_turns
        self._is_solo = queue_turns.plan.suspects
        self._hooks = hooks
        self._transactions = transactions
        self._slot_queue = slot_queue
        self._limits = limits
        self._lease = slot_queue.lease
        table = self._table = slot_queue.lease.table
        nonces = self._nonces = Nonces(table)
        self._owner = owner
        self.session = owner.new_session()
        mailbox = self._mailbox = Mailbox()
        self.report, self.report_progress = mailbox.report, mailbox.report_progress
        self._adoption = Adoption(engine, tasks)
        self.leave_task = self._adoption.leave
        self._tasks = tasks
        self._notices = Notices()
        self._has_sent_away = False  # has released jobs that must run alone
        self.rounds = 0  # grows while the fetcher makes progress, also during an outage
        self._handing_back = Event()  # set to end a back-off early
        self._leave_by = inf
        measures = self.measures = RunMeasures(owner.report_measures)
        self._releaser = Releaser(engine, nonces, mailbox, measures)
        self._idle_wait = IdleWait(
            engine, table, nonces, wakes, lambda nonce: owner.rest(self.session, nonce)
        )
        # Used by the fetcher's thread only.
        self._unsettled: RoundTrip | None = None
        self._empty_claims = 0  # in a row
        self._last_empty_at = 0.0
        self._is_draining = False
        self._is_quiet = False
        self._may_claim = True
        self._has_more = False  # the engine has more jobs ready
        self._claim_again_at = 0.0
        self._last_claim_at = monotonic()
        self._claim_sent_at = 0.0
        self._idle_since = 0.0
        self._last_suspects_at = 0.0
        self._disowned: set[tuple[str, str]] = set()

    # ----------------------------------------------------------------------- for other threads

    def drain(self) -> None:
        """Stop claiming, and end when all claimed jobs are reported."""
        self._mailbox.command(self._begin_drain)

    def set_quiet(self, is_quiet: bool) -> None:
        """Stop claiming, and finish running jobs; or claim again."""
        self._mailbox.command(lambda: self._set_quiet(is_quiet))

    def hand_back(self) -> None:
        """Hand back all claimed jobs, and end the process."""
        self._leave_by = monotonic() + LEAVE_S
        self._handing_back.set()
        self._mailbox.command(self._give_back_all)

    def cancel(self, ids: Collection[str]) -> None:
        """Interrupt these jobs if they run. Otherwise release their claims, which ends the jobs as
        cancelled."""
        for claim in self._slot_queue.take_out(ids):
            self.report(Released(id=claim.id, token=claim.token, started=False))
        self._limits.cancel(ids)

    def disown(self, id: str, token: str) -> None:
        """Ignore the outcome of a running job that the supervisor has taken from this child."""
        self._mailbox.command(lambda: self._disown(id, token))

    def lose_session(self, session: str) -> None:
        """Replace a session that the engine has declared dead."""
        self._mailbox.command(lambda: self._renew(session))

    # -------------------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Run rounds until drained. No error ends the loop."""
        trouble = Backoff(0.1, 5.0)
        while True:
            try:
                self._round()
                trouble.reset()
            except FetcherDrained:
                break
            except Exception:
                log.exception(LogEvent.PUMP_FAILED, self.session)
                self._recover()
                self._handing_back.wait(trouble.next_s())
        self.measures.send()
        self._owner.end()

    def _round(self) -> None:
        self.rounds += 1
        self._mailbox.run_commands()
        self.measures.send_if_due()
        self._release_overdue_claims()
        room = self._find_room()
        if self._idle_wait.nonce and not room:
            self._call_off()
        outcomes = self._collect(MAX_TURN)
        if outcomes or (room and self._may_claim):
            self._turn(outcomes, room if self._may_claim or not self._idle_wait.nonce else 0)
        elif self._is_done():
            self._call_off()
            raise FetcherDrained
        else:
            self._rest(room)

    def _release_overdue_claims(self) -> None:
        """Release claims that waited too long, because slow jobs fill the slots or block the event
        loop."""
        claims = self._slot_queue.take_back(monotonic() - MAX_QUEUED_S)
        if claims:
            self._claim_again_at = monotonic() + CLAIM_PAUSE_S
            self._release(claims)

    def _find_room(self) -> int:
        """Return the number of claims that could start now, or very soon."""
        if self._refuses_claims() or not self._nonces.left():
            return 0
        if monotonic() < self._claim_again_at:
            return 0
        return max(0, min(MAX_TURN, self._slot_queue.room(is_ahead=not self._is_solo)))

    def _collect(self, most: float) -> list[Outcome]:
        outcomes = self._without_committed(self._mailbox.collect(most))
        if not self._disowned:
            return outcomes
        dropped = [one for one in outcomes if self._is_disowned(one)]
        self.measures.forget(dropped)
        if self._hooks is not None:
            self._hooks.notes.forget(dropped)
        return [one for one in outcomes if not self._is_disowned(one)]

    def _without_committed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Settle the ends that jobs committed in their own transactions; return the others."""
        transactions = self._transactions
        committed = [] if transactions is None else transactions.take_committed(outcomes)
        if transactions is None or not committed:
            return outcomes
        self._note_verdicts(committed, [Verdict.OK] * len(committed))
        transactions.announce(committed)
        settled = set(map(id, committed))
        return [outcome for outcome in outcomes if id(outcome) not in settled]

    def _is_disowned(self, one: Outcome | Claim) -> bool:
        return (one.id, one.token) in self._disowned

    # ---------------------------------------------------------------------------- one round trip

    def _turn(self, outcomes: list[Outcome], room: int) -> None:
        call = RoundTrip(self.session, outcomes)
        self._unsettled = call  # the only reference to the outcomes
        if room:
            self._adopt()
            call = self._claim(outcomes, room)
            # A repeat may return claims of the first try, so the lease counts from the first try.
            self._claim_sent_at = monotonic()
        turn, call = self._repeat(call)
        self._unsettled = None
        self._settle(call, turn)

    def _claim(self, outcomes: list[Outcome], room: int) -> RoundTrip:
        """Build a claim. If the waiter has a nonce of this child, use that nonce: a put may have
        claimed under it already."""
        plan, given = self._queue_turns.plan_for(room), self._idle_wait.nonce
        nonce = given or self._nonces.announce()
        call = RoundTrip(self.session, outcomes, nonce, room, plan, is_last=bool(given))
        self._unsettled = call  # before the wait drops the other reference to the nonce
        if given:
            self._idle_wait.take_nonce()
        return call

    def _adopt(self) -> None:
        """Adopt jobs right before a claim, so that this claim finds them first."""
        try:
            if not self._is_solo:
                self._adoption.ask()
        except EngineError:
            return  # the claim that follows reports the outage

    def _repeat(self, call: RoundTrip) -> tuple[Turn, RoundTrip]:
        """Repeat the call until its reply is known."""
        backoff = Backoff(0.05, 2.0)
        is_too_large = False
        while True:
            self.rounds += 1
            try:
                if self._releaser.is_away:
                    call = self._unsettled = self._come_back(call)
                if is_too_large:
                    call = self._unsettled = self._report_each(call)
                    is_too_large = False
                turn = self._send(call)
            except PayloadTooLarge:
                is_too_large = True
            except EngineError as error:
                self._releaser.note_away(error)
                self._leave_if_drained(call)
                if self._handing_back.wait(backoff.next_s()):
                    self._give_back_all()
            else:
                self._releaser.note_back()
                self._table.note_answer(monotonic())
                return turn, call

    def _report_each(self, call: RoundTrip) -> RoundTrip:
        """Report the outcomes one by one, because one of them is too large for the engine."""
        outcomes, verdicts = self._releaser.report_each(call.outcomes)
        self._note_verdicts(outcomes, verdicts)
        return replace(call, outcomes=[])

    def _leave_if_drained(self, call: RoundTrip) -> None:
        """End a draining fetcher although the reply is unknown, if no outcome and no job is left.
        Jobs that the call may have claimed have not started. If their release fails, closing the
        session releases them."""
        self._mailbox.run_commands()
        has_outcomes = call.outcomes or self._mailbox.outcomes
        if self._is_draining and not has_outcomes and not self._slot_queue.in_hand():
            if call.room:
                self._releaser.leave(call)
            raise FetcherDrained

    def _send(self, call: RoundTrip) -> Turn:
        if not call.room:
            return Turn(verdicts=tuple(self._engine.finish(call.outcomes)), batch=Batch())
        turn = self._engine.turn(
            call.session, call.outcomes, call.nonce, call.plan, call.room, is_last=call.is_last
        )
        if turn.batch.claims:
            self._lease.confirm(self._claim_sent_at)
        return turn

    def _come_back(self, call: RoundTrip) -> RoundTrip:
        """Send a heartbeat before the first claim after an outage: the engine gives all workers
        time to do so before it reaps sessions. If the session is gone or the child is draining,
        only report."""
        [pulse] = self._engine.beat([Beat(session=self.session)])
        if not pulse.alive:
            self._renew(pulse.session)
        elif call.room and (self._mailbox.commands or self._refuses_claims()):
            self._engine.release(call.session, call.nonce)
        elif call.session == self.session:
            return call
        self._nonces.forget(call.nonce)
        return RoundTrip(self.session, call.outcomes)

    # --------------------------------------------------------------------------------- settling

    def _settle(self, call: RoundTrip, turn: Turn) -> None:
        if call.outcomes:
            self._note_verdicts(call.outcomes, turn.verdicts)
        if self._has_sent_away:
            self._has_sent_away = False
            self._owner.see_suspects()
        if call.room:
            self._begin_claims(call, turn.batch)
            self._note_claim(call, turn.batch)

    def _note_verdicts(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        log_refused(outcomes, verdicts)
        self._nonces.end(outcomes)
        self._releaser.settle(outcomes, verdicts)
        if self._hooks is not None and self._hooks.notes.noted:
            self._hooks.accept(outcomes, verdicts)

    def _begin_claims(self, call: RoundTrip, batch: Batch) -> None:
        """Queue new claims, before any bookkeeping that can wait."""
        self._nonces.begin(call.nonce, len(batch.claims))
        if self._mailbox.commands:  # a command may release these claims before they start
            self._unsettled = RoundTrip(call.session, [], call.nonce, call.room, call.plan)
            self._mailbox.run_commands()
            self._unsettled = None
        if batch.gone:
            self._renew(call.session)
        if call.session != self.session:
            self._nonces.forget(call.nonce)
        elif batch.claims:
            self._queue_claims(call, batch.claims)

    def _queue_claims(self, call: RoundTrip, claims: Sequence[Claim]) -> None:
        """Queue claims that this child can run, and release all other claims."""
        if self._queue_turns.is_shared:
            claims = self._queue_turns.in_order(claims, call.plan, call.room)
        self._last_claim_at = monotonic()
        self._table.note_claim(time())
        if self._refuses_claims():
            self._release(claims)
            return
        known = []
        for claim in claims:
            task = self._tasks.get(claim.task)
            if task is None:
                self._mailbox.outcomes.append(unknown_task(claim, f"worker {self.session}"))
                if self._notices.is_due(claim.task):
                    log.warning(LogEvent.TASK_UNKNOWN, claim.task)
            elif task.runs_alone and not self._is_solo:
                self._release([claim], alone=True)
                self._has_sent_away = True
            else:
                known.append((claim, task))
        self._slot_queue.offer(known)

    def _release(self, claims: Iterable[Claim], *, alone: bool = False) -> None:
        """Release claims that have not started. `alone` marks jobs that must run alone: the engine
        does not know the options of tasks, so the first worker that claims such a job marks it."""
        for claim in claims:
            self._mailbox.outcomes.append(
                Released(id=claim.id, token=claim.token, started=False, alone=alone)
            )

    def _note_claim(self, call: RoundTrip, batch: Batch) -> None:
        # After every empty reply the fetcher rests, so that no error makes this loop spin.
        self._may_claim = len(batch.claims) >= call.room or bool(
            batch.claims and batch.next_in_ms == 0
        )
        self._has_more = batch.next_in_ms == 0
        is_in_a_row = not batch.claims and self._claim_sent_at - self._last_empty_at < PAUSE_S
        self._empty_claims = self._empty_claims + 1 if is_in_a_row else 0
        if not batch.claims:
            self._last_empty_at = self._claim_sent_at
        self._note_idle(batch)
        if batch.suspects and not self._is_solo:
            self._announce_suspects()

    def _note_idle(self, batch: Batch) -> None:
        """Record in shared memory whether the last claim shows that this child is idle."""
        waits = batch.next_in_ms == 0 or (batch.suspects and not self._is_solo)
        if waits or self._nonces.are_held():
            self._idle_since = 0.0
            self._table.note_idle(0.0, 0.0)
        else:
            self._idle_since = self._idle_since or self._claim_sent_at
            self._table.note_idle(self._idle_since, self._claim_sent_at)

    def _announce_suspects(self) -> None:
        now = monotonic()
        if now - self._last_suspects_at >= SUSPECTS_S:
            self._last_suspects_at = now
            self._owner.see_suspects()

    # ---------------------------------------------------------------------------------- resting

    def _rest(self, room: int) -> None:
        """Sleep until a runner reports, a command arrives, or the engine may have work."""
        timeout_s, began_at = self._rest_s(), monotonic()
        if not room:
            self._idle_wait.stop()
            self._mailbox.sleep(timeout_s)
            self._may_claim = True
        elif self._has_more:
            self._mailbox.sleep(0.001)
            self._may_claim = True
        else:
            self._wait_for_work(timeout_s)
        if monotonic() - began_at >= PRESS_S:
            self._slot_queue.press()
        if not self._releaser.is_away:
            answered_at = self._table.waited_at() if room else monotonic()
            self._table.note_answer(max(answered_at, self._table.answered_at()))

    def _wait_for_work(self, timeout_s: float) -> None:
        wait = self._idle_wait
        if self._empty_claims > MOST_IN_A_ROW and not wait.is_started:
            self._mailbox.sleep(PAUSE_S)
        wait.start(is_free=not self._slot_queue.in_hand())
        news = self._mailbox.wait(wait.nudge, lambda: wait.poll(timeout_s))
        if news is None:
            return
        if news.claims:
            self._take(news)
        else:
            self._may_claim = True

    def _take(self, batch: Batch) -> None:
        """Start a job that was handed off."""
        now, plan = monotonic(), self._queue_turns.plan_for(HANDED)
        call = self._unsettled = RoundTrip(self.session, [], self._idle_wait.nonce, HANDED, plan)
        self._idle_wait.take_nonce()
        self._claim_sent_at = now
        self._begin_claims(call, batch)
        self._unsettled = None
        self._mailbox.sleep(BEGIN_S)
        self._note_claim(call, batch)
        self._releaser.note_back()
        self._table.note_answer(now)

    def _call_off(self) -> None:
        """Release the job that a put may have claimed under the nonce of the waiter."""
        self._idle_wait.stop()
        nonce = self._idle_wait.take_nonce()
        if nonce:
            self._releaser.give_back(RoundTrip(self.session, [], nonce, HANDED))

    def _rest_s(self) -> float:
        waits = [REST_S]
        since = self._slot_queue.waiting_since()
        if since is not None:
            waits.append(since + MAX_QUEUED_S - monotonic())
        if self._slot_queue.is_sparing():
            waits.append(PRESS_S)
        waits.append(self._mailbox.progress_due_s())
        if self._claim_again_at > monotonic():
            waits.append(self._claim_again_at - monotonic())
        return max(0.001, min(waits))

    # -------------------------------------------------------------------- giving back and ending

    def _begin_drain(self) -> None:
        self._is_draining = True  # the next round claims nothing and calls off a pending hand-off
        self._release(self._slot_queue.take_back(monotonic()))

    def _set_quiet(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet  # the next round calls off a pending hand-off
        if is_quiet:
            self._release(self._slot_queue.take_back(monotonic()))
        self._may_claim = True

    def _refuses_claims(self) -> bool:
        return self._is_draining or self._is_quiet

    def _is_done(self) -> bool:
        """Return whether to end the loop. A running or unreported job still holds its nonce."""
        if self._nonces.are_held(except_for=self._idle_wait.nonce):
            return False
        is_idle_solo = self._is_solo and monotonic() - self._last_claim_at > SOLO_IDLE_S
        return self._is_draining or is_idle_solo

    def _disown(self, id: str, token: str) -> None:
        """Drop the later outcome of a running job. If the job has ended, its outcome counts."""
        if any((claim.id, claim.token) == (id, token) for claim in self._slot_queue.running()):
            self._disowned.add((id, token))
            self._nonces.keep(token)

    def _renew(self, session: str) -> None:
        """Replace an expired session. Drop waiting claims: other workers may run those jobs.
        Running jobs continue, and the engine will reject their outcomes."""
        if session != self.session:
            return
        self._limits.note_loss()
        self._nonces.forget(self._idle_wait.take_nonce())
        dropped = self._slot_queue.take_back(monotonic())
        for claim in dropped:
            self._nonces.drop(claim.token)
        self.session = self._owner.new_session()
        self._may_claim = True
        log.warning(
            LogEvent.SESSION_RENEWED,
            session,
            Count(len(dropped), "claim"),
            Count(self._slot_queue.busy(), "job"),
            self.session,
        )

    def _give_back_all(self) -> NoReturn:
        """Hand back all jobs and end this process, also while jobs run."""
        self._release(self._slot_queue.take_back(monotonic()))
        running = self._hand_back_running()
        unsettled = self._unsettled or RoundTrip(self.session, [])
        outcomes = unsettled.outcomes + self._collect(inf)
        try:
            unknown = self._unknown(unsettled)
            self._releaser.leave_all(outcomes, running, unknown, self._leave_by)
        finally:
            self.measures.send()
            self._owner.end_at_once()

    def _hand_back_running(self) -> list[Outcome]:
        """Return the outcomes that hand back running jobs. Their runs count as ended now."""
        now = monotonic()
        outcomes: list[Outcome] = []
        for started in self._slot_queue.started():
            claim = started.claim
            if not self._is_disowned(claim):
                outcomes.append(Released(id=claim.id, token=claim.token, started=True))
                self.measures.ended[id(outcomes[-1])] = (started, now)
        return outcomes

    def _recover(self) -> None:
        """Recover from an unexpected error: report outcomes of the current call, release its
        claims."""
        call, self._unsettled = self._unsettled, None
        self._releaser.report_one_by_one(call.outcomes if call else ())
        if self._hooks is not None and call is not None:
            self._hooks.notes.forget(call.outcomes)
        for unknown in self._unknown(call):
            self._releaser.give_back(unknown)

    def _unknown(self, unsettled: RoundTrip | None) -> list[RoundTrip]:
        """Return calls that may have claimed jobs."""
        given = self._idle_wait.take_nonce()
        waiting = RoundTrip(self.session, [], given, HANDED) if given else None
        return [call for call in (unsettled, waiting) if call is not None and call.room]

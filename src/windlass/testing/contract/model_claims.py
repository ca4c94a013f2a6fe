"""Claims of the reference model: leases, and the outcomes that end them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from windlass.core.durations import LATEST_MS
from windlass.core.queues.labels import queue_of
from windlass.core.states import Event, Hold, Reason, State, stray_delay_ms
from windlass.engine.contract import (
    BITE,
    MAX_WHY,
    MIN_RECORD_MS,
    Batch,
    Buried,
    Outcome,
    Plan,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Turn,
    Unroutable,
    Verdict,
)
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_sessions import SessionModel
from windlass.testing.contract.model_state import in_turn


class ClaimModel(SessionModel):
    def turn(
        self, session: str, outcomes: Sequence[Outcome], nonce: str, plan: Plan, limit: int
    ) -> Turn:
        verdicts = tuple(self.finish(outcomes))
        return Turn(verdicts=verdicts, batch=self._claim_batch(session, nonce, plan, limit))

    def _claim_batch(self, session: str, nonce: str, plan: Plan, limit: int) -> Batch:
        """Promote due jobs, take back lost jobs, then lease. An empty, repeated or late claim
        changes nothing and does not renew the session."""
        jobs = in_turn(plan, self._held_under(session, nonce), self.rank)
        is_later, is_cut_short = nonce > self.last_nonces.get(session, ""), False
        if is_later and session not in self.gone and self._has_work(plan):
            self._notice_silence()
            self._promote()
            self._reap()
            jobs, is_cut_short = self._lease(session, nonce, plan, limit)
        if session in self.gone:
            return Batch(gone=True)
        return Batch(
            claims=tuple(job.as_claim() for job in jobs),
            next_in_ms=0 if is_cut_short else self._next_in_ms(),
            suspects=bool(self._waiting(replace(plan, suspects=True))),
        )

    def _has_work(self, plan: Plan) -> bool:
        return bool(self._due() or self._may_reap() or self._waiting(plan))

    def _may_reap(self) -> bool:
        return self.now_ms >= self.reap_after_ms and bool(self._silent_sessions())

    def _due(self) -> list[ModelJob]:
        due = [
            (job.record.due_ms, job.row, job)
            for job in self.jobs.values()
            if job.record.due_ms is not None and job.record.due_ms <= self.now_ms
        ]
        return [job for _, _, job in sorted(due)]

    def _promote(self) -> None:
        for job in self._due()[:BITE]:
            if job.record.hold is Hold.UNROUTABLE:
                job.record = replace(job.record, hold=Hold.NONE, due_ms=None)
            else:
                self.move(job, Event.DUE, due_ms=None)

    def _waiting(self, plan: Plan) -> list[ModelJob]:
        """List the jobs that can be claimed under a plan, in order."""
        jobs = [
            job
            for job in self.jobs.values()
            if job.is_claimable
            and job.record.suspect is plan.suspects
            and plan.serves(job.record.queue)
            and not self._settings_of(job.record.queue).paused
        ]
        return _pass_over(plan, in_turn(plan, jobs, self.rank))

    def _lease(
        self, session: str, nonce: str, plan: Plan, limit: int
    ) -> tuple[list[ModelJob], bool]:
        """Lease jobs; return them, and whether bytes or expired jobs cut the call short."""
        leased: list[ModelJob] = []
        expired = 0
        left_bytes = plan.most_bytes
        while session not in self.gone and (chosen := self._choose(plan, limit - len(leased))):
            for job in chosen:
                expires_ms = job.record.expires_ms
                is_late = expires_ms is not None and expires_ms <= self.now_ms
                is_paused = not is_late and self._is_paused(job.record.task)
                if not is_late and not is_paused:
                    left_bytes -= len(job.record.payload)
                    if left_bytes < 0 and leased:
                        return in_turn(plan, leased, self.rank), True
                    self._claim(job, session, nonce)
                    leased.append(job)
                elif expired < BITE:
                    if is_paused:
                        job.record = replace(job.record, hold=Hold.PAUSED)
                    else:
                        self.move(job, Event.EXPIRE, reason=Reason.EXPIRED)
                    expired += 1
                else:
                    return in_turn(plan, leased, self.rank), True
        return in_turn(plan, leased, self.rank), False

    def _choose(self, plan: Plan, limit: int) -> list[ModelJob]:
        """Choose the next jobs, at most `limit`. In a shared tier, each queue first gets its turns;
        then the order of the queues decides."""
        waiting = self._waiting(plan)
        if not plan.queues:
            return waiting[:limit]
        chosen: list[ModelJob] = []
        for queues, turns in plan.tiers():
            room = limit - len(chosen)
            served = [
                [
                    job
                    for job in waiting
                    if queue_of(job.record.queue) == queue and job not in chosen
                ]
                for queue in queues
            ]
            asked = Counter(turns[:room])
            parts = [line[: asked[number]] for number, line in enumerate(served)]
            first = [job for part in parts for job in part]
            rest = [job for line in served for job in line if job not in first]
            chosen += [*first, *rest][:room]
        return chosen

    def _claim(self, job: ModelJob, session: str, nonce: str) -> None:
        details = {"session": session, "started_ms": self.now_ms}
        self.move(job, Event.CLAIM, **details, progress=None, held_because=None)
        job.token = nonce
        self.expiries[session] = self.now_ms + self.options.lease_ms
        self.last_nonces[session] = nonce

    def prepare(self, session: str, plan: Plan) -> Batch:
        """Run the first step of a claim over several partitions, in one partition."""
        if self._due() or self._may_reap():
            self._notice_silence()
            self._promote()
            self._reap()
        if session in self.gone:
            return Batch(gone=True)
        suspects = bool(self._waiting(replace(plan, suspects=True)))
        return Batch(next_in_ms=self._next_in_ms(), suspects=suspects)

    def _held_under(self, session: str, nonce: str) -> list[ModelJob]:
        return [job for job in self._held(session) if job.token == nonce]

    def _next_in_ms(self) -> int | None:
        if self._may_reap():
            return 0
        dues = [
            job.record.due_ms
            for job in self.jobs.values()
            if job.record.due_ms is not None and job.record.due_ms < LATEST_MS
        ]
        return max(min(dues) - self.now_ms, 0) if dues else None

    # --------------------------------------------------------------------------- ending claims

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        return [self._finish(outcome) for outcome in outcomes]

    def use_up(self, session: str, nonce: str) -> None:
        """Use up a nonce: a late claim under it must get nothing."""
        self.last_nonces[session] = max(nonce, self.last_nonces.get(session, ""))
        if session not in self.gone:
            self.expiries.setdefault(session, self.now_ms + self.options.lease_ms)

    def release(self, session: str, nonce: str) -> int:
        self.use_up(session, nonce)
        held = self._held_under(session, nonce)
        for job in held:
            self._finish(Released(id=job.record.id, token=nonce, started=False))
        return len(held)

    def _finish(self, outcome: Outcome) -> Verdict:
        job = self.jobs.get(outcome.id)
        if job is not None and job.token == outcome.token:
            self._end(job, outcome)
            return Verdict.OK
        if job is not None and job.last_end == (outcome.token, type(outcome)):
            return Verdict.REPEATED
        self.totals["stale"] += 1
        return Verdict.STALE

    def _end(self, job: ModelJob, outcome: Outcome) -> None:
        if isinstance(outcome, Progressed):
            job.record = replace(job.record, progress=outcome.progress)
            return
        job.last_end = (outcome.token, type(outcome))
        now_ms = self.now_ms
        match outcome:
            case Succeeded(result=result, result_ttl_ms=ttl_ms):
                stored = result if ttl_ms > 0 else None
                self.move(job, Event.SUCCEED, cancel_requested=False, result=stored)
                job.result_until_ms = min(now_ms + ttl_ms, LATEST_MS)
                job.keep_until_ms = job.visit_ms = now_ms + max(ttl_ms, MIN_RECORD_MS)
                if stored is not None:
                    job.visit_ms = min(job.keep_until_ms, job.result_until_ms)
            case Retried(delay_ms=delay_ms, error=error):
                due_ms = min(now_ms + delay_ms, LATEST_MS)
                self.move(job, Event.RETRY, error=error, due_ms=due_ms)
            case Buried(reason=reason, error=error, started=started):
                self.move(job, Event.BURY, error=error, started=started, reason=reason)
                if job.record.state is State.DEAD:
                    job.record = replace(job.record, fingerprint=outcome.fingerprint)
            case Released(started=started, alone=alone):
                suspect = alone or job.record.suspect
                self.move(job, Event.RELEASE, started=started, suspect=suspect)
            case Snoozed(delay_ms=delay_ms):
                self.move(job, Event.SNOOZE, due_ms=min(now_ms + delay_ms, LATEST_MS))
            case Unroutable(why=why):
                due_ms = now_ms + stray_delay_ms(job.record.counters.strays)
                details = {"due_ms": due_ms, "hold": Hold.UNROUTABLE, "progress": None}
                self.move(job, Event.UNROUTABLE, **details)
                if why and job.record.hold is Hold.UNROUTABLE:
                    job.record = replace(job.record, held_because=why[:MAX_WHY])
            case _:
                raise TypeError(f"Expected one of the contract's outcomes, found {outcome!r}.")


def _pass_over(plan: Plan, jobs: list[ModelJob]) -> list[ModelJob]:
    """Leave out jobs of other tasks than those of the plan, and jobs behind too many of them."""
    passed: Counter[str] = Counter()
    left: list[ModelJob] = []
    for job in jobs:
        line = queue_of(job.record.queue) if plan.queues else ""
        if not plan.runs(job.record.task):
            passed[line] += 1
        elif passed[line] <= plan.most_passed_over:
            left.append(job)
    return left

"""The reference model of an engine, in plain Python over a dict and a number.

This is the specification of the verbs. It is pure, and not optimized; transitions and charges come
from `windlass.core.states`. Its verbs take and return the same values as those of
`windlass.engine.contract.Engine`. `model_job` is the effect of a transition on a job,
`model_unique` the rules of unique keys.

In order: putting, claiming, ending claims, liveness of sessions, operators, maintenance, reading,
and the one transition function for all jobs. Schedules are in `model_schedules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from windlass.core.durations import LATEST_MS
from windlass.core.longest_lease import LongestLease
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import QueueSettings
from windlass.core.states import (
    Event,
    Hold,
    Reason,
    State,
    is_allowed,
    next_state,
    stray_delay_ms,
)
from windlass.engine.contract import (
    BITE,
    GONE_SESSION_MS,
    IDEMPOTENCY_MS,
    MAX_HELD,
    MIN_RECORD_MS,
    SWEEP_BYTES,
    UNKNOWN_NONCE_MS,
    Batch,
    Beat,
    Buried,
    CancelCode,
    ChangeCode,
    Closed,
    Emptied,
    EngineOptions,
    Filter,
    Introductions,
    JobEnd,
    JobRecord,
    NewJob,
    Outcome,
    Page,
    Placed,
    Plan,
    Progressed,
    Pulse,
    PutCode,
    QueueChange,
    QueueRecord,
    Released,
    Retried,
    Revival,
    SessionRecord,
    Snoozed,
    Stats,
    Succeeded,
    Tended,
    Turn,
    Unroutable,
    Verdict,
)
from windlass.testing.contract import model_unique
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_schedules import ScheduleModel

#: Events after which a job goes to the end of its queue, not to its old place.
QUEUEING: Final = frozenset({Event.DUE, Event.REVIVE})
#: The fields that an operator's retry resets, in addition to the counters.
FRESH: Final[dict[str, Any]] = {
    "reason": None,
    "finished_ms": None,
    "expires_ms": None,
    "progress": None,
    "cancel_requested": False,
    "suspect": False,
}
#: The counters in `Stats.totals`, in addition to `enqueued`, `stale` and the final states.
COUNTED: Final = {
    Event.RETRY: "retried",
    Event.LOSE: "lost",
    Event.CRASH: "crashed",
    Event.EXPIRE: "expired",
}


class ModelKey(NamedTuple):
    id: str
    fingerprint: str
    until_ms: int


class Model(ScheduleModel):
    def __init__(self, options: EngineOptions, now_ms: int) -> None:
        self.options = options
        self.now_ms = now_ms
        self.sequence = 0
        self.jobs: dict[str, ModelJob] = {}
        self.keys: dict[tuple[str, str], ModelKey] = {}
        self.last_stored: dict[tuple[str, str], str] = {}  # by task and unique key, a job's id
        self.replaced_puts: dict[str, model_unique.ReplacedPut] = {}  # by id, puts of the past
        self.expiries: dict[str, int] = {}  # of live sessions
        self.infos: dict[str, bytes] = {}  # the introductions of live sessions
        self.last_nonces: dict[str, str] = {}  # by session, the latest nonce that got a job
        self.gone: dict[str, int] = {}  # dead sessions, and until when they are stored
        self.totals: Counter[str] = Counter()
        self.settings: dict[str, QueueSettings] = {}  # of queues with settings
        self.last_seen_ms: int | None = None
        self.reap_after_ms = 0
        self.longest = LongestLease()

    # -------------------------------------------------------------------------------- going in

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        return [self._put(new) for new in jobs]

    def put_anyway(self, jobs: Sequence[NewJob]) -> None:
        """Put runs of schedules: they ignore the bound of a queue."""
        for new in jobs:
            self._put(new, is_bounded=False)

    def _put(self, new: NewJob, *, is_bounded: bool = True) -> Placed:
        """Put a job. The id is checked first, then the idempotency key, then the unique key."""
        if new.id in self.jobs:
            return Placed(new.id, PutCode.CREATED)
        if new.scoped_key is not None:
            known = self.keys.get((new.task, new.scoped_key))
            if known is not None and self.now_ms < known.until_ms:
                same = known.fingerprint == new.fingerprint
                return Placed(known.id, PutCode.EXISTING if same else PutCode.CONFLICT)
        if new.unique is not None:
            placed = model_unique.meet(self, new, new.unique)
            if placed is not None:
                return placed
        if is_bounded and self._is_full(new.queue):
            return Placed(new.id, PutCode.FULL)
        if new.unique is not None:
            self.last_stored[new.task, new.unique.key] = new.id
        if new.scoped_key is not None:
            until_ms = self.now_ms + IDEMPOTENCY_MS
            self.keys[new.task, new.scoped_key] = ModelKey(new.id, new.fingerprint, until_ms)
        self.sequence += 1
        job = self.jobs[new.id] = ModelJob.of(new, self.sequence, self.now_ms)
        if job.is_claimable:
            job.age = self.age_of(new.queue)
        self.totals["enqueued"] += 1
        return Placed(new.id, PutCode.CREATED)

    def _is_full(self, line: str) -> bool:
        most = self._settings_of(line).max_waiting
        waiting = [
            job
            for job in self.jobs.values()
            if job.record.queue == line and is_allowed(job.record.state, Event.CLEAR)
        ]
        return bool(most) and len(waiting) >= most

    def clock_ms(self) -> int:
        return self.now_ms

    def known_jobs(self) -> dict[str, ModelJob]:
        return self.jobs

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        found = [model_unique.find_holder(self, task, key) for task, key in keys]
        return [None if job is None else job.record.id for job in found]

    # -------------------------------------------------------------------------------- claiming

    def _claim_batch(self, session: str, nonce: str, plan: Plan, limit: int) -> Batch:
        """Promote due jobs, then take back lost ones, then lease. An empty claim, and one that is
        repeated or late, change nothing: they do not renew the session."""
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
        """The jobs that can be claimed under a plan, in order."""
        jobs = [
            job
            for job in self.jobs.values()
            if job.is_claimable
            and job.record.suspect is plan.suspects
            and plan.serves(job.record.queue)
            and not self._settings_of(job.record.queue).paused
        ]
        return in_turn(plan, jobs, self.rank)

    def _lease(
        self, session: str, nonce: str, plan: Plan, limit: int
    ) -> tuple[list[ModelJob], bool]:
        """The leased jobs, and whether the limit of bytes or of expired jobs cut the call short."""
        leased: list[ModelJob] = []
        expired = 0
        left_bytes = plan.most_bytes
        while session not in self.gone and (chosen := self._choose(plan, limit - len(leased))):
            for job in chosen:
                expires_ms = job.record.expires_ms
                if expires_ms is None or expires_ms > self.now_ms:
                    left_bytes -= len(job.record.payload)
                    if left_bytes < 0 and leased:
                        return in_turn(plan, leased, self.rank), True
                    self._claim(job, session, nonce)
                    leased.append(job)
                elif expired < BITE:
                    self.move(job, Event.EXPIRE, reason=Reason.EXPIRED)
                    expired += 1
                else:
                    return in_turn(plan, leased, self.rank), True
        return in_turn(plan, leased, self.rank), False

    def _choose(self, plan: Plan, limit: int) -> list[ModelJob]:
        """The next jobs, at most `limit`. In a shared tier each queue first gets its turns, and the
        rest goes by order."""
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
        self.move(job, Event.CLAIM, session=session, started_ms=self.now_ms, progress=None)
        job.token = nonce
        self.expiries[session] = self.now_ms + self.options.lease_ms
        self.last_nonces[session] = nonce

    def prepare(self, session: str, plan: Plan) -> Batch:
        """The first step of a claim over several partitions, in each of them."""
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
        dues = [job.record.due_ms for job in self.jobs.values() if job.record.due_ms is not None]
        return max(min(dues) - self.now_ms, 0) if dues else None

    # --------------------------------------------------------------------------- ending claims

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        return [self._finish(outcome) for outcome in outcomes]

    def turn(
        self, session: str, outcomes: Sequence[Outcome], nonce: str, plan: Plan, limit: int
    ) -> Turn:
        verdicts = tuple(self.finish(outcomes))
        return Turn(verdicts=verdicts, batch=self._claim_batch(session, nonce, plan, limit))

    def use_up(self, session: str, nonce: str) -> None:
        """Invalidate a nonce: a late claim under it must get nothing."""
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
            return Verdict.OK
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
                job.keep_until_ms = now_ms + max(ttl_ms, MIN_RECORD_MS)
            case Retried(delay_ms=delay_ms, error=error):
                due_ms = min(now_ms + delay_ms, LATEST_MS)
                self.move(job, Event.RETRY, error=error, due_ms=due_ms)
            case Buried(reason=reason, error=error, started=started):
                self.move(job, Event.BURY, error=error, started=started, reason=reason)
            case Released(started=started, alone=alone):
                suspect = alone or job.record.suspect
                self.move(job, Event.RELEASE, started=started, suspect=suspect)
            case Snoozed(delay_ms=delay_ms):
                self.move(job, Event.SNOOZE, due_ms=min(now_ms + delay_ms, LATEST_MS))
            case Unroutable():
                due_ms = now_ms + stray_delay_ms(job.record.counters.strays)
                self.move(job, Event.UNROUTABLE, due_ms=due_ms, hold=Hold.UNROUTABLE)
            case _:
                raise TypeError(f"Expected one of the contract's outcomes, found {outcome!r}.")

    # -------------------------------------------------------------------------------- liveness

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        self._notice_silence()
        return [self._beat(beat) for beat in beats]

    def _beat(self, beat: Beat) -> Pulse:
        if beat.session in self.gone:
            return Pulse(session=beat.session, alive=False)
        if beat.info:
            self.infos[beat.session] = beat.info
        if beat.session in self.expiries or beat.info:
            self.expiries[beat.session] = self.now_ms + self.options.lease_ms
        if beat.nonces is not None:
            self._give_back_unknown(beat, beat.nonces)
        wanted = [job.record for job in self._held(beat.session) if job.record.cancel_requested]
        cancel = tuple(sorted(record.id for record in wanted))
        return Pulse(session=beat.session, alive=True, cancel=cancel)

    def _give_back_unknown(self, beat: Beat, nonces: tuple[str, ...]) -> None:
        for job in self._held(beat.session):
            started_ms, token = job.record.started_ms, job.token
            assert started_ms is not None
            assert token is not None
            is_lost = token not in nonces and token <= beat.newest
            age_ms = self.now_ms - started_ms
            if is_lost and (age_ms >= UNKNOWN_NONCE_MS or age_ms < 0):
                self.move(job, Event.RELEASE, started=False)

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        self._end_session(session)
        held = self._held(session)
        suspected = [job for job in held if job.record.id in suspects]
        innocent = [job for job in held if job.record.id not in suspects]
        event = Event.CRASH if len(set(suspects)) == 1 else Event.SUSPECT
        for job in suspected:
            self.move(job, event, error=cause.encode())
        for job in innocent:
            self.move(job, Event.RELEASE)
        crashed = len(suspected) if event is Event.CRASH else 0
        return Closed(crashed=crashed, suspected=len(suspected) - crashed, released=len(innocent))

    def lose(self, session: str, cause: str) -> int:
        self._end_session(session)
        held = self._held(session)
        for job in held:
            self.move(job, Event.LOSE, error=cause.encode())
        return len(held)

    def _held(self, session: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.is_held_by(session)]

    def _end_session(self, session: str) -> None:
        self.expiries.pop(session, None)
        self.infos.pop(session, None)
        self.gone[session] = self.now_ms + GONE_SESSION_MS

    def _notice_silence(self) -> None:
        """After a long time without calls, or when the clock went back, the engine was unavailable
        and not the workers. No session is declared dead until all workers, also the one with the
        longest lease, had time for a heartbeat."""
        now_ms, last_ms, lease_ms = self.now_ms, self.last_seen_ms, self.options.lease_ms
        self.last_seen_ms = now_ms
        if last_ms is None or 0 <= now_ms - last_ms <= lease_ms // 2:
            self.longest = self.longest.heard(lease_ms, now_ms)
            return
        self.longest = self.longest.after_silence(lease_ms, last_ms, now_ms)
        self.reap_after_ms = now_ms + self.longest.lease_ms // 2
        if now_ms < last_ms:
            for session, expires_ms in self.expiries.items():
                self.expiries[session] = min(expires_ms, now_ms + self.longest.lease_ms)

    def _silent_sessions(self) -> list[str]:
        """Sessions with an expired lease, and dead ones that still hold jobs."""
        late = [name for name, expires_ms in self.expiries.items() if expires_ms <= self.now_ms]
        return late + [name for name in self.gone if self._held(name)]

    def _reap(self) -> int:
        if self.now_ms < self.reap_after_ms:
            return 0
        reaped = 0
        for session in self._silent_sessions():
            if reaped == BITE:
                break
            self._end_session(session)
            for job in self._held(session)[: BITE - reaped]:
                self.move(job, Event.LOSE)
                reaped += 1
        return reaped

    # ------------------------------------------------------------------------------- operators

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]:
        return [self._cancel(id) for id in ids]

    def _cancel(self, id: str) -> CancelCode:
        job = self.jobs.get(id)
        if job is None:
            return CancelCode.UNKNOWN
        if not is_allowed(job.record.state, Event.CANCEL):
            is_cancelled = job.record.state is State.CANCELLED
            return CancelCode.CANCELLED if is_cancelled else CancelCode.FINAL
        if job.record.state is State.RUNNING:
            self.move(job, Event.CANCEL, cancel_requested=True)
            return CancelCode.REQUESTED
        self.move(job, Event.CANCEL, reason=Reason.CANCELLED)
        return CancelCode.CANCELLED

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        return [self._revive(revival) for revival in revivals]

    def _revive(self, revival: Revival) -> ChangeCode:
        """Revive a job. A replaced payload becomes an entry of the history."""
        job = self.jobs.get(revival.id)
        if job is not None and revival.finished_ms not in (None, job.record.finished_ms):
            return ChangeCode.REFUSED
        if job is None or revival.payload is None:
            return self._change(revival.id, Event.REVIVE)
        return self._change(
            revival.id, Event.REVIVE, payload=revival.payload, error=job.record.payload
        )

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        return [self._discard(id, (seen or {}).get(id)) for id in ids]

    def _discard(self, id: str, seen_ms: int | None) -> ChangeCode:
        job = self.jobs.get(id)
        if job is not None and seen_ms not in (None, job.record.finished_ms):
            return ChangeCode.REFUSED
        return self._change(id, Event.DISCARD)

    def _change(self, id: str, event: Event, **details: Any) -> ChangeCode:
        job = self.jobs.get(id)
        if job is None:
            return ChangeCode.UNKNOWN
        if not is_allowed(job.record.state, event):
            return ChangeCode.REFUSED
        if event is Event.REVIVE and job.record.unique_key is not None:
            holder = model_unique.find_holder(self, job.record.task, job.record.unique_key)
            if holder not in (None, job):
                return ChangeCode.DUPLICATE
            self.last_stored[job.record.task, job.record.unique_key] = id
        self.move(job, event, **FRESH, **details)
        if event is Event.DISCARD:
            self._free_key(id)
        return ChangeCode.DONE

    def adopt(self, tasks: Sequence[str]) -> int:
        adopted = [
            job
            for job in self.jobs.values()
            if job.record.hold is Hold.UNROUTABLE and job.record.task in tasks
        ]
        for job in adopted:
            job.record = replace(job.record, hold=Hold.NONE, due_ms=None)
        return len(adopted)

    # ---------------------------------------------------------------------------------- queues

    def queues(self) -> list[QueueRecord]:
        records = [
            QueueRecord(
                queue=queue,
                paused=own.paused,
                ageing_ms=own.ageing_ms,
                max_waiting=own.max_waiting,
            )
            for queue, own in sorted(self.settings.items())
        ]
        return [record for record in records if record != QueueRecord(queue=record.queue)]

    def change_queue(self, queue: str, change: QueueChange) -> None:
        own = self._settings_of(queue)
        if change.paused is not None:
            own = replace(own, paused=change.paused)
        if change.ageing_ms is not None:
            own = own.with_ageing(change.ageing_ms, self.now_ms)
        if change.max_waiting is not None:
            own = replace(own, max_waiting=change.max_waiting)
        self.settings[queue] = own

    def _settings_of(self, line: str) -> QueueSettings:
        return self.settings.get(queue_of(line), QueueSettings())

    def age_of(self, line: str) -> int:
        """The current age of a queue, which never decreases."""
        own = self._settings_of(line).aged(self.now_ms)
        if own.age:
            self.settings[queue_of(line)] = own
        return own.age

    def rank(self, job: ModelJob) -> tuple[int, int]:
        """The order of a job among all queues: a level of priority is worth one period of waiting
        in its queue."""
        age = self._settings_of(job.record.queue).aged(self.now_ms).age
        return job.age - job.record.priority - age, job.place

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        """All of it at once: engines are asked again until nothing is left."""
        waiting = [
            job
            for job in self.jobs.values()
            if queue_of(job.record.queue) == queue and is_allowed(job.record.state, Event.CLEAR)
        ]
        for job in waiting:
            self.move(job, Event.CLEAR)
            self._free_key(job.record.id)
        return Emptied(len(waiting), None)

    def _free_key(self, id: str) -> None:
        self.keys = {name: key for name, key in self.keys.items() if key.id != id}

    # ---------------------------------------------------------------------------------- upkeep

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        self._notice_silence()
        reaped = self._reap()
        purged, doomed, is_cut_short = self._purge(known)
        expired = [name for name, key in self.keys.items() if key.until_ms <= self.now_ms][:BITE]
        for name in expired:
            del self.keys[name]
        for session, until_ms in list(self.gone.items()):
            if until_ms <= self.now_ms and not self._held(session):
                del self.gone[session]
                self.last_nonces.pop(session, None)
        is_full = BITE in {reaped, purged + len(doomed), len(expired)}
        return Tended(reaped=reaped, purged=purged, doomed=doomed, more=is_full or is_cut_short)

    def _purge(self, known: Sequence[str] | None) -> tuple[int, tuple[str, ...], bool]:
        """The number of removed jobs, the ids to remove next, and whether the limit was reached."""
        finished = [job for job in self.jobs.values() if job.record.state.is_final]
        for job in finished:
            job.record = replace(job.record, result=job.seen(self.now_ms).result)
        old = [
            job for job in finished if max(job.keep_until_ms, job.period_until_ms) <= self.now_ms
        ]
        visited = sorted(old, key=lambda job: job.keep_until_ms)[:BITE]
        doomed = [
            job
            for job in visited
            if job.record.state is State.DEAD and known is not None and job.record.id not in known
        ]
        for job in visited:
            if job not in doomed:
                self.move(job, Event.PURGE)
        sizes = accumulate(job.size for job in doomed)
        room = max(1, sum(total <= SWEEP_BYTES for total in sizes))
        named = tuple(sorted(job.record.id for job in doomed[:room]))
        return len(visited) - len(doomed), named, len(doomed) > room

    # --------------------------------------------------------------------------- what is seen

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return [self.jobs[id].seen(self.now_ms) if id in self.jobs else None for id in ids]

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return [None if record is None else _end_of(record) for record in self.get(ids)]

    def find(self, filter: Filter, cursor: str | None = None, limit: int = 100) -> Page:
        found = [
            replace(job.seen(self.now_ms), payload=b"", result=None, failures=())
            for id, job in sorted(self.jobs.items(), reverse=True)
            if (cursor is None or id < cursor) and _matches(job.record, filter)
        ]
        is_last = len(found) <= limit
        return Page(tuple(found[:limit]), None if is_last else found[limit - 1].id)

    def stats(self) -> Stats:
        queues: dict[str, Counter[State]] = {}
        for job in self.jobs.values():
            queues.setdefault(job.record.queue, Counter())[job.record.state] += 1
        firsts: dict[str, int] = {}
        for job in self.in_line():
            firsts.setdefault(job.record.queue, max(0, self.now_ms - job.ready_ms))
        return Stats(queues=queues, oldest_ready_ms=firsts, totals=dict(self.totals))

    def in_line(self) -> list[ModelJob]:
        """All claimable jobs in order, without suspects."""
        jobs = [job for job in self.jobs.values() if job.is_claimable and not job.record.suspect]
        return in_turn(Plan(), jobs, self.rank)

    def sessions(self) -> list[SessionRecord]:
        return [
            SessionRecord(
                session=name,
                expires_in_ms=expires_ms - self.now_ms,
                jobs=len(self._held(name)),
                held=tuple(sorted(job.record.id for job in self._held(name))[:MAX_HELD]),
                info=self.infos.get(name, b""),
            )
            for name, expires_ms in sorted(self.expiries.items())
        ]

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """All of it at once: engines are asked again until nothing is left."""
        named = {name: info for name, info in self.infos.items() if name.startswith(prefix)}
        return Introductions(named, None)

    # -------------------------------------------------------------------------------- the move

    def move(self, job: ModelJob, event: Event, **details: Any) -> None:
        was = job.record
        state = next_state(was.state, event, cancel_requested=was.cancel_requested)
        if state is None:
            del self.jobs[was.id]
            self.last_stored = {name: id for name, id in self.last_stored.items() if id != was.id}
            return
        job.move(event, state, self.now_ms, **details)
        if event in QUEUEING:
            self.sequence += 1
            job.place, job.ready_ms = self.sequence, self.now_ms
            job.age = self.age_of(job.record.queue)
        if state.is_final:
            job.keep_until_ms = self.now_ms + max(self.options.dead_ttl_ms, MIN_RECORD_MS)
            self.totals[state.value] += 1
        if event in COUNTED:
            self.totals[COUNTED[event]] += 1


def in_turn(
    plan: Plan, jobs: Iterable[ModelJob], rank: Callable[[ModelJob], tuple[int, int]]
) -> list[ModelJob]:
    """Sort jobs by the order of queues in the plan, then by priority, then by place."""
    turns = {queue: -number for number, queue in enumerate(reversed(plan.queues))}
    return sorted(jobs, key=lambda job: (turns.get(queue_of(job.record.queue), 1), rank(job)))


def _end_of(record: JobRecord) -> JobEnd:
    return JobEnd(
        id=record.id,
        task=record.task,
        state=record.state,
        reason=record.reason,
        finished_ms=record.finished_ms,
        result=record.result,
        failure=record.failures[-1] if record.state is State.DEAD else None,
    )


def _matches(record: JobRecord, filter: Filter) -> bool:
    wanted: Iterable[tuple[object, object]] = (
        (filter.state, record.state),
        (filter.queue, queue_of(record.queue)),
        (filter.task, record.task),
    )
    return all(want is None or want == have for want, have in wanted)

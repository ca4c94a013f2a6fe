"""One job of the reference model, and the effect of an event on its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from windlass.core.durations import LATEST_MS
from windlass.core.states import (
    SUSPECT_AFTER_LOSSES,
    Counters,
    Event,
    Hold,
    Reason,
    State,
    charge,
)
from windlass.core.unique import Until
from windlass.engine.contract import MAX_FAILURES, Claim, Failure, JobRecord, NewJob, Outcome

#: Events that leave an entry in the history of a job.
REMEMBERED: Final = frozenset({Event.RETRY, Event.BURY, Event.LOSE, Event.CRASH, Event.SUSPECT})
#: Events that end a job without a crash. Afterwards, the job need not run alone.
CLEARING: Final = frozenset({Event.SUCCEED, Event.RETRY, Event.BURY, Event.SNOOZE})


@dataclass
class ModelJob:
    record: JobRecord  # keeps the result even after its ttl
    row: int  # the order of the puts
    place: int  # the order in the queue
    ready_ms: int  # when it got its place
    age: int = 0  # age of the queue at that time
    token: str | None = None  # token of the current claim
    last_end: tuple[str, type[Outcome]] | None = None  # last end by a holder
    keep_until_ms: int = 0  # end of retention, once the job has finished
    visit_ms: int = 0  # next visit of the purge, once the job has finished
    result_until_ms: int = 0
    unique_until: Until = Until.END
    period_until_ms: int = 0  # the job holds its unique key at least until then
    steps: dict[str, bytes] = field(default_factory=dict)
    replaced_by: str = ""  # id of the put that gave the job its current call

    @property
    def is_claimable(self) -> bool:
        return self.record.state is State.READY and self.record.hold is Hold.NONE

    @property
    def size(self) -> int:
        """Return the bytes of the job's call, progress and history."""
        errors = sum(len(failure.error) for failure in self.record.failures)
        return len(self.record.payload) + len(self.record.progress or b"") + errors

    def is_held_by(self, session: str) -> bool:
        return self.record.state is State.RUNNING and self.record.session == session

    @staticmethod
    def of(new: NewJob, number: int, now_ms: int) -> ModelJob:
        """Make a new job, due at the later of its instants and expiring at the earlier."""
        due_ms = max(new.run_after_ms or 0, now_ms + new.run_in_ms)
        waits = due_ms > now_ms
        expiries = [] if new.expires_ms is None else [new.expires_ms]
        if new.expires_in_ms is not None:
            expiries.append(now_ms + new.expires_in_ms)
        record = JobRecord(
            id=new.id,
            task=new.task,
            queue=new.queue,
            priority=new.priority,
            state=State.SCHEDULED if waits else State.READY,
            hold=Hold.NONE,
            reason=None,
            counters=Counters(),
            created_ms=now_ms,
            due_ms=due_ms if waits else None,
            expires_ms=min(expiries, default=None),
            payload=new.payload,
            unique_key=None if new.unique is None else new.unique.key,
        )
        job = ModelJob(record, row=number, place=number, ready_ms=now_ms)
        if new.unique is not None:
            job.unique_until = new.unique.until
            job.period_until_ms = now_ms + new.unique.period_ms if new.unique.period_ms else 0
        return job

    def replace(self, new: NewJob, now_ms: int) -> None:
        """Take over the call of another job, with new budgets; history and past claims stay."""
        was, other = self.record, ModelJob.of(new, self.row, now_ms)
        self.record = replace(
            other.record,
            id=was.id,
            created_ms=was.created_ms,
            started_ms=was.started_ms,
            session=was.session,
            failures=was.failures,
        )
        self.unique_until, self.period_until_ms = other.unique_until, other.period_until_ms
        self.replaced_by = new.id
        self.steps.clear()

    def change_call(self, payload: bytes | None, now_ms: int) -> None:
        """Store another payload, if there is one; the old one becomes an entry of the history."""
        if payload is not None:
            was = self.record
            history = _history(was, Event.REVIVE, was.payload, now_ms)
            self.record = replace(was, payload=payload, failures=history)

    def change_due(self, run_in_ms: int, now_ms: int) -> None:
        """Make the job ready now, or due later. Only a job in line becomes scheduled."""
        state, due_ms = State.READY, None
        if run_in_ms > 0:
            is_ready = self.record.state is State.READY
            state = State.SCHEDULED if is_ready else self.record.state
            due_ms = min(now_ms + run_in_ms, LATEST_MS)
        self.record = replace(self.record, state=state, hold=Hold.NONE, due_ms=due_ms)

    def move(
        self,
        event: Event,
        state: State,
        now_ms: int,
        *,
        started: bool = True,
        error: bytes | None = None,
        **changes: Any,
    ) -> None:
        """Apply an event that leads to `state`; `changes` are further fields."""
        was = self.record
        self.record = replace(
            was,
            state=state,
            counters=charge(was.counters, event, started=started),
            failures=_history(was, event, error, now_ms),
            **{"suspect": _is_suspect(was, event), **changes},
        )
        if state is not State.RUNNING:
            self.token = None
        if state.is_final:
            self.record = replace(self.record, finished_ms=now_ms, due_ms=None, hold=Hold.NONE)
        if state is State.CANCELLED and was.state is State.RUNNING:
            self.record = replace(self.record, reason=Reason.CANCELLED)

    def as_claim(self) -> Claim:
        record = self.record
        assert self.token is not None
        return Claim(
            id=record.id,
            token=self.token,
            task=record.task,
            queue=record.queue,
            priority=record.priority,
            payload=record.payload,
            counters=record.counters,
            created_ms=record.created_ms,
            suspect=record.suspect,
            waited_ms=max(0, (record.started_ms or 0) - self.ready_ms),
        )

    def seen(self, now_ms: int) -> JobRecord:
        """Return the record that callers see: without the result after its ttl."""
        kept = self.record.result is not None and now_ms < self.result_until_ms
        return replace(self.record, has_result=kept, result=self.record.result if kept else None)


def _is_suspect(was: JobRecord, event: Event) -> bool:
    if event in CLEARING:
        return False
    if event is Event.LOSE and was.counters.losses + 1 >= SUSPECT_AFTER_LOSSES:
        return True
    return was.suspect or event in {Event.CRASH, Event.SUSPECT}


def _history(was: JobRecord, event: Event, error: bytes | None, now_ms: int) -> tuple[Failure, ...]:
    """Return the history after an event. Empty payloads that were replaced are kept too."""
    if event not in REMEMBERED and not (event is Event.REVIVE and error is not None):
        return was.failures
    entry = Failure(
        at_ms=now_ms,
        event=event.value,
        attempt=was.counters.attempt,
        session=was.session,
        started_ms=was.started_ms,
        error=error or b"",
    )
    return (*was.failures, entry)[-MAX_FAILURES:]

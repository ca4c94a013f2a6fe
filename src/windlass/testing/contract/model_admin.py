"""Operations of operators and maintenance in the reference model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import paused_tasks, task_key
from windlass.core.states import Event, Hold, Reason, State, is_allowed
from windlass.engine.contract import (
    BITE,
    MIN_RECORD_MS,
    SWEEP_BYTES,
    CancelCode,
    ChangeCode,
    Emptied,
    JobChange,
    Plan,
    QueueChange,
    QueueRecord,
    Revival,
    Stats,
    Tended,
    list_records,
)
from windlass.testing.contract import model_unique
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_sessions import SessionModel
from windlass.testing.contract.model_state import in_turn

#: The fields that an operator's retry resets, in addition to the counters.
FRESH: Final[dict[str, Any]] = {
    "reason": None,
    "finished_ms": None,
    "expires_ms": None,
    "progress": None,
    "held_because": None,
    "cancel_requested": False,
    "suspect": False,
    "fingerprint": "",
}


class AdminModel(SessionModel):
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

    def change_jobs(self, changes: Sequence[JobChange]) -> list[ChangeCode]:
        return [self._change_waiting(change) for change in changes]

    def _change_waiting(self, change: JobChange) -> ChangeCode:
        job = self.jobs.get(change.id)
        if job is None:
            return ChangeCode.UNKNOWN
        if not is_allowed(job.record.state, Event.CLEAR) or not (
            change.seen in (None, job.record.revision)
            and change.seen_payload in (None, job.record.payload)
        ):
            return ChangeCode.REFUSED
        job.change_call(change.payload, self.now_ms)
        was_in_line, old_queue = job.record.state is State.READY, job.record.queue
        queue = change.queue or old_queue
        job.record = replace(job.record, queue=queue)
        if change.run_in_ms is not None:
            job.change_due(change.run_in_ms, self.now_ms)
        is_in_line = job.record.state is State.READY
        if is_in_line and not was_in_line:
            self.sequence += 1
            job.place, job.ready_ms = self.sequence, self.now_ms
        if is_in_line and not (was_in_line and queue_of(queue) == queue_of(old_queue)):
            job.age = self.age_of(queue)
        return ChangeCode.DONE

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
            if job.record.hold is not Hold.NONE
            and job.record.task in tasks
            and not self._is_paused(job.record.task)
        ]
        for job in adopted:
            job.record = replace(job.record, hold=Hold.NONE, due_ms=None)
        return len(adopted)

    # ---------------------------------------------------------------------------------- queues

    def queues(self) -> list[QueueRecord]:
        return list_records(self.settings)

    def change_queue(self, queue: str, change: QueueChange) -> None:
        own = self._settings_of(queue)
        if change.paused is not None:
            own = replace(own, paused=change.paused)
        if change.ageing_ms is not None:
            own = own.with_ageing(change.ageing_ms, self.now_ms)
        if change.max_waiting is not None:
            own = replace(own, max_waiting=change.max_waiting)
        if change.least_age is not None:
            own = own.aged_to(change.least_age, self.now_ms)
        self.settings[queue] = own

    def pause_task(self, task: str) -> None:
        self.change_queue(task_key(task), QueueChange(paused=True))

    def resume_task(self, task: str) -> int:
        self.change_queue(task_key(task), QueueChange(paused=False))
        return self.adopt([task])

    def paused_tasks(self) -> list[str]:
        return paused_tasks(self.settings)

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        """Remove all waiting jobs at once. Engines need several calls for this."""
        waiting = [
            job
            for job in self.jobs.values()
            if queue_of(job.record.queue) == queue and is_allowed(job.record.state, Event.CLEAR)
        ]
        for job in waiting:
            self.move(job, Event.CLEAR)
            self._free_key(job.record.id)
        return Emptied(len(waiting), None)

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
        resumed = self._resume_rest()
        self.keep_history()
        is_full = BITE in {reaped, purged + len(doomed), len(expired), resumed}
        return Tended(reaped=reaped, purged=purged, doomed=doomed, more=is_full or is_cut_short)

    def _resume_rest(self) -> int:
        """Make jobs ready that are held as paused although their task is not; return how many."""
        left = [
            job
            for job in self.jobs.values()
            if job.record.hold is Hold.PAUSED and not self._is_paused(job.record.task)
        ]
        for job in left[:BITE]:
            job.record = replace(job.record, hold=Hold.NONE, due_ms=None)
        return len(left[:BITE])

    def _purge(self, known: Sequence[str] | None) -> tuple[int, tuple[str, ...], bool]:
        """Purge; return the number of removed jobs, the doomed ids, and if a limit was hit."""
        finished = [job for job in self.jobs.values() if job.record.state.is_final]
        for job in finished:
            self._postpone_visit(job)
            job.record = replace(job.record, result=job.seen(self.now_ms).result)
        old = [
            job for job in finished if max(job.keep_until_ms, job.period_until_ms) <= self.now_ms
        ]
        visited = sorted(old, key=_purge_order)[:BITE]
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

    def _postpone_visit(self, job: ModelJob) -> None:
        """Set the next visit of the purge, if this one only drops the result, or finds that the job
        still holds its unique key."""
        assert job.record.finished_ms is not None
        record_until_ms = max(job.record.finished_ms + MIN_RECORD_MS, job.period_until_ms)
        if job.visit_ms > self.now_ms:
            return
        if job.record.result is not None and record_until_ms > self.now_ms:
            job.visit_ms = record_until_ms
        elif job.period_until_ms > self.now_ms:
            job.visit_ms = job.period_until_ms

    def stats(self) -> Stats:
        queues: dict[str, Counter[State]] = {}
        for job in self.jobs.values():
            queues.setdefault(job.record.queue, Counter())[job.record.state] += 1
        firsts: dict[str, int] = {}
        for job in self.in_line():
            firsts.setdefault(job.record.queue, max(0, self.now_ms - job.ready_ms))
        enqueued = {pair: counter.number for pair, counter in self.pairs.items()}
        totals = {**self.totals, "enqueued": self.forgotten + sum(enqueued.values())}
        return Stats(queues=queues, oldest_ready_ms=firsts, totals=totals, enqueued=enqueued)

    def in_line(self) -> list[ModelJob]:
        """List all claimable jobs in order, without suspects."""
        jobs = [job for job in self.jobs.values() if job.is_claimable and not job.record.suspect]
        return in_turn(Plan(), jobs, self.rank)


def _purge_order(job: ModelJob) -> tuple[int, int]:
    """Dead jobs come last: they may have to stay, and must not keep the purge from the others."""
    states = (State.SUCCEEDED, State.CANCELLED, State.DEAD)
    return states.index(job.record.state), job.keep_until_ms

"""The reference model of an engine, in plain Python over a dict and a number.

This is the specification of the verbs. It is pure, and not optimized. Its verbs take and return the
same values as those of `windlass.engine.contract.Engine`.

1. `model_state`: the state, and the transition function; `model_job`: one job.
2. `model_sessions`, `model_claims`, `model_steps`, `model_dead_groups`, `model_schedules`,
   `model_documents`, `model_copies` and `model_admin`: the verbs of one concern.
3. This module: putting and reading jobs; `model_unique`: the rules of unique keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from windlass.core.ids import release_of
from windlass.core.queues.labels import queue_of
from windlass.core.states import Event, Hold, State, is_allowed
from windlass.engine.contract import (
    Filter,
    JobEnd,
    JobIndex,
    JobRecord,
    NewJob,
    Placed,
    PutCode,
    indexes_for,
)
from windlass.testing.contract import model_unique
from windlass.testing.contract.model_admin import AdminModel
from windlass.testing.contract.model_claims import ClaimModel
from windlass.testing.contract.model_copies import CopyModel
from windlass.testing.contract.model_dead_groups import DeadGroupModel
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_state import ModelKey
from windlass.testing.contract.model_steps import StepModel

#: A job of a listing: its order, and its record.
Listed = tuple[tuple[Any, ...], JobRecord]


class Model(ClaimModel, StepModel, AdminModel, DeadGroupModel, CopyModel):
    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        return [self._put(new) for new in jobs]

    def put_anyway(self, jobs: Sequence[NewJob]) -> None:
        """Put runs of schedules, which ignore the limit of a queue."""
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
            until_ms = self.now_ms + self.options.idempotency_ms
            self.keys[new.task, new.scoped_key] = ModelKey(new.id, new.fingerprint, until_ms)
        self.sequence += 1
        job = self.jobs[new.id] = ModelJob.of(new, self.sequence, self.now_ms)
        if job.is_claimable:
            job.age = self.age_of(new.queue)
        self.count_enqueued(new.queue, new.task)
        return Placed(new.id, PutCode.CREATED)

    def _is_full(self, line: str) -> bool:
        most = self._settings_of(line).max_waiting
        waiting = [
            job
            for job in self.jobs.values()
            if job.record.queue == line and is_allowed(job.record.state, Event.CLEAR)
        ]
        return bool(most) and len(waiting) >= most

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        found = [model_unique.find_holder(self, task, key) for task, key in keys]
        return [None if job is None else job.record.id for job in found]

    # ---------------------------------------------------------------------------------- reading

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return [self.jobs[id].seen(self.now_ms) if id in self.jobs else None for id in ids]

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return [None if record is None else _end_of(record) for record in self.get(ids)]

    def listing(self, filter: Filter) -> list[Listed]:
        """List what all pages of `find` contain, in order."""
        found = [
            (
                _find_order(job, filter),
                _without_details(job.seen(self.now_ms)),
            )
            for job in self.jobs.values()
            if _matches(job.record, filter)
        ]
        return sorted(found, key=itemgetter(0))


def _without_details(record: JobRecord) -> JobRecord:
    return replace(record, payload=b"", result=None, failures=(), fingerprint="")


def _find_order(job: ModelJob, filter: Filter) -> tuple[Any, ...]:
    """Return the index of a job and its place in that index. Jobs of one place are in any order."""
    record = job.record
    if filter.fingerprint is not None:
        return (-(record.finished_ms or 0),)
    index = _index_of(record)
    place: tuple[Any, ...] = (-job.visit_ms,)
    if index is JobIndex.RUNNING:
        place = (_bytes(record.session), _bytes(job.token))
    elif index is JobIndex.READY or index is JobIndex.SUSPECT:
        place = (_bytes(record.queue), job.age - record.priority, job.place)
    elif index is JobIndex.PARKED:
        place = (_bytes(record.task), job.row)
    elif index is JobIndex.DUE:
        place = (record.due_ms, job.row)
    return (list(JobIndex).index(index), *place)


def _bytes(text: str | None) -> bytes:
    """Texts sort by their bytes."""
    assert text is not None
    return text.encode()


def _index_of(record: JobRecord) -> JobIndex:
    if record.hold is not Hold.NONE:
        return JobIndex.PARKED
    if record.state is State.READY and record.suspect:
        return JobIndex.SUSPECT
    return indexes_for(Filter(state=record.state))[0]


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
        (filter.hold, record.hold),
        (filter.queue, queue_of(record.queue)),
        (filter.task, record.task),
        (filter.fingerprint, record.fingerprint),
        (filter.release, release_of(record.session) or ""),
    )
    is_wanted = all(want is None or want == have for want, have in wanted)
    if filter.fingerprint is not None or filter.release is not None:
        is_wanted = is_wanted and record.state is State.DEAD
    if filter.suspects and _index_of(record) is not JobIndex.SUSPECT:
        return False
    return is_wanted and filter.includes_instant(record.created_ms)

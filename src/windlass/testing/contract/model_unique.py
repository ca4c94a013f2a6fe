"""Unique keys of the model: the holder of a key, and the reply to a job with a held key."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from windlass.core.queues.labels import queue_of
from windlass.core.states import Event, Reason, State
from windlass.core.unique import QUEUED, OnConflict, is_held
from windlass.engine.contract import MIN_RECORD_MS, NewJob, Placed, PutCode, UniqueKey

if TYPE_CHECKING:
    from windlass.testing.contract.model_job import ModelJob
    from windlass.testing.contract.model_state import ModelState


class ReplacedPut(NamedTuple):
    """A put that a later put replaced."""

    id: str  # id of the job that took the call
    until_ms: int


def find_holder(model: ModelState, task: str, key: str) -> ModelJob | None:
    """Return the last job stored under a key, if its state or period holds the key."""
    job = model.jobs.get(model.last_stored.get((task, key), ""))
    if job is None:
        return None
    held = is_held(job.unique_until, job.record.state, job.period_until_ms, model.now_ms)
    return job if held else None


def meet(model: ModelState, new: NewJob, unique: UniqueKey) -> Placed | None:
    """Return the reply to a job that must not be stored. A repeated put that replaced a call is
    recognised by its id, also after a later put replaced its call."""
    if unique.on_conflict is OnConflict.REPLACE:
        for job in model.jobs.values():
            if job.replaced_by == new.id:
                return Placed(job.record.id, PutCode.REPLACED)
        known = model.replaced_puts.get(new.id)
        if known is not None and known.until_ms > model.now_ms:
            return Placed(known.id, PutCode.REPLACED)
    holder = _find_obstacle(model, new.task, unique.key)
    if holder is None:
        return None
    id = holder.record.id
    if unique.on_conflict is OnConflict.RETURN:
        return Placed(id, PutCode.EXISTING)
    if unique.on_conflict is OnConflict.RAISE or holder.record.state not in QUEUED:
        return Placed(id, PutCode.DUPLICATE)
    _replace(model, holder, new)
    return Placed(id, PutCode.REPLACED)


def _find_obstacle(model: ModelState, task: str, key: str) -> ModelJob | None:
    """Return the holder that blocks a new job. A holder that has expired is cancelled first."""
    job = find_holder(model, task, key)
    if job is None or job.record.state not in QUEUED:
        return job
    if job.record.expires_ms is None or job.record.expires_ms > model.now_ms:
        return job
    if job.record.state is not State.READY:
        model.move(job, Event.DUE, due_ms=None)
    model.move(job, Event.EXPIRE, reason=Reason.EXPIRED)
    return find_holder(model, task, key)


def _replace(model: ModelState, holder: ModelJob, new: NewJob) -> None:
    """Replace the call of the holder. The holder keeps its place in the queue if it stays ready."""
    if holder.replaced_by:
        until_ms = model.now_ms + MIN_RECORD_MS
        model.replaced_puts[holder.replaced_by] = ReplacedPut(holder.record.id, until_ms)
    is_in_line, queue = holder.record.state is State.READY, queue_of(holder.record.queue)
    holder.replace(new, model.now_ms)
    is_ready = holder.record.state is State.READY
    if is_ready and not is_in_line:
        model.sequence += 1
        holder.place, holder.ready_ms = model.sequence, model.now_ms
    if not (is_ready and is_in_line and queue_of(new.queue) == queue):
        holder.age = model.age_of(new.queue) if is_ready else 0
    model.totals["replaced"] += 1

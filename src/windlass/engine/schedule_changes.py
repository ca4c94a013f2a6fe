"""Compute changes of schedules from their records.

1. `read` decodes a record.
2. `fire` computes what is due at a given time.
3. `declare` compares the declaration of a worker with the stored one.
4. `enter`, `alter` and `run_now` compute the changes that a caller asks for.

This module makes no request to an engine: the caller passes the change to `change_schedules`, which
applies the change if the record has not changed since it was read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from windlass.core.ids import new_id
from windlass.core.schedules import state
from windlass.core.schedules.declarations import Declared, Standing, fingerprint
from windlass.core.schedules.declarations import declare as compare
from windlass.core.schedules.occurrences import occurrence_id, run_ms
from windlass.core.schedules.state import Note, ScheduleEntry, ScheduleStep
from windlass.engine.contract import NewJob, ScheduleChange, ScheduleRecord

#: A schedule watches at most this many of its runs, the newest ones.
MOST_WATCHED: Final = 10
#: A declaration older than this is stored again. A newer one is not, to avoid a write per worker
#: and check.
RENEW_AFTER_MS: Final = 30_000


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    change: ScheduleChange
    step: ScheduleStep


def new_revision() -> str:
    return os.urandom(12).hex()


def read(record: ScheduleRecord) -> tuple[ScheduleEntry, Note]:
    """Decode a record. Raises `DecodeError` or `NewerFormat` if that fails."""
    return ScheduleEntry.unpack(record.body), Note.unpack(record.note)


def fire(record: ScheduleRecord, now_ms: int, partition: int) -> Firing:
    entry, note = read(record)
    step = state.decide(entry.schedule, note, now_ms, is_unfinished=bool(record.unfinished))
    jobs: list[NewJob] = []
    for at_ms in step.run:
        starts_ms = run_ms(entry.schedule, record.name, at_ms)
        after_ms = starts_ms if starts_ms > at_ms else None
        jobs.append(_job(entry, occurrence_id(record.name, at_ms, partition), after_ms))
    change = alter(
        record,
        step.note,
        now_ms,
        watched=_watched(entry, record, jobs),
        cancelled=record.unfinished if step.cancels else (),
        jobs=tuple(jobs),
    )
    return Firing(change=change, step=step)


def _job(entry: ScheduleEntry, job_id: str, run_after_ms: int | None = None) -> NewJob:
    return NewJob(
        id=job_id,
        task=entry.task,
        queue=entry.queue,
        payload=entry.envelope,
        priority=entry.priority,
        run_after_ms=run_after_ms,
        expires_in_ms=entry.expires_in_ms,
    )


def _watched(
    entry: ScheduleEntry, record: ScheduleRecord, jobs: Sequence[NewJob]
) -> tuple[str, ...]:
    """List runs to watch, only if `overlap` needs them: each read looks up every one."""
    if entry.schedule.overlap == "allow":
        return ()
    ids = (*record.unfinished, *(job.id for job in jobs))
    return ids[-MOST_WATCHED:]


def declare(
    record: ScheduleRecord | None, name: str, body: bytes, version: int, now_ms: int
) -> tuple[Standing, ScheduleChange | None]:
    """Compare a worker's declaration with the stored one; no change if nothing is new."""
    schedule = ScheduleEntry.unpack(body).schedule
    note = None if record is None else Note.unpack(record.note)
    known = None if note is None else note.declared
    if note is not None and known is None:
        return Standing.OUTDATED, None  # a caller has saved a schedule of this name at run time
    standing, declared = compare(known, fingerprint(schedule, body), now_ms, version=version)
    if record is None or note is None:
        begun = state.declared_again(state.made(schedule, now_ms), declared)
        return standing, enter(name, body, begun, now_ms)
    if standing is Standing.OUTDATED:
        return standing, None
    if standing is Standing.CURRENT and not _is_worth_noting(known, note, now_ms):
        return standing, None
    note = state.declared_again(note, declared)
    if standing is Standing.CURRENT:
        return standing, alter(record, note, now_ms)
    note = state.replaced(note, schedule, now_ms)
    return standing, alter(record, note, now_ms, body)


def _is_worth_noting(known: Declared | None, note: Note, now_ms: int) -> bool:
    is_old = known is None or now_ms - known.declared_ms >= RENEW_AFTER_MS
    return is_old or note.paused == "abandoned"


# ------------------------------------------------------------------------------ requests of callers


def enter(name: str, body: bytes, note: Note, now_ms: int) -> ScheduleChange:
    """Make the change that creates a schedule."""
    return ScheduleChange(
        name=name,
        expected="",
        revision=new_revision(),
        due_ms=note.due_ms(now_ms),
        note=note.pack(),
        body=body,
    )


def run_now(record: ScheduleRecord, now_ms: int, partition: int) -> ScheduleChange:
    """Make the change for an extra run, which later occurrences treat as an earlier run."""
    entry, note = read(record)
    jobs = (_job(entry, new_id(time.time_ns() // 1_000_000, partition)),)
    change = alter(record, note, now_ms, watched=_watched(entry, record, jobs), jobs=jobs)
    return msgspec.structs.replace(change, due_ms=record.due_ms)


def alter(
    record: ScheduleRecord,
    note: Note,
    now_ms: int,
    body: bytes | None = None,
    *,
    watched: tuple[str, ...] | None = None,
    cancelled: tuple[str, ...] = (),
    jobs: tuple[NewJob, ...] = (),
) -> ScheduleChange:
    return ScheduleChange(
        name=record.name,
        expected=record.revision,
        revision=new_revision(),
        due_ms=note.due_ms(now_ms),
        note=note.pack(),
        body=body,
        watched=record.watched if watched is None else watched,
        cancelled=cancelled,
        jobs=jobs,
    )

"""Dead letters as the app shows them.

1. `DeadLetter` is a dead job with its history. `DeadGroup` is a group of similar failures, with
   the releases in which they died.
2. `log_summary` returns the fields of the log line about a dead job that is about to be removed.
3. `read_each` reads records even if one of them is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from windlass.client.payloads import PLAIN, Packing, describe_unreadable
from windlass.core.durations import instant
from windlass.core.failures import FailureText
from windlass.core.ids import release_of
from windlass.core.queues.labels import queue_of
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.frame import Seal
from windlass.core.states import Event, Reason, State
from windlass.engine.contract import Engine, Failure, JobRecord
from windlass.errors import DecodeError, EngineError
from windlass.job import latest_error

#: At most this many characters of a call are logged before its dead letter is removed. Workers
#: write hundreds of these lines at a time. Arguments are often personal data, and log collectors
#: cut long lines.
MAX_LOGGED: Final = 1024


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One entry in the history of a job: a failed attempt, or an edit of its call."""

    number: int
    event: str  # retry, bury, crash, suspect or lose; revive: the call was changed by hand
    started_at: datetime | None
    ended_at: datetime
    worker: str | None
    error: FailureText | None
    call: str | None = None  # the call that was replaced

    @classmethod
    def of(cls, failure: Failure, task: str, packing: Packing) -> Attempt:
        is_edit = failure.event == Event.REVIVE
        return cls(
            number=failure.attempt,
            event=failure.event,
            started_at=instant(failure.started_ms),
            ended_at=instant(failure.at_ms),
            worker=failure.session,
            error=None if is_edit or not failure.error else FailureText.unpack(failure.error),
            call=packing.call_text(failure.error, task) if is_edit else None,
        )


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead job at one instant."""

    id: str
    task: str
    queue: str
    reason: Reason | None
    fingerprint: str  # the same for similar failures
    release: str  # of the worker of the last attempt; empty for none
    attempts: int
    enqueued_at: datetime
    started_at: datetime | None  # the latest start
    died_at: datetime
    worker: str | None  # the worker of the last attempt
    call: str  # the stored arguments as JSON, or why they cannot be read
    error: FailureText | None  # the latest error
    history: tuple[Attempt, ...]  # oldest first

    @classmethod
    def of(cls, record: JobRecord, packing: Packing) -> DeadLetter:
        fingerprint = record.fingerprint or fingerprint_of(record, packing)
        record = packing.reveal_failures(record)
        return cls(
            id=record.id,
            task=record.task,
            queue=queue_of(record.queue),
            reason=record.reason,
            fingerprint=fingerprint,
            release=release_of(record.session) or "",
            attempts=record.counters.attempt,
            enqueued_at=instant(record.created_ms),
            started_at=instant(record.started_ms),
            died_at=instant(record.finished_ms or 0),
            worker=record.session,
            call=packing.call_text(record.payload, record.task),
            error=latest_error(record),
            history=tuple(Attempt.of(one, record.task, packing) for one in record.failures),
        )


class DeadRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The dead jobs of a group whose last attempt was of one release."""

    release: str  # empty for workers without one
    count: int
    first_at: datetime
    last_at: datetime


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one task with the same fingerprint: similar failures."""

    fingerprint: str
    task: str
    count: int
    first_at: datetime  # when the first of the stored jobs died
    last_at: datetime
    example: str  # the id of the job that died last
    reason: Reason | None  # why that job died
    error: FailureText | None
    queues: Mapping[str, int] = {}  # queue -> number of jobs
    releases: tuple[DeadRelease, ...] = ()  # the one with the latest death first
    is_new: bool | None = None  # since the release that was asked for


def fingerprint_of(record: JobRecord, packing: Packing) -> str:
    """Compute the fingerprint of the latest error, or of the reason if there is no error. "" if
    this app cannot decrypt the error."""
    error = latest_error(record) or FailureText(message=str(record.reason))
    if not error.sealed:
        return error.fingerprint
    return packing.keyed_fingerprint(
        packing.open_failure(error, record.task, record.id).fingerprint
    )


def shown_fingerprint(record: JobRecord, packing: Packing) -> str | None:
    """The stored fingerprint of a dead job, or the computed one if it has none; None for others."""
    if record.state is not State.DEAD:
        return None
    return record.fingerprint or fingerprint_of(record, packing)


def log_summary(record: JobRecord, redact: Callable[[str, str], str]) -> tuple[str, str, str, str]:
    """Id, task, reason and call of a job, for the log line before the job is removed or changed. A
    job that has not ended has its state in place of a reason. An encrypted call stays encrypted,
    even if this app has the key; `redact` gets the task and the text of another one."""
    call = redact(record.task, _loggable_call(record)).replace("\n", "\\n")
    if len(call) > MAX_LOGGED:
        call = f"{call[:MAX_LOGGED]}... ({len(call):,} characters)"
    return record.id, record.task, str(record.reason or record.state), call


class Unreadable(msgspec.Struct, frozen=True):
    """Placeholder for a job record that is damaged, or written by a newer version."""

    id: str
    why: str


def read_each(engine: Engine, ids: Sequence[str]) -> list[JobRecord | Unreadable | None]:
    """Read records, with `Unreadable` in place of each damaged record. Raises errors of the engine
    itself: they do not mean that a record is damaged."""
    try:
        return list(engine.get(ids))
    except EngineError:
        raise
    except Exception:  # noqa: BLE001  # a decoder can raise anything on damaged bytes
        return [_read(engine, job_id) for job_id in ids]


def _read(engine: Engine, job_id: str) -> JobRecord | Unreadable | None:
    try:
        return engine.get([job_id])[0]
    except EngineError:
        raise
    except Exception as error:  # noqa: BLE001  # a decoder can raise anything on damaged bytes
        return Unreadable(job_id, f"{type(error).__name__}: {error}")


def _loggable_call(record: JobRecord) -> str:
    with suppress(DecodeError):
        envelope = unpack(record.payload, record.task)
        if envelope.seal == Seal.ENCRYPTED or envelope.codec == "pickle":
            return f"({describe_unreadable(record.payload, record.task)})"
    return PLAIN.call_text(record.payload, record.task)

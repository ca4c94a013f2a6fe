"""What is kept of a dead job, as it is shown: the whole letter, groups of those that are alike, and
the line that is logged before one is gone. And how records are read of which one may be damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from windlass.client.payloads import PLAIN, Packing, describe_unreadable
from windlass.core.failures import FailureText
from windlass.core.queues.labels import queue_of
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.seals import Seal
from windlass.core.states import Event, Reason
from windlass.engine.contract import Engine, Failure, JobRecord
from windlass.errors import DecodeError, EngineError
from windlass.job import instant, latest_error

#: So much of a call is logged before a letter is gone, in characters. Workers write these lines
#: unasked, hundreds at a time: arguments are personal data more often than not, and log collectors
#: cut long lines.
MAX_LOGGED: Final = 1024


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a history: how an attempt ended that did not succeed, or a changed call."""

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
            started_at=None if failure.started_ms is None else instant(failure.started_ms),
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
    fingerprint: str  # the same for failures that are alike; "" where they cannot be decrypted
    attempts: int
    enqueued_at: datetime
    started_at: datetime | None  # the latest start
    died_at: datetime
    worker: str | None  # who ran it last
    call: str  # the stored arguments as JSON, or why they cannot be read
    error: FailureText | None  # the latest one
    history: tuple[Attempt, ...]  # oldest first

    @classmethod
    def of(cls, record: JobRecord, packing: Packing) -> DeadLetter:
        record = packing.reveal_failures(record)
        return cls(
            id=record.id,
            task=record.task,
            queue=queue_of(record.queue),
            reason=record.reason,
            fingerprint=fingerprint_of(record),
            attempts=record.counters.attempt,
            enqueued_at=instant(record.created_ms),
            started_at=None if record.started_ms is None else instant(record.started_ms),
            died_at=instant(record.finished_ms or 0),
            worker=record.session,
            call=packing.call_text(record.payload, record.task),
            error=latest_error(record),
            history=tuple(Attempt.of(one, record.task, packing) for one in record.failures),
        )


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one task that failed alike."""

    fingerprint: str
    task: str
    count: int
    first_at: datetime  # when the first of them died that is still kept
    last_at: datetime
    example: str  # the id of the newest one
    reason: Reason | None  # and how that one ended
    error: FailureText | None


def fingerprint_of(record: JobRecord) -> str:
    """Of the latest error; a job that has none goes by its reason."""
    error = latest_error(record) or FailureText(message=str(record.reason))
    return error.fingerprint


def last_words(record: JobRecord) -> tuple[str, str, str, str]:
    """Id, task, reason and call of a job that is about to be gone, for one line of a log: after
    that nobody can look them up. What is encrypted stays so, whoever has the key."""
    call = _loggable_call(record).replace("\n", "\\n")
    if len(call) > MAX_LOGGED:
        call = f"{call[:MAX_LOGGED]}... ({len(call):,} characters)"
    return record.id, record.task, str(record.reason), call


class Unreadable(msgspec.Struct, frozen=True):
    """A job that is there, and whose record says nothing to us: it is damaged, or a newer version
    wrote it."""

    id: str
    why: str


def read_each(engine: Engine, ids: Sequence[str]) -> list[JobRecord | Unreadable | None]:
    """Records read so that one which cannot be read keeps nobody from the others. An engine that
    does not answer, or refuses, says nothing of any record: its errors are raised."""
    try:
        return list(engine.get(ids))
    except EngineError:
        raise
    except Exception:  # noqa: BLE001  # whatever a decoder says of damaged bytes
        return [_read(engine, job_id) for job_id in ids]


def _read(engine: Engine, job_id: str) -> JobRecord | Unreadable | None:
    try:
        return engine.get([job_id])[0]
    except EngineError:
        raise
    except Exception as error:  # noqa: BLE001  # as above
        return Unreadable(job_id, f"{type(error).__name__}: {error}")


def _loggable_call(record: JobRecord) -> str:
    with suppress(DecodeError):
        envelope = unpack(record.payload)
        if envelope.seal == Seal.ENCRYPTED or envelope.codec == "pickle":
            return f"({describe_unreadable(record.payload)})"
    return PLAIN.call_text(record.payload, record.task)


class DeadAlert(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs pile up: what `@app.on_dead_alert` is told."""

    kind: str  # "depth": there are too many; "growth": they become more too fast
    dead: int  # how many there are
    grown: int  # how many died within the last five minutes
    threshold: int  # what one of the two has gone beyond


AlertHook = Callable[[DeadAlert], object]

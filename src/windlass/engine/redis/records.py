"""From stored bytes to the values of the contract: records of jobs, their history, claims."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.core.states import Counters, Hold, Reason, State
from windlass.engine.contract import Claim, Failure, JobRecord


class Record(msgspec.Struct, array_like=True, frozen=True):
    """A record as the scripts store it: the fields in the order of `include/records.lua`."""

    task: str
    queue: str
    priority: int
    created_ms: int
    row: int
    place: int
    state: str
    hold: str
    reason: str
    suspect: int
    cancel_requested: int
    attempt: int
    starts: int
    crashes: int
    losses: int
    interruptions: int
    snoozes: int
    strays: int
    ready_ms: int
    due_ms: int
    expires_ms: int
    started_ms: int
    finished_ms: int
    result_ms: int
    session: str
    token: str
    last_token: str
    last_event: str
    failures: int
    has_progress: int

    @property
    def counters(self) -> Counters:
        return Counters(
            self.attempt,
            self.starts,
            self.crashes,
            self.losses,
            self.interruptions,
            self.snoozes,
            self.strays,
        )


class _FailureHead(msgspec.Struct, array_like=True, frozen=True):
    at_ms: int
    event: str
    attempt: int
    session: str


_record = msgspec.msgpack.Decoder(Record)
_failure_head = msgspec.msgpack.Decoder(_FailureHead)
decode = _record.decode


def to_claim(job_id: str, record: Record, body: bytes) -> Claim:
    return Claim(
        id=job_id,
        token=record.token,
        task=record.task,
        queue=record.queue,
        priority=record.priority,
        payload=body,
        counters=record.counters,
        created_ms=record.created_ms,
        suspect=bool(record.suspect),
    )


def to_whole_record(job_id: str, parts: Sequence[bytes | None], now_ms: int) -> JobRecord:
    """The answer to `get`: record, body, progress, result and history."""
    packed, body, progress, result, *history = parts
    assert packed is not None, "a job that is known has a record"
    record = decode(packed)
    shown = to_record(job_id, record, now_ms)
    return msgspec.structs.replace(
        shown,
        payload=body or b"",
        progress=progress if record.has_progress else None,
        result=result if shown.has_result else None,
        failures=tuple(_to_failure(entry) for entry in history if entry is not None),
    )


def to_record(job_id: str, record: Record, now_ms: int) -> JobRecord:
    """What a record says alone, without bodies and history."""
    return JobRecord(
        id=job_id,
        task=record.task,
        queue=record.queue,
        priority=record.priority,
        state=State(record.state),
        hold=Hold(record.hold),
        reason=Reason(record.reason) if record.reason else None,
        counters=record.counters,
        created_ms=record.created_ms,
        due_ms=_instant(record.due_ms),
        expires_ms=_instant(record.expires_ms),
        started_ms=_instant(record.started_ms),
        finished_ms=_instant(record.finished_ms),
        session=record.session or None,
        cancel_requested=bool(record.cancel_requested),
        suspect=bool(record.suspect),
        has_result=record.result_ms > now_ms,
    )


def _to_failure(packed: bytes) -> Failure:
    start = 2 + int.from_bytes(packed[:2], "big")
    head = _failure_head.decode(packed[2:start])
    return Failure(
        at_ms=head.at_ms,
        event=head.event,
        attempt=head.attempt,
        session=head.session or None,
        error=packed[start:],
    )


def _instant(milliseconds: int) -> int | None:
    return None if milliseconds < 0 else milliseconds

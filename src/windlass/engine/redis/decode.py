"""Decode stored bytes and messages into values of the contract: records of jobs, histories, claims,
wake-ups and hand-offs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from windlass.core.states import Counters, Event, Hold, Reason, State
from windlass.engine.contract import Batch, Claim, Failure, JobEnd, JobRecord, WakeUp


class Record(msgspec.Struct, kw_only=True):
    """A stored record. A field that the record does not have has its default."""

    row: int
    place: int
    created_ms: int
    ready_ms: int
    priority: int = 0
    attempt: int = 0
    starts: int = 0
    started_ms: int = -1
    has_progress: int = 0
    suspect: int = 0
    cancel_requested: int = 0
    due_ms: int = -1
    finished_ms: int = -1
    result_ms: int = -1
    expires_ms: int = -1
    crashes: int = 0
    losses: int = 0
    interruptions: int = 0
    snoozes: int = 0
    strays: int = 0
    failures: int = 0
    age: int = 0
    queue: str = ""
    task: str = ""
    unique: str = ""
    last_event: str = ""
    last_token: str = ""
    state: State = State.READY
    hold: Hold = Hold.NONE
    reason: str = ""
    session: str = ""
    token: str = ""
    call: bytes | None = None  # None if it is stored apart
    result: bytes | None = None  # None if there is none, or it is stored apart
    fingerprint: str = ""

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
    started_ms: int = -1  # missing in older history entries


_failure_head = msgspec.msgpack.Decoder(_FailureHead)
#: The counters of a job that was started once, and nothing else.
_ONCE: Final = Counters(1, 1, 0, 0, 0, 0, 0)

#: The head of a record, and the groups of its tail, as in `lib/layout.lua`. A six-byte number is
#: read as two and four bytes.
_HEAD: Final = struct.Struct(">HHIHIbHH")
_SIZES_AT: Final = _HEAD.size - 4  # the sizes of queue and task, at the end of the head
_RUN: Final = struct.Struct(">IIhIBBhIHHBH")
_STARTED: Final = struct.Struct(">8xhI")  # started_ms, after attempt and starts
_PLACES: Final = struct.Struct(">HIhII")
_BUDGETS: Final = struct.Struct(">6I")
_MARKS: Final = struct.Struct(">4B")
_RESULT: Final = struct.Struct(">hIH")
_INSTANT: Final = struct.Struct(">hI")
_SIZE: Final = struct.Struct(">H")
_EXPIRES, _UNIQUE, _APART = 1, 2, 4
_HAS_RUN, _HAS_DUE, _HAS_PLACE, _HAS_BUDGETS, _HAS_MARKS, _HAS_RESULT = 16, 32, 64, 128, 256, 512
_HAS_DEATH: Final = 1024
_TAIL: Final = 16  # records with a lower number of flags have no tail
_RESULT_APART: Final = 0xFFFF
#: Codes of states, holds and events: their positions in these lists, from 1 on.
_STATES: Final = (None, *State)
_HOLDS: Final = (None, *Hold)
_EVENTS: Final = (
    *(None, "", Event.SUCCEED, Event.RETRY, Event.BURY, Event.RELEASE, Event.SNOOZE),
    Event.UNROUTABLE,
)
#: Values of `has_progress`.
_PROGRESS: Final = 1
_WHY_HELD: Final = 2
#: First byte of a message: sessions that should claim, a hand-off, or a request to the worker to
#: register again and learn when the next job is due.
_LOOK: Final = b"?"
_HANDED: Final = b"!"
RENEW: Final = b"~"
#: Head of a hand-off: the sizes of session, nonce, id and record.
_SIZES: Final = struct.Struct(">HHHH")
_sessions = msgspec.msgpack.Decoder(list[str])


def decode(packed: bytes) -> Record:
    """Decode a record."""
    flags, row_high, row_low, created_high, created_low, priority, *sizes = _HEAD.unpack_from(
        packed
    )
    row, created_ms = row_high << 32 | row_low, created_high << 32 | created_low
    record = Record(row=row, place=row, created_ms=created_ms, ready_ms=created_ms)
    record.priority = priority
    at = _HEAD.size
    at = _read_texts(record, packed, at, ("queue", "task"), sizes)
    if flags & _EXPIRES:
        record.expires_ms, at = _read_instant(packed, at)
    if flags & _UNIQUE:
        at = _read_texts(
            record, packed, at + _SIZE.size, ("unique",), _SIZE.unpack_from(packed, at)
        )
    tail_at = len(packed)
    if flags >= _TAIL:
        tail_at -= int.from_bytes(packed[-2:])
        _read_tail(record, flags, packed, tail_at)
    if not flags & _APART:
        record.call = packed[at:tail_at]
    return record


def _read_tail(record: Record, flags: int, packed: bytes, at: int) -> None:
    if flags & _HAS_RUN:
        at = _read_run(record, packed, at)
    if flags & _HAS_DUE:
        record.due_ms, at = _read_instant(packed, at)
    if flags & _HAS_PLACE:
        place_high, place_low, ready_high, ready_low, record.age = _PLACES.unpack_from(packed, at)
        record.place = place_high << 32 | place_low
        record.ready_ms = ready_high << 32 | ready_low
        at += _PLACES.size
    if flags & _HAS_BUDGETS:
        (
            record.crashes,
            record.losses,
            record.interruptions,
            record.snoozes,
            record.strays,
            record.failures,
        ) = _BUDGETS.unpack_from(packed, at)
        at += _BUDGETS.size
    if flags & _HAS_MARKS:
        hold, record.suspect, record.cancel_requested, record.has_progress = _MARKS.unpack_from(
            packed, at
        )
        record.hold = _HOLDS[hold] or Hold.NONE
        at += _MARKS.size
    if flags & _HAS_RESULT:
        high, low, size = _RESULT.unpack_from(packed, at)
        record.result_ms = high << 32 | low
        at += _RESULT.size
        record.result = None if size == _RESULT_APART else packed[at : at + size]
        at += len(record.result or b"")
    if flags & _HAS_DEATH:
        record.fingerprint = packed[at + 1 : at + 1 + packed[at]].decode()
    if not flags & _HAS_RUN and record.hold is Hold.NONE and record.due_ms >= 0:
        record.state = State.SCHEDULED
        if not flags & _HAS_PLACE:
            record.ready_ms = -1


def _read_run(record: Record, packed: bytes, at: int) -> int:
    run = _RUN.unpack_from(packed, at)
    record.attempt, record.starts = run[:2]
    record.started_ms, record.finished_ms = run[2] << 32 | run[3], run[6] << 32 | run[7]
    record.state = _STATES[run[4]] or State.READY
    record.last_event = _EVENTS[run[5]] or ""
    names = ("session", "last_token", "reason", "token")
    return _read_texts(record, packed, at + _RUN.size, names, run[8:])


def _read_texts(
    record: Record, packed: bytes, at: int, names: Sequence[str], sizes: Sequence[int]
) -> int:
    """Read texts into fields of a record; return where the last one ends."""
    for name, size in zip(names, sizes, strict=True):
        if size:
            setattr(record, name, packed[at : at + size].decode())
        at += size
    return at


def _read_instant(packed: bytes, at: int) -> tuple[int, int]:
    high, low = _INSTANT.unpack_from(packed, at)
    return high << 32 | low, at + _INSTANT.size


def to_claims(jobs: Sequence[bytes], token: str) -> list[tuple[int, int, Claim]]:
    """Decode jobs that were claimed together into rank, place in line and claim. Each job has an
    id, a record, and the body of a call that was stored apart. Jobs that were claimed once, the
    usual case, are decoded here, because this runs for every job. They have in common when they
    were claimed, and most of them their queue and task."""
    claims: list[tuple[int, int, Claim]] = []
    if not jobs:
        return claims
    started_ms = _started_ms(jobs[1])
    unpack_head, names_at, from_bytes = _HEAD.unpack_from, _HEAD.size, int.from_bytes
    known: dict[bytes, tuple[str, str]] = {}  # sizes and texts -> queue and task
    for job_id, packed, body in zip(jobs[::3], jobs[1::3], jobs[2::3], strict=True):
        flags, row_high, row_low, created_high, created_low, priority, queue_size, task_size = (
            unpack_head(packed)
        )
        if flags != _HAS_RUN:
            claims.append(_to_other_claim(job_id.decode(), decode(packed), body, token))
            continue
        call_at = names_at + queue_size + task_size
        names = packed[_SIZES_AT:call_at]
        if names not in known:
            task_at = names_at + queue_size
            known[names] = (packed[names_at:task_at].decode(), packed[task_at:call_at].decode())
        queue, task = known[names]
        created_ms = created_high << 32 | created_low
        claim = Claim(
            id=job_id.decode(),
            token=token,
            task=task,
            queue=queue,
            priority=priority,
            payload=packed[call_at : -from_bytes(packed[-2:])],
            counters=_ONCE,
            created_ms=created_ms,
            waited_ms=started_ms - created_ms if started_ms > created_ms else 0,
        )
        claims.append((-priority, row_high << 32 | row_low, claim))
    return claims


def _started_ms(packed: bytes) -> int:
    """When the job of a record was claimed."""
    high, low = _STARTED.unpack_from(packed, -int.from_bytes(packed[-2:]))
    return int(high << 32 | low)


def _to_other_claim(job_id: str, record: Record, body: bytes, token: str) -> tuple[int, int, Claim]:
    claim = Claim(
        id=job_id,
        token=token,
        task=record.task,
        queue=record.queue,
        priority=record.priority,
        payload=body if record.call is None else record.call,
        counters=record.counters,
        created_ms=record.created_ms,
        suspect=record.suspect == 1,
        waited_ms=max(0, record.started_ms - record.ready_ms),
    )
    return record.age - record.priority, record.place, claim


def to_whole_record(job_id: str, parts: Sequence[bytes | None], now_ms: int) -> JobRecord:
    """Decode the reply of `get`: record, body, progress or why it is held, result and history."""
    packed, body, progress, result, *history = parts
    assert packed is not None, "a job that is known has a record"
    record = decode(packed)
    return to_record(
        job_id,
        record,
        now_ms,
        payload=(body or b"") if record.call is None else record.call,
        progress=progress,
        result=_result_of(record, result, now_ms),
        failures=tuple([_to_failure(entry) for entry in history if entry is not None]),
        fingerprint=record.fingerprint,
    )


def to_record(
    job_id: str, record: Record, now_ms: int, progress: bytes | None, **details: Any
) -> JobRecord:
    """Decode a record; other keys store the other arguments. The place of the progress has the
    reason instead while a job is held."""
    return JobRecord(
        id=job_id,
        task=record.task,
        queue=record.queue,
        priority=record.priority,
        state=record.state,
        hold=record.hold,
        reason=Reason(record.reason) if record.reason else None,
        counters=record.counters,
        created_ms=record.created_ms,
        due_ms=None if record.hold == Hold.PAUSED else _instant(record.due_ms),
        expires_ms=_instant(record.expires_ms),
        started_ms=_instant(record.started_ms),
        finished_ms=_instant(record.finished_ms),
        session=record.session or None,
        cancel_requested=bool(record.cancel_requested),
        suspect=bool(record.suspect),
        progress=progress if record.has_progress == _PROGRESS else None,
        has_result=record.result_ms > now_ms,
        unique_key=record.unique.split(" ", 2)[2] if record.unique else None,
        held_because=progress if record.has_progress == _WHY_HELD else None,
        **details,
    )


def to_end(job_id: str, parts: Sequence[bytes | None], now_ms: int) -> JobEnd:
    """Decode the reply of `ends`: record, result and the newest entry of the history."""
    packed, result, entry = parts
    assert packed is not None, "a job that is known has a record"
    record = decode(packed)
    return JobEnd(
        id=job_id,
        task=record.task,
        state=record.state,
        reason=Reason(record.reason) if record.reason else None,
        finished_ms=_instant(record.finished_ms),
        result=_result_of(record, result, now_ms),
        failure=None if entry is None else _to_failure(entry),
    )


def wake_ups(message: bytes) -> list[WakeUp]:
    """Decode the wake-ups in a message."""
    kind = message[:1]
    if kind == _HANDED:
        session_size, *_ = _SIZES.unpack_from(message, 1)
        session = message[1 + _SIZES.size : 1 + _SIZES.size + session_size].decode()
        return [WakeUp(session, message[1:])]
    if kind == _LOOK:
        return [WakeUp(session) for session in _sessions.decode(message[1:])]
    return []


def to_handed(handed: bytes, nonce: str) -> Batch | None:
    """Decode a hand-off; None if it was made under another nonce."""
    session_size, nonce_size, id_size, record_size = _SIZES.unpack_from(handed)
    nonce_at = _SIZES.size + session_size
    id_at = nonce_at + nonce_size
    record_at = id_at + id_size
    body_at = record_at + record_size
    if not nonce or handed[nonce_at:id_at] != nonce.encode():
        return None
    job_id, record = handed[id_at:record_at], handed[record_at:body_at]
    [(_, _, claim)] = to_claims((job_id, record, handed[body_at:]), nonce)
    return Batch(claims=(claim,))


def _result_of(record: Record, stored: bytes | None, now_ms: int) -> bytes | None:
    """The result of a job, from its record or from where it is stored apart."""
    if record.result_ms <= now_ms:
        return None
    return stored if record.result is None else record.result


def _to_failure(packed: bytes) -> Failure:
    start = 2 + int.from_bytes(packed[:2], "big")
    head = _failure_head.decode(packed[2:start])
    return Failure(
        at_ms=head.at_ms,
        event=head.event,
        attempt=head.attempt,
        session=head.session or None,
        started_ms=_instant(head.started_ms),
        error=packed[start:],
    )


def _instant(milliseconds: int) -> int | None:
    return None if milliseconds < 0 else milliseconds

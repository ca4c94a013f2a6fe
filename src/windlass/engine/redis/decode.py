"""Decode stored bytes and messages into values of the contract: records of jobs, histories, claims,
wake-ups and hand-offs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from windlass.core.states import Counters, Hold, Reason, State
from windlass.engine.contract import Batch, Claim, Failure, JobEnd, JobRecord, WakeUp


class Record(msgspec.Struct, frozen=True):
    """A stored record: its fields in the order of `lib/layout.lua`."""

    attempt: int
    starts: int
    started_ms: int
    has_progress: int
    suspect: int
    cancel_requested: int
    due_ms: int
    finished_ms: int
    result_ms: int
    priority: int
    created_ms: int
    row: int
    place: int
    expires_ms: int
    ready_ms: int
    crashes: int
    losses: int
    interruptions: int
    snoozes: int
    strays: int
    failures: int
    age: int
    queue: str
    task: str
    unique: str
    last_event: str
    last_token: str
    state: str
    hold: str
    reason: str
    session: str
    token: str

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

#: Number fields of a record. A six-byte number is read as two and four bytes.
_NUMBERS: Final = struct.Struct(">2IhI3B" + "hI" * 3 + "BH3B2H" + "b" + "hI" * 5 + "7I3H")
#: Where the sizes of the last texts, the priority, and the sizes of the first texts are among them.
_LAST_SIZES: Final = 13
_PRIORITY: Final = 20
_FIRST_SIZES: Final = 38
#: Values of `has_progress`.
_PROGRESS: Final = 1
_WHY_HELD: Final = 2
_STATES: Final = {str(state): state for state in State}
_HOLDS: Final = {str(hold): hold for hold in Hold}
#: The numbers that a claim needs: attempt, starts, suspect, priority, created_ms, place, the other
#: counters, age, the sizes of queue and task.
_CLAIMED: Final = struct.Struct(">2I7xB" + "29x" + "bhI6xhI12x" + "5I4xI2H2x")
#: First byte of a message: sessions that should claim, a hand-off, or a request to the worker to
#: register again and learn when the next job is due.
_LOOK: Final = b"?"
_HANDED: Final = b"!"
RENEW: Final = b"~"
#: Head of a hand-off: the sizes of session, nonce, id and record.
_SIZES: Final = struct.Struct(">HHHH")
_sessions = msgspec.msgpack.Decoder(list[str])


def decode(packed: bytes) -> Record:
    """Decode a record. Unrolled for speed: a call may read thousands of jobs."""
    n = _NUMBERS.unpack_from(packed)
    texts: list[str] = []
    at = _NUMBERS.size
    for size in (*n[_FIRST_SIZES:], *n[_LAST_SIZES:_PRIORITY]):
        texts.append(packed[at : at + size].decode() if size else "")
        at += size
    return Record(
        n[0],
        n[1],
        n[2] << 32 | n[3],
        n[4],
        n[5],
        n[6],
        n[7] << 32 | n[8],
        n[9] << 32 | n[10],
        n[11] << 32 | n[12],
        n[_PRIORITY],
        n[21] << 32 | n[22],
        n[23] << 32 | n[24],
        n[25] << 32 | n[26],
        n[27] << 32 | n[28],
        n[29] << 32 | n[30],
        *n[31:_FIRST_SIZES],
        *texts,
    )


def to_claim(job_id: str, packed: bytes, body: bytes, token: str) -> tuple[int, int, Claim]:
    """Decode a claimed job into rank, place in line and claim. Only the fields that a claim needs
    are decoded, because this runs for every job."""
    numbers = _CLAIMED.unpack_from(packed)
    attempt, starts, suspect, priority, created_high, created_low, place_high, place_low = numbers[
        :8
    ]
    crashes, losses, interruptions, snoozes, strays, age, queue_size, task_size = numbers[8:]
    task_at = _CLAIMED.size + queue_size
    claim = Claim(
        id=job_id,
        token=token,
        task=packed[task_at : task_at + task_size].decode(),
        queue=packed[_CLAIMED.size : task_at].decode(),
        priority=priority,
        payload=body,
        counters=Counters(attempt, starts, crashes, losses, interruptions, snoozes, strays),
        created_ms=created_high << 32 | created_low,
        suspect=suspect == 1,
    )
    return age - priority, place_high << 32 | place_low, claim


def to_whole_record(job_id: str, parts: Sequence[bytes | None], now_ms: int) -> JobRecord:
    """Decode the reply of `get`: record, body, progress or why it is held, result and history."""
    packed, body, progress, result, *history = parts
    assert packed is not None, "a job that is known has a record"
    record = decode(packed)
    return to_record(
        job_id,
        record,
        now_ms,
        payload=body or b"",
        progress=progress,
        result=result if record.result_ms > now_ms else None,
        failures=tuple([_to_failure(entry) for entry in history if entry is not None]),
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
        state=_STATES[record.state],
        hold=_HOLDS[record.hold],
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
        state=State(record.state),
        reason=Reason(record.reason) if record.reason else None,
        finished_ms=_instant(record.finished_ms),
        result=result if record.result_ms > now_ms else None,
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
    job_id, record = handed[id_at:record_at].decode(), handed[record_at:body_at]
    _, _, claim = to_claim(job_id, record, handed[body_at:], nonce)
    return Batch(claims=(claim,))


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

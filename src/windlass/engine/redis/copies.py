"""Copies of jobs and idempotency keys: encode those of another engine, and decode stored ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from windlass.core.durations import LATEST_MS
from windlass.core.states import Hold, State
from windlass.core.unique import Until
from windlass.engine.contract import (
    MAX_KEYS,
    Failure,
    HolderPage,
    JobCopy,
    KeyCopy,
    KeyPage,
    LinePlace,
    check_fingerprint,
)
from windlass.engine.redis import decode
from windlass.engine.redis.encode import check_name
from windlass.engine.redis.reply_values import to_steps

#: What is stored next to a record: nothing, progress, or why the job is held.
_NO_DETAIL, _PROGRESS, _WHY_HELD = 0, 1, 2
_BEGIN: Final = "0"
_encode: Final = msgspec.msgpack.Encoder().encode
_entry: Final = msgspec.msgpack.Decoder(tuple[str, str, int])

#: Run a script with arguments in a partition and return the reply.
Ask = Callable[[int, str, Sequence[bytes]], Any]

size_of: Final[Callable[[JobCopy], int]] = attrgetter("size")


# ---------------------------------------------------------------------------------------- reading


def to_copy(job_id: str, found: Sequence[Any], now_ms: int) -> JobCopy:
    """Decode one job in the reply of `copies`."""
    parts, keep_ms, queue_age, steps = found
    stored = decode.decode(parts[0])
    record = decode.to_whole_record(job_id, parts, now_ms)
    until, period_until_ms, _ = stored.unique.split(" ", 2) if stored.unique else ("", "0", "")
    line = None
    if stored.state is State.READY:
        line = LinePlace(ready_ms=stored.ready_ms, age=stored.age, queue_age=queue_age)
    return JobCopy(
        record=replace(record, result=None, has_result=False),
        line=line,
        keep_until_ms=int(float(keep_ms)) if keep_ms else None,
        until=Until(until) if until else None,
        period_until_ms=int(period_until_ms),
        steps=to_steps(steps),
    )


def list_keys(ask: Ask, partitions: int, cursor: str | None) -> KeyPage:
    """Read one batch. The cursor names the partition, and the position in it."""
    partition, _, begin = (cursor or f"0:{_BEGIN}").partition(":")
    then, *found = ask(int(partition), "list_keys", [begin.encode(), b"%d" % MAX_KEYS])
    keys = tuple(map(_to_key, found[::2], found[1::2]))
    far = "" if then == _BEGIN.encode() else then.decode()
    return KeyPage(keys, _cursor_behind(int(partition), far, partitions, _BEGIN))


def _to_key(field: bytes, entry: bytes) -> KeyCopy:
    """Decode a key: the size of the task, a colon, the task and the key."""
    size, _, names = field.partition(b":")
    job_id, fingerprint, expires_ms = _entry.decode(entry)
    return KeyCopy(
        task=names[: int(size)].decode(),
        key=names[int(size) :].decode(),
        id=job_id,
        fingerprint=fingerprint,
        expires_ms=expires_ms,
    )


def list_holders(ask: Ask, partitions: int, cursor: str | None) -> HolderPage:
    """Read one batch, as `list_keys` does."""
    partition, _, begin = (cursor or "0:").partition(":")
    then, *ids = ask(int(partition), "list_holders", [begin.encode(), b"%d" % MAX_KEYS])
    following = _cursor_behind(int(partition), then.decode(), partitions, "")
    return HolderPage(tuple(map(bytes.decode, ids)), following)


def _cursor_behind(partition: int, far: str, partitions: int, begin: str) -> str | None:
    if far:
        return f"{partition}:{far}"
    return None if partition + 1 == partitions else f"{partition + 1}:{begin}"


# ---------------------------------------------------------------------------------------- storing


def of_copies(copied: Sequence[JobCopy]) -> list[bytes]:
    arguments: list[bytes] = []
    for copy in copied:
        record = copy.record
        detail = record.progress if record.held_because is None else record.held_because
        arguments += (_encode(_head_of(copy)), record.payload, detail or b"")
        arguments += map(_of_failure, record.failures)
        for step in copy.steps:
            arguments += (step.name.encode(), step.value)
    return arguments


def _head_of(copy: JobCopy) -> dict[str, object]:
    record, line = copy.record, copy.line
    check_name("queue", record.queue)
    check_name("task", record.task)
    check_name("unique key", record.unique_key or "")
    check_fingerprint(record.fingerprint)
    return {
        "id": record.id,
        "task": record.task,
        "queue": record.queue,
        "priority": record.priority,
        "state": record.state,
        "hold": record.hold,
        "reason": record.reason or "",
        "counters": msgspec.structs.astuple(record.counters),
        "created_ms": record.created_ms,
        "due_ms": LATEST_MS if record.hold is Hold.PAUSED else _number(record.due_ms),
        "expires_ms": _number(record.expires_ms),
        "started_ms": _number(record.started_ms),
        "finished_ms": _number(record.finished_ms),
        "session": record.session or "",
        "suspect": int(record.suspect),
        "cancel_requested": int(record.cancel_requested),
        "fingerprint": record.fingerprint,
        "failures": len(record.failures),
        "steps": len(copy.steps),
        "has_detail": _detail_of(copy),
        "ready_ms": _number(line.ready_ms if line else None),
        "waited": line.queue_age - line.age if line else 0,
        "keep_ms": _number(copy.keep_until_ms),
        "unique": record.unique_key or "",
        "ends_at": copy.until or "",
        "period_until_ms": copy.period_until_ms,
    }


def _detail_of(copy: JobCopy) -> int:
    if copy.record.held_because is not None:
        return _WHY_HELD
    return _NO_DETAIL if copy.record.progress is None else _PROGRESS


def _of_failure(failure: Failure) -> bytes:
    """Encode an entry of a history, as `lib/moves.lua` stores it."""
    session, started_ms = failure.session or "", _number(failure.started_ms)
    head = _encode((failure.at_ms, failure.event, failure.attempt, session, started_ms))
    return len(head).to_bytes(2) + head + failure.error


def of_keys(keys: Sequence[KeyCopy]) -> list[bytes]:
    arguments: list[bytes] = []
    for key in keys:
        task = key.task.encode()
        field = b"%d:%b%b" % (len(task), task, key.key.encode())
        arguments += (field, key.id.encode(), key.fingerprint.encode(), b"%d" % key.expires_ms)
    return arguments


def _number(milliseconds: int | None) -> int:
    return -1 if milliseconds is None else milliseconds

"""Read the replies of scripts: for each item of a call, its value of the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, TypeVar

from windlass.engine.contract import (
    SWEEP_BYTES,
    Beat,
    NewJob,
    Placed,
    Pulse,
    PutCode,
    ScheduleChange,
    ScheduleRecord,
    Step,
)
from windlass.engine.redis import read
from windlass.engine.redis.client.server import Reply

R = TypeVar("R")

_PUT_CODES: Final = {code.encode(): code for code in PutCode}


def within_budget(doomed: Sequence[tuple[bytes, int]]) -> list[str]:
    """Choose the first doomed jobs, up to `SWEEP_BYTES` in total and at least one. Each partition
    alone may return that number of bytes."""
    sizes = accumulate(size for _, size in doomed)
    number = sum(total <= SWEEP_BYTES for total in sizes)
    return [job_id.decode() for job_id, _ in doomed[: max(1, number)]]


def as_they_are(_items: Sequence[object], reply: Sequence[R]) -> Sequence[R]:
    return reply


def each(code: Callable[[str], R]) -> Callable[[Sequence[object], Sequence[bytes]], list[R]]:
    return lambda _items, reply: [code(text.decode()) for text in reply]


def to_steps(reply: Sequence[bytes]) -> tuple[Step, ...]:
    return tuple(
        Step(name.decode(), value) for name, value in zip(reply[::2], reply[1::2], strict=True)
    )


def to_flags(_changes: Sequence[ScheduleChange], reply: Sequence[int]) -> list[bool]:
    return list(map(bool, reply))


def to_plainly_placed(jobs: Sequence[NewJob], reply: Any) -> list[Placed | None]:
    """Read the reply for plain jobs: all are stored, or none is and another script must do it."""
    return [Placed(job.id, PutCode.CREATED) if reply else None for job in jobs]


def to_placed(_jobs: Sequence[NewJob], reply: Sequence[bytes]) -> list[Placed]:
    ids, codes = reply[::2], reply[1::2]
    return list(map(Placed, map(bytes.decode, ids), map(_PUT_CODES.__getitem__, codes)))


def to_found(
    decode_one: Callable[[str, Sequence[bytes | None], int], R],
    ids: Sequence[str],
    reply: Sequence[Reply],
) -> list[R | None]:
    now_ms, *found = reply
    return [
        None if parts is None else decode_one(job_id, parts, now_ms)
        for job_id, parts in zip(ids, found, strict=True)
    ]


def to_schedules(_names: Sequence[str], reply: Sequence[Reply]) -> list[ScheduleRecord | None]:
    return [None if parts is None else read.to_schedule(parts) for parts in reply[3:]]


def to_pulse(beat: Beat, answers: Sequence[Sequence[Reply]]) -> Pulse:
    """Merge the replies of all partitions: a session that is dead in one partition is dead."""
    if not all(answer[0] for answer in answers):
        return Pulse(session=beat.session, alive=False)
    lost = {job_id.decode() for answer in answers for job_id in answer[3]}
    return Pulse(
        session=beat.session,
        alive=True,
        cancel=tuple(sorted(job_id.decode() for answer in answers for job_id in answer[2])),
        lost=tuple(job_id for job_id in beat.held or () if job_id in lost),
        command=read.merge_commands([answer[1] for answer in answers]),
    )

"""Schedules over several partitions: find their partitions and merge the replies."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge

import msgspec

from windlass.engine.contract import DueSchedules, ScheduleRecord
from windlass.engine.redis.client.server import Reply


class _StoredSchedule(msgspec.Struct, array_like=True, frozen=True):
    revision: str
    due_ms: int  # -1 for never
    watched: tuple[str, ...]


_decode = msgspec.msgpack.Decoder(_StoredSchedule).decode


def to_record(parts: Sequence[bytes]) -> ScheduleRecord:
    name, packed, note, body, *unfinished = parts
    stored = _decode(packed)
    return ScheduleRecord(
        name=name.decode(),
        revision=stored.revision,
        due_ms=stored.due_ms if stored.due_ms >= 0 else None,
        body=body,
        note=note,
        watched=stored.watched,
        unfinished=tuple(id.decode() for id in unfinished),
    )


def merge_due(replies: Sequence[Sequence[Reply]]) -> DueSchedules:
    """Use the earliest clock of all partitions, so that no schedule runs too early."""
    pages = [[to_record(parts) for parts in reply[3:]] for reply in replies]
    later = [reply[1] for reply in replies if reply[1] >= 0]
    return DueSchedules(
        now_ms=min(reply[0] for reply in replies),
        records=tuple(merge(*pages, key=lambda record: (record.due_ms, record.name))),
        more=any(reply[2] for reply in replies),
        next_in_ms=min(later, default=None),
    )


def merge_names(replies: Sequence[Sequence[Reply]], limit: int) -> list[ScheduleRecord]:
    found = (to_record(parts) for reply in replies for parts in reply[3:])
    return sorted(found, key=lambda record: record.name)[:limit]

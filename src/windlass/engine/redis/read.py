"""Reads over all partitions: pages of records, counters, sessions, schedules."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import QueueSettings
from windlass.core.states import State
from windlass.engine.contract import (
    MAX_HELD,
    DueSchedules,
    Filter,
    JobRecord,
    Page,
    ScheduleRecord,
    SessionRecord,
    Stats,
)
from windlass.engine.redis import decode

#: A page with a filter that no index covers examines at most this many records.
SCAN_BUDGET: Final = 10_000
_CHUNK: Final = 500

#: Run a script with arguments in a partition and return the reply.
Ask = Callable[[int, str, Sequence[bytes]], Any]


def find(ask: Ask, partitions: int, filter: Filter, ids: tuple[str, str], limit: int) -> Page:
    """Merge the streams of all partitions. One record more than the limit is read, to know whether
    there is another page."""
    streams = [_Stream(ask, number, partitions, filter, ids, limit) for number in range(partitions)]
    merged = heapq.merge(*streams, key=lambda record: record.id, reverse=True)
    found = list(islice(merged, limit + 1))
    stops = [stream.stopped_at for stream in streams if stream.stopped_at is not None]
    if stops:  # records below the highest position may be incomplete
        found = [record for record in found if record.id >= max(stops)]
    if len(found) > limit:
        return Page(tuple(found[:limit]), found[limit - 1].id)
    return Page(tuple(found), max(stops) if stops else None)


class _Stream:
    """The records of one partition that match a filter, newest first."""

    def __init__(
        self,
        ask: Ask,
        partition: int,
        partitions: int,
        filter: Filter,
        ids: tuple[str, str],
        limit: int,
    ) -> None:
        self._ask = ask
        self._partition = partition
        self._filter = filter
        self._first, self._below = ids
        self._budget = SCAN_BUDGET // partitions
        self._chunk = min(limit + 1, _CHUNK)
        self.stopped_at: str | None = None  # the position where the read budget ran out

    def __iter__(self) -> Iterator[JobRecord]:
        index = b"dead" if self._filter.state is State.DEAD else b"ids"
        while self._budget > 0:
            limits = self._below.encode(), b"%d" % self._chunk, self._first.encode()
            asked = [index, *limits]
            now_ms, *found = self._ask(self._partition, "find", asked)
            for at in range(0, len(found), 3):
                if found[at + 1] is None:
                    continue  # an index entry without a record, which `check` reports
                record = _to_page_record(found[at : at + 3], now_ms)
                if _matches(record, self._filter):
                    yield record
            if len(found) < 3 * self._chunk:
                return
            self._below = found[-3].decode()
            self._budget -= self._chunk
            self._chunk = min(2 * self._chunk, _CHUNK)  # few records match: read larger batches
        self.stopped_at = self._below


def _to_page_record(found: Sequence[Any], now_ms: int) -> JobRecord:
    job_id, packed, progress = found
    return decode.to_record(job_id.decode(), decode.decode(packed), now_ms, progress=progress)


def _matches(record: JobRecord, filter: Filter) -> bool:
    return (
        (filter.task is None or record.task == filter.task)
        and (filter.queue is None or queue_of(record.queue) == filter.queue)
        and (filter.state is None or record.state is filter.state)
        and filter.includes_instant(record.created_ms)
    )


def merge_stats(bites: Sequence[tuple[int, Sequence[Any]]]) -> Stats:
    """Merge batches of counters in the order in which they were read. If a line was read twice, the
    last batch counts."""
    lines: dict[tuple[int, str], dict[State, int]] = {}
    standing: dict[tuple[int, str], tuple[int, int]] = {}
    totals: Counter[str] = Counter()
    for partition, (_far, counts, happened, heads) in bites:
        for line, states in _by_line(counts).items():
            lines[partition, line] = states
            standing.pop((partition, line), None)
        for name, number in _pairs(happened):
            totals[name] += int(number)
        for at in range(0, len(heads), 3):
            standing[partition, heads[at].decode()] = (heads[at + 1], -heads[at + 2])
    queues: dict[str, Counter[State]] = {}
    for (_, line), states in lines.items():
        queues.setdefault(line, Counter()).update(states)
    first: dict[str, tuple[int, int]] = {}  # line -> rank and age of its next job
    for (_, line), place in standing.items():
        # At equal rank, the job that has been ready for longer comes first.
        first[line] = min(first.get(line, place), place)
    return Stats(
        queues={line: dict(states) for line, states in queues.items()},
        oldest_ready_ms={line: -age_ms for line, (_, age_ms) in first.items()},
        totals=dict(totals),
    )


def _by_line(counts: Sequence[bytes]) -> dict[str, dict[State, int]]:
    lines: dict[str, dict[State, int]] = {}
    for field, number in _pairs(counts):
        line, state = field.rsplit("\0", 1)
        lines.setdefault(line, {})[State(state)] = int(number)
    return lines


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Iterate over fields and values of a hash, without the sentinel."""
    for at in range(0, len(flat), 2):
        if flat[at]:
            yield flat[at].decode(), flat[at + 1]


_settings: Final = msgspec.msgpack.Decoder(dict[str, QueueSettings])


def to_settings(packed: bytes) -> dict[str, QueueSettings]:
    return _settings.decode(packed) if packed else {}


def merge_sessions(replies: Sequence[Sequence[Any]]) -> list[SessionRecord]:
    """Merge session records. A session exists in each partition that it claimed from; heartbeats
    renew it in all of them."""
    found: dict[str, SessionRecord] = {}
    for reply in replies:
        for at in range(0, len(reply), 5):
            name, expires_in_ms, jobs, info, ids = reply[at].decode(), *reply[at + 1 : at + 5]
            known = found.get(name) or SessionRecord(
                session=name, expires_in_ms=expires_in_ms, jobs=0
            )
            held = {*known.held, *(id.decode() for id in ids)}
            found[name] = SessionRecord(
                session=name,
                expires_in_ms=max(expires_in_ms, known.expires_in_ms),
                jobs=jobs + known.jobs,
                held=tuple(sorted(held)[:MAX_HELD]),
                info=info or known.info,
            )
    return [found[name] for name in sorted(found)]


class _StoredSchedule(msgspec.Struct, array_like=True, frozen=True):
    revision: str
    due_ms: int  # -1 for never
    watched: tuple[str, ...]


_stored_schedule: Final = msgspec.msgpack.Decoder(_StoredSchedule)


def to_schedule(parts: Sequence[bytes]) -> ScheduleRecord:
    name, packed, note, body, *unfinished = parts
    stored = _stored_schedule.decode(packed)
    return ScheduleRecord(
        name=name.decode(),
        revision=stored.revision,
        due_ms=stored.due_ms if stored.due_ms >= 0 else None,
        body=body,
        note=note,
        watched=stored.watched,
        unfinished=tuple(id.decode() for id in unfinished),
    )


def merge_due(replies: Sequence[Sequence[Any]]) -> DueSchedules:
    """Merge due schedules, with the earliest clock: no schedule may run too early."""
    pages = [[to_schedule(parts) for parts in reply[3:]] for reply in replies]
    later = [reply[1] for reply in replies if reply[1] >= 0]
    return DueSchedules(
        now_ms=min(reply[0] for reply in replies),
        records=tuple(heapq.merge(*pages, key=lambda record: (record.due_ms, record.name))),
        more=any(reply[2] for reply in replies),
        next_in_ms=min(later, default=None),
    )


def merge_schedules(replies: Sequence[Sequence[Any]], limit: int) -> list[ScheduleRecord]:
    found = (to_schedule(parts) for reply in replies for parts in reply[3:])
    return sorted(found, key=lambda record: record.name)[:limit]

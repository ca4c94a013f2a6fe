"""The history of queues and tasks: encode reports, and merge rows of all partitions.

A partition stores rows as `lib/history.lua` lays them out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from windlass.core.history import add_counts
from windlass.engine.contract import (
    MAX_HISTORY_PAGE,
    MAX_PAIRS,
    REPORTER_MS,
    HistoryPage,
    Measure,
    MeasureRow,
    QueueSample,
    make_history_page,
    read_history_cursor,
)

#: The kinds of rows: measures and samples, of minutes and of hours.
_BY_MINUTE: Final = (b"1", b"2")
_BY_HOUR: Final = (b"3", b"4")
#: The begin of a row: high and low bytes of its time, after its kind.
_TIME: Final = struct.Struct(">xHI")
_SIZE: Final = struct.Struct(">H")
_encode: Final = msgspec.msgpack.Encoder().encode
_numbers: Final = msgspec.msgpack.Decoder(tuple[int, ...])

#: Run a script with arguments in every partition and return the replies.
RunEach = Callable[[str, Sequence[bytes]], Sequence[Any]]


class _Row(NamedTuple):
    at_ms: int
    queue: str
    task: str  # empty for a sample
    numbers: tuple[int, ...]


def of_report(reporter: str, number: int, measures: Sequence[Measure]) -> list[bytes]:
    """Encode a report as the arguments of its script."""
    words = [reporter.encode(), b"%d" % number, b"%d" % REPORTER_MS]
    for measure in measures:
        names = [measure.queue.encode(), measure.task.encode()]
        words.append(b"".join([_SIZE.pack(len(name)) + name for name in names]))
        words.append(_encode(measure.counts))
    return words


def read_page(
    run: RunEach, partitions: int, begin_ago_ms: int, by_hour: bool, cursor: str | None
) -> HistoryPage:
    begin = b"-%d" % max(0, begin_ago_ms) if cursor is None else b"%d" % read_history_cursor(cursor)
    # In a partition, a minute or hour has at most `MAX_PAIRS` rows of a kind, and that of others.
    limit = max(MAX_HISTORY_PAGE // (2 * partitions), MAX_PAIRS + 2)
    kinds = _BY_HOUR if by_hour else _BY_MINUTE
    replies = run("history", [begin, b"%d" % limit, *kinds])
    measured, sampled = (
        [list(map(_to_row, reply[number])) for reply in replies] for number in range(len(kinds))
    )
    # The last row of a full list may not be the last one of its minute or hour.
    ends_ms = [rows[-1].at_ms for rows in (*measured, *sampled) if len(rows) == limit]
    return make_history_page(
        _merge_measures(measured), _merge_samples(sampled), min(ends_ms, default=None)
    )


def _to_row(member: bytes) -> _Row:
    high, low = _TIME.unpack_from(member)
    queue_at = _TIME.size + _SIZE.size
    queue_end = queue_at + _SIZE.unpack_from(member, _TIME.size)[0]
    task_at = queue_end + _SIZE.size
    task_end = task_at + _SIZE.unpack_from(member, queue_end)[0]
    return _Row(
        high << 32 | low,
        member[queue_at:queue_end].decode(),
        member[task_at:task_end].decode(),
        _numbers.decode(member[task_end:]),
    )


def _by_name(found: Sequence[Sequence[_Row]]) -> dict[tuple[int, str, str], list[tuple[int, ...]]]:
    """Group the numbers of rows of all partitions by their time, queue and task."""
    groups: dict[tuple[int, str, str], list[tuple[int, ...]]] = {}
    for rows in found:
        for row in rows:
            groups.setdefault(row[:3], []).append(row.numbers)
    return groups


def _merge_measures(found: Sequence[Sequence[_Row]]) -> Iterator[MeasureRow]:
    for (at_ms, queue, task), counts in _by_name(found).items():
        total = counts[0] if len(counts) == 1 else add_counts(counts)
        yield MeasureRow(at_ms=at_ms, queue=queue, task=task, counts=total)


def _merge_samples(found: Sequence[Sequence[_Row]]) -> Iterator[QueueSample]:
    for (at_ms, queue, _), numbers in _by_name(found).items():
        ready, scheduled, running, dead, oldest_ready_ms = zip(*numbers, strict=True)
        yield QueueSample(
            at_ms=at_ms,
            queue=queue,
            ready=sum(ready),
            scheduled=sum(scheduled),
            running=sum(running),
            dead=sum(dead),
            oldest_ready_ms=max(oldest_ready_ms),
        )

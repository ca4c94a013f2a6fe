"""The history of queues and tasks.

1. `record` adds the measures of a report to the current minute.
2. `keep_history` is a part of the maintenance: the first call in a minute adds the growth of the
   counters of enqueued jobs to the minute, and takes a sample of each queue. Every call adds some
   old minutes to their hour, and removes some old hours.
3. `history` reads pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from windlass.core.history import (
    ENQUEUED,
    HOUR_MS,
    KEEP_HOURS_MS,
    KEEP_MINUTES_MS,
    MINUTE_MS,
    OTHER,
    WIDTH,
    add_counts,
)
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import (
    BITE,
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
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import SqlTransaction

#: A queue and a task.
Pair = tuple[str, str]

_MINUTE, _HOUR = 0, 1
_OTHERS: Final = (OTHER, OTHER)
_decode_counts: Final = msgspec.json.Decoder(tuple[int, ...]).decode
#: One sample reads at most this many counters: `MAX_PAIRS` queues with a job in every state.
_MOST_COUNTERS: Final = MAX_PAIRS * len(State)
#: State -> its column in a sample, apart from the queue.
_COLUMNS: Final[Mapping[str, int]] = {
    State.READY: 0,
    State.SCHEDULED: 1,
    State.RETRYING: 1,
    State.RUNNING: 2,
    State.DEAD: 3,
}


def record(tx: SqlTransaction, reporter: str, number: int, measures: Sequence[Measure]) -> None:
    tx.lock("history")
    known: int | None = tx.first("find_reporter", reporter, tx.now_ms)
    if known is not None and number <= known:
        return  # an earlier call added this report
    tx.run("note_report", reporter, number, tx.now_ms + REPORTER_MS)
    at_ms = tx.now_ms - tx.now_ms % MINUTE_MS
    _add(tx, _MINUTE, at_ms, [(one.queue, one.task, one.counts) for one in measures])


def _add(
    tx: SqlTransaction, span: int, at_ms: int, added: Iterable[tuple[str, str, Sequence[int]]]
) -> None:
    """Add counts to a minute or hour. Counts beyond the limit of pairs go to that of all others."""
    sums: dict[Pair, Sequence[int]] = {}
    for queue, task, counts in added:
        _add_to(sums, (queue, task), counts)
    names = [*zip(*sums, _OTHERS, strict=True)]
    stored: dict[Pair, Sequence[int]] = {
        (queue, task): _decode_counts(counts)
        for queue, task, counts in tx.rows("find_measures", span, at_ms, *map(tx.array, names))
    }
    totals: dict[Pair, Sequence[int]] = {}
    number = int(tx.first("count_measures", span, at_ms, OTHER) or 0) if sums else 0
    for pair, counts in sums.items():
        if pair not in stored and pair != _OTHERS:
            if number >= MAX_PAIRS:
                pair = _OTHERS
            else:
                number += 1
        _add_to(totals, pair, counts)
    for (queue, task), counts in totals.items():
        _add_to(stored, (queue, task), counts)
        packed = msgspec.json.encode(tuple(stored[queue, task])).decode()
        tx.run("save_measure", span, at_ms, queue, task, packed)


def _add_to(sums: dict[Pair, Sequence[int]], pair: Pair, counts: Sequence[int]) -> None:
    sums[pair] = add_counts((sums[pair], counts)) if pair in sums else counts


# ---------------------------------------------------------------------------------- maintenance


def keep_history(tx: SqlTransaction) -> bool:
    """Do one bounded batch; return whether there may be more."""
    at_ms = tx.now_ms - tx.now_ms % MINUTE_MS
    tx.lock("history")
    if tx.first("sampled_minute") != at_ms:
        _add_growth(tx, at_ms)
        _forget_unused_pairs(tx)
        _take_samples(tx, at_ms)
        tx.run("note_sample", at_ms)
    begin_ms, end_ms = tx.now_ms - KEEP_HOURS_MS, tx.now_ms + KEEP_HOURS_MS
    changed = []
    for statement in ("forget_measures", "forget_samples"):
        changed += [tx.change(statement, span, begin_ms, end_ms, BITE) for span in (_MINUTE, _HOUR)]
    changed.append(tx.change("forget_reporters", tx.now_ms, BITE))
    changed += (_roll_up_measures(tx), _roll_up_samples(tx))
    return max(changed) == BITE


def _add_growth(tx: SqlTransaction, at_ms: int) -> None:
    """Add the jobs that were enqueued since the last minute to this one."""
    _add(tx, _MINUTE, at_ms, map(_to_growth, tx.rows("list_growth")))
    tx.run("note_growth", tx.now_ms)


def _to_growth(row: Row) -> tuple[str, str, Sequence[int]]:
    queue, task, number = row
    counts = [0] * WIDTH
    counts[ENQUEUED] = number
    return queue, task, counts


def _forget_unused_pairs(tx: SqlTransaction) -> None:
    """Forget counters that did not grow for long; the total keeps their jobs."""
    for queue, task, number in tx.rows("list_unused_pairs", tx.now_ms - KEEP_MINUTES_MS):
        tx.run("forget_pair", queue, task)
        tx.totals["enqueued"] += number


def _take_samples(tx: SqlTransaction, at_ms: int) -> None:
    for queue, numbers in _read_queues(tx).items():
        tx.run("save_sample", _MINUTE, at_ms, queue, *numbers)


def _read_queues(tx: SqlTransaction) -> Mapping[str, list[int]]:
    """Read the first queues, by name: the numbers of their jobs, and the age of the oldest."""
    tx.write_counts()
    found: dict[str, list[int]] = {}
    counters = tx.rows("list_first_counters", _MOST_COUNTERS)
    if len(counters) == _MOST_COUNTERS:  # the last queue may have more of them
        last = queue_of(counters[-1][0])
        counters = [row for row in counters if queue_of(row[0]) != last]
    ready = [line for line, state, _ in counters if state == State.READY]
    oldest: dict[str, int] = dict(tx.rows("oldest_ready", tx.array(ready)) if ready else ())
    for line, state, number in counters:
        queue = queue_of(line)
        if queue not in found and len(found) == MAX_PAIRS:
            break
        numbers = found.setdefault(queue, [0] * 5)
        if state in _COLUMNS:
            numbers[_COLUMNS[state]] += number
        if state == State.READY:
            ready_ms = oldest.get(line)
            numbers[4] = max(numbers[4], 0 if ready_ms is None else tx.now_ms - ready_ms)
    return found


def _roll_up_measures(tx: SqlTransaction) -> int:
    """Add some old minutes to their hour; return their number."""
    old = tx.rows("list_old_measures", _MINUTE, tx.now_ms - KEEP_MINUTES_MS, BITE)
    hours: dict[int, list[tuple[str, str, Sequence[int]]]] = {}
    for at_ms, queue, task, counts in old:
        hour = hours.setdefault(at_ms - at_ms % HOUR_MS, [])
        hour.append((queue, task, _decode_counts(counts)))
        tx.run("delete_measure", _MINUTE, at_ms, queue, task)
    for hour_ms, added in hours.items():
        _add(tx, _HOUR, hour_ms, added)
    return len(old)


def _roll_up_samples(tx: SqlTransaction) -> int:
    old = tx.rows("list_old_samples", _MINUTE, tx.now_ms - KEEP_MINUTES_MS, BITE)
    for at_ms, queue, *numbers in old:
        hour_ms = at_ms - at_ms % HOUR_MS
        is_known = tx.first("has_sample", _HOUR, hour_ms, queue)
        if is_known or tx.first("count_samples", _HOUR, hour_ms) < MAX_PAIRS:
            tx.run("raise_sample", _HOUR, hour_ms, queue, *numbers)
        tx.run("delete_sample", _MINUTE, at_ms, queue)
    return len(old)


# -------------------------------------------------------------------------------------- reading


def history(
    db: Statements, now_ms: int, begin_ago_ms: int, by_hour: bool, cursor: str | None
) -> HistoryPage:
    span = _HOUR if by_hour else _MINUTE
    begin_ms = now_ms - begin_ago_ms if cursor is None else read_history_cursor(cursor)
    measured = db.rows("list_measures", span, begin_ms, MAX_HISTORY_PAGE + 1)
    sampled = db.rows("list_samples", span, begin_ms, MAX_HISTORY_PAGE + 1)
    # One row more than a page may have makes the page end before the minute or hour of that row.
    return make_history_page(_to_measures(measured), _to_samples(sampled), None)


def _to_measures(found: Sequence[Row]) -> Iterator[MeasureRow]:
    for at_ms, queue, task, counts in found:
        yield MeasureRow(at_ms=at_ms, queue=queue, task=task, counts=_decode_counts(counts))


def _to_samples(found: Sequence[Row]) -> Iterator[QueueSample]:
    for at_ms, queue, ready, scheduled, running, dead, oldest_ready_ms in found:
        yield QueueSample(
            at_ms=at_ms,
            queue=queue,
            ready=ready,
            scheduled=scheduled,
            running=running,
            dead=dead,
            oldest_ready_ms=oldest_ready_ms,
        )

"""The engine contract for the history of queues and tasks: measures that workers report, samples of
queues that the engine takes, and the operations on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from windlass.core.history import WIDTH
from windlass.errors import EngineError, InvalidCursor

#: In each minute and each hour, an engine keeps at most this many measures in each partition, and
#: adds further ones to that of `core.history.OTHER`. The same limit holds for counters of enqueued
#: jobs by queue and task. At most this many queues have samples; an engine leaves out the others.
MAX_PAIRS: Final = 200
#: One call of `record` has at most this many measures.
MAX_MEASURES: Final = 500
#: One page of `history` has at most this many rows, or the rows of a single minute or hour.
MAX_HISTORY_PAGE: Final = 5_000
#: Counts are below this number, up to which every engine adds exactly.
MAX_COUNT: Final = 2**53
#: An engine remembers this long which reports of a reporter it has added.
REPORTER_MS: Final = 60 * 60 * 1000


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one task in one queue, as `core.history` lays them out. Names have no NUL."""

    queue: str  # without labels
    task: str
    counts: tuple[int, ...]


class MeasureRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of all measures of one task in one queue, in one minute or hour."""

    at_ms: int  # when the minute or hour began
    queue: str
    task: str
    counts: tuple[int, ...]


class QueueSample(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue at one instant of a minute; in an hour, the largest of these numbers."""

    at_ms: int  # when the minute or hour began
    queue: str  # without labels
    ready: int
    scheduled: int  # scheduled and retrying
    running: int
    dead: int
    oldest_ready_ms: int  # how long its next job had been ready


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the history, in the order of time, and the next cursor, None at the end."""

    measures: tuple[MeasureRow, ...] = ()
    samples: tuple[QueueSample, ...] = ()
    cursor: str | None = None


def check_report(number: int, measures: Sequence[Measure]) -> None:
    """Refuse a report that some engine cannot add. Every engine calls this function."""
    if not 0 <= number < MAX_COUNT:
        raise EngineError(
            f"Expected a number from 0 to {MAX_COUNT - 1} for a report, found {number}. Number the "
            "reports of a reporter from 1 on."
        )
    if len(measures) > MAX_MEASURES:
        raise EngineError(
            f"Expected at most {MAX_MEASURES} measures in one call, found {len(measures)}. Split "
            "them over several calls."
        )
    for measure in measures:
        counts = measure.counts
        if len(counts) != WIDTH or min(counts) < 0 or max(counts) >= MAX_COUNT:
            raise EngineError(
                f"Expected {WIDTH} counts from 0 to {MAX_COUNT - 1} for task {measure.task}, found "
                f"{counts}. Make them with core.history.Tally."
            )


def make_history_page(
    measures: Iterable[MeasureRow], samples: Iterable[QueueSample], end_ms: int | None
) -> HistoryPage:
    """Make a page of rows that were read from its beginning on, in any order. `end_ms` is the first
    minute or hour that was not read completely; None if nothing follows. The page ends earlier if
    it has too many rows, but never inside a minute or hour."""
    read: list[MeasureRow | QueueSample] = [*measures, *samples]
    numbers = Counter(row.at_ms for row in read if end_ms is None or row.at_ms < end_ms)
    rows = 0
    for at_ms in sorted(numbers):
        rows += numbers[at_ms]
        if rows > MAX_HISTORY_PAGE and rows > numbers[at_ms]:
            end_ms = at_ms
            break
    page = [row for row in read if end_ms is None or row.at_ms < end_ms]
    measured = [row for row in page if isinstance(row, MeasureRow)]
    sampled = [row for row in page if isinstance(row, QueueSample)]
    return HistoryPage(
        measures=tuple(sorted(measured, key=attrgetter("at_ms", "queue", "task"))),
        samples=tuple(sorted(sampled, key=attrgetter("at_ms", "queue"))),
        cursor=None if end_ms is None else str(end_ms),
    )


def read_history_cursor(cursor: str) -> int:
    """Return the minute or hour with which a page begins."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 15):
        raise InvalidCursor(
            f"Expected the cursor of a page of the history, found {cursor!r}. Use the cursor as "
            "the page before returned it, or begin without one."
        )
    return int(cursor)


class HistoryVerbs(Protocol):
    """Add to the history of queues and tasks, and read it.

    `put` counts enqueued jobs by queue and task; `stats` returns these counters. Once in each
    minute, `tend` adds their growth to the measures of the minute, and takes a sample of each queue
    that `stats` lists. It also adds minutes older than `KEEP_MINUTES_MS` to their hour, and removes
    hours older than `KEEP_HOURS_MS`, in bounded batches. After the clock was set back, rows of
    later minutes stay; those more than `KEEP_HOURS_MS` ahead are removed."""

    def record(self, reporter: str, number: int, measures: Sequence[Measure]) -> None:
        """Add measures to the current minute. A reporter numbers its reports in ascending order,
        below `MAX_COUNT`: a report whose number is not above that of an earlier one is a repeat,
        and changes nothing."""

    def history(
        self, begin_ago_ms: int, *, by_hour: bool = False, cursor: str | None = None
    ) -> HistoryPage:
        """Read the rows of minutes, or of hours, that began at most `begin_ago_ms` ago. Hours do
        not contain the last day, which is still in minutes. Pass the returned cursor to read on.

        Rows of all partitions are merged: counts and numbers of jobs are sums, and the oldest age
        is the largest. A page has all rows of a minute or hour, or none."""

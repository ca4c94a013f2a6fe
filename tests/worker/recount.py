"""Compare the history of the engine with a recount of its jobs: for a small test, and the proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from windlass.core.history import RUN_BUCKETS, WAIT_BUCKETS, WIDTH, Summary, add_counts
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import Engine, Filter, JobRecord

HOUR_MS = 60 * 60 * 1000


class Ends(NamedTuple):
    """How often runs of a task in a queue ended in some way."""

    queue: str
    task: str
    outcome: str


def recount(engine: Engine) -> Counter[Ends]:
    """Count the ends of runs from the records of jobs that have all ended. A claim counts an
    attempt, unless a crash, a loss, a snooze or a release refunds it."""
    found: Counter[Ends] = Counter()
    for record in _records(engine):
        had = record.counters
        numbers = {
            "succeeded": int(record.state is State.SUCCEEDED),
            "dead": int(record.state is State.DEAD),
            "retried": had.attempt - 1,
            "snoozed": had.snoozes,
        }
        for outcome, number in numbers.items():
            found[Ends(queue_of(record.queue), record.task, outcome)] += number
    return +found


def recorded(engine: Engine) -> Counter[Ends]:
    """The same numbers from the history; runs that were handed back are left out."""
    found: Counter[Ends] = Counter()
    for queue, task, counts in _measures(engine):
        for outcome, number in Summary(counts).outcomes.items():
            if outcome != "released":
                found[Ends(queue, task, outcome)] += number
    return +found


def times(engine: Engine) -> tuple[int, int]:
    """How many times both histograms have: of waits, and of runs."""
    total = total_counts(engine)
    return sum(total[WAIT_BUCKETS:RUN_BUCKETS]), sum(total[RUN_BUCKETS:WIDTH])


def total_counts(engine: Engine) -> tuple[int, ...]:
    return add_counts(counts for _, _, counts in _measures(engine))


def _measures(engine: Engine) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    cursor: str | None = None
    while True:
        page = engine.history(HOUR_MS, cursor=cursor)
        for row in page.measures:
            yield row.queue, row.task, row.counts
        cursor = page.cursor
        if cursor is None:
            return


def _records(engine: Engine) -> Iterator[JobRecord]:
    cursor: str | None = None
    while True:
        page = engine.find(Filter(), cursor, 500)
        yield from page.records
        cursor = page.cursor
        if cursor is None:
            return

"""Schedules of one second while workers are killed: every occurrence once, and at its time.

Used by a small test and by the proof. What is counted are the ids of all jobs that there are: an
occurrence has a derived one, so those that should be there are known before they are.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests.worker.yard import Worker, Yard, until
from windlass import Every
from windlass.core.ids import created_ms_of
from windlass.core.schedules.occurrences import occurrence_id
from windlass.engine.contract import Filter, JobRecord


class Account(NamedTuple):
    expected: int
    missing: int
    invented: int
    enqueued_late_ms: list[int]  # sorted: how long after its time each was enqueued
    started_late_ms: list[int]  # and started, the last time that it did


def save(yard: Yard, number: int, seconds: int, begin: datetime) -> set[str]:
    """Save schedules with one occurrence a second; return the ids of all expected jobs."""
    schedule = Every("1s", start=begin, end=begin + timedelta(seconds=seconds - 1))
    expected: set[str] = set()
    begin_ms = int(begin.timestamp() * 1000)
    for index in range(number):
        name = f"tick-{index}"
        yard.app.schedules.save(name, yard.script.plain.bind(name, []), schedule)
        partition = yard.app.engine.schedule_partition(name)
        instants = range(begin_ms, begin_ms + 1000 * seconds, 1000)
        expected |= {occurrence_id(name, at_ms, partition) for at_ms in instants}
    return expected


def next_second(after_s: float) -> datetime:
    """A whole second, so that all processes mean the same."""
    return datetime.fromtimestamp(int(time.time() + after_s) + 1, UTC)


def kill_until(
    yard: Yard, workers: list[Worker], end: datetime, every_s: float, *, processes: int = 1
) -> int:
    """Kill a random worker with all that belongs to it and start another; how many were killed."""
    killed = 0
    while datetime.now(UTC) < end:
        time.sleep(every_s)  # the pace of the killing is what is asked for
        index = random.randrange(len(workers))
        os.killpg(workers[index].pid, signal.SIGKILL)
        workers[index].wait()
        workers[index] = yard.start(processes=processes)
        killed += 1
    return killed


def await_all(yard: Yard, number: int, seconds: float) -> None:
    until(lambda: yard.app.engine.stats().totals["enqueued"] >= number, f"{number} runs", seconds)


def take_account(yard: Yard, expected: set[str]) -> Account:
    records = list(_records(yard))
    found = {record.id for record in records}
    assert len(found) == len(records)
    late_ms = sorted(record.created_ms - created_ms_of(record.id) for record in records)
    started = [record for record in records if record.started_ms is not None]
    started_late_ms = sorted((one.started_ms or 0) - created_ms_of(one.id) for one in started)
    return Account(
        expected=len(expected),
        missing=len(expected - found),
        invented=len(found - expected),
        enqueued_late_ms=late_ms,
        started_late_ms=started_late_ms,
    )


def _records(yard: Yard) -> Iterator[JobRecord]:
    cursor: str | None = None
    while True:
        page = yard.app.engine.find(Filter(), cursor, 500)
        yield from page.records
        cursor = page.cursor
        if cursor is None:
            return


def share(sorted_ms: list[int], per_cent: int) -> int:
    """The percentile of sorted times."""
    return sorted_ms[max(0, -(-len(sorted_ms) * per_cent // 100) - 1)]

"""A handle on a queue for operators: pause, resume, change settings, purge.

`app.queue(name)` makes a `Queue` without a call to the engine. The engine stores the settings of a
queue, so they apply to all producers and workers, and remain when none is running. Every method has
a twin for coroutines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.core.durations import Duration, describe_ms, to_ms
from windlass.core.quantities import count
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import LEAST_AGEING_MS
from windlass.core.states import State
from windlass.engine.contract import Emptied, Engine, QueueChange, QueueRecord
from windlass.twins import Steps, act, twins

if TYPE_CHECKING:
    from windlass.app import Windlass


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant."""

    name: str
    paused: bool
    ageing: timedelta | None  # waiting this long is worth one level of priority
    max_waiting: int | None  # the bound: no enqueue while this many jobs wait
    jobs: Mapping[State, int]  # the number of jobs by state, without zeros


class Queue:
    """A handle on a queue, made by `app.queue(name)`."""

    def __init__(self, app: Windlass, name: str) -> None:
        self._app = app
        self.name = name

    @twins
    def info(self) -> Steps[QueueInfo]:
        """The settings of the queue, and its number of jobs."""
        return (yield from act(_read, self.name))

    ainfo = info.awaited

    @twins
    def pause(self) -> Steps[None]:
        """Stop all claims from the queue. Running jobs continue; waiting jobs keep their place."""
        yield from act(_change, self.name, QueueChange(paused=True))

    apause = pause.awaited

    @twins
    def resume(self) -> Steps[None]:
        """Allow claims from the queue again, and wake idle workers."""
        yield from act(_change, self.name, QueueChange(paused=False))

    aresume = resume.awaited

    @twins
    def set(self, *, ageing: Duration | None = None, max_waiting: int | None = None) -> Steps[None]:
        """Change the settings of the queue. Settings that are not given stay; 0 removes a setting.

        `ageing` is the waiting time that is worth one level of priority, for jobs that become ready
        from now on. A job with a priority higher by n levels overtakes only jobs that were enqueued
        at most n times `ageing` earlier.

        `max_waiting` is the bound of the queue. While this many jobs wait (ready, scheduled or
        retrying), an enqueue is refused or waits, as `when_full` says."""
        if max_waiting is not None and (type(max_waiting) is not int or max_waiting < 0):
            raise ValueError(
                "max_waiting must be a whole number of at least 1, or 0 for no limit, found "
                f"{max_waiting!r}"
            )
        ageing_ms = None if ageing is None else to_ms(ageing, name="ageing")
        if ageing_ms is not None and 0 < ageing_ms < LEAST_AGEING_MS:
            raise ValueError(
                f"ageing must be at least {describe_ms(LEAST_AGEING_MS)}, or 0 for none, found "
                f"{ageing!r}"
            )
        change = QueueChange(ageing_ms=ageing_ms, max_waiting=max_waiting)
        yield from act(_change, self.name, change)

    aset = set.awaited

    @twins
    def purge(self, progress: Callable[[int], object] = lambda number: None) -> Steps[int]:
        """Remove all waiting jobs, not the running ones; return their number.

        The engine removes jobs in bounded batches and serves other calls in between. Jobs that are
        enqueued meanwhile may stay. `progress` gets the number of jobs in each batch."""
        removed, cursor = 0, None
        while True:
            emptied = yield from act(_purge, self.name, cursor)
            removed += emptied.number
            progress(emptied.number)
            cursor = emptied.cursor
            if cursor is None:
                break
        _log_purge(self.name, removed)
        return removed

    apurge = purge.awaited

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"


def _read(engine: Engine, name: str) -> QueueInfo:
    found = [record for record in engine.queues() if record.queue == name]
    record = found[0] if found else QueueRecord(queue=name)
    jobs: Counter[State] = Counter()
    for line, counts in engine.stats().queues.items():
        if queue_of(line) == name:
            jobs.update(counts)
    ageing = timedelta(milliseconds=record.ageing_ms) if record.ageing_ms else None
    return QueueInfo(
        name=name,
        paused=record.paused,
        ageing=ageing,
        max_waiting=record.max_waiting or None,
        jobs={state: number for state, number in jobs.items() if number},
    )


def _change(engine: Engine, name: str, change: QueueChange) -> None:
    engine.change_queue(name, change)


def _purge(engine: Engine, name: str, cursor: str | None) -> Emptied:
    return engine.purge(name, cursor)


def _log_purge(queue: str, removed: int) -> None:
    import logging  # slow to import, and seldom needed

    logging.getLogger("windlass").warning(
        "purged queue %s: %s removed", queue, count(removed, "job")
    )

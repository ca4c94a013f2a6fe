"""A queue as operators see it: pause it, resume it, change its settings, empty it.

`Queue` is a handle, made by `app.queue(name)`; making one asks nobody. Its settings live in the
engine, so they count for all producers and workers, and stay when nobody is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.core.durations import Duration, describe_ms, to_ms
from windlass.core.plurals import count
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import LEAST_AGEING_MS
from windlass.core.states import State
from windlass.engine.contract import QueueChange, QueueRecord

if TYPE_CHECKING:
    from windlass.app import Windlass


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant."""

    name: str
    paused: bool
    ageing: timedelta | None  # so much waiting is worth a level of priority
    max_waiting: int | None  # with so many that wait, no more are taken in
    jobs: Mapping[State, int]  # how many are in which state; those with none are left out


class Queue:
    """A handle on a queue. Made by `app.queue(name)`."""

    def __init__(self, app: Windlass, name: str) -> None:
        self._app = app
        self.name = name

    def info(self) -> QueueInfo:
        """Its settings, and how many jobs it has."""
        engine = self._app.engine
        found = [record for record in engine.queues() if record.queue == self.name]
        record = found[0] if found else QueueRecord(queue=self.name)
        jobs: Counter[State] = Counter()
        for line, counts in engine.stats().queues.items():
            if queue_of(line) == self.name:
                jobs.update(counts)
        jobs = Counter({state: number for state, number in jobs.items() if number})
        ageing = timedelta(milliseconds=record.ageing_ms) if record.ageing_ms else None
        return QueueInfo(
            name=self.name,
            paused=record.paused,
            ageing=ageing,
            max_waiting=record.max_waiting or None,
            jobs=jobs,
        )

    def pause(self) -> None:
        """Let no worker claim anything from it. What runs goes on; what waits keeps its place."""
        self._change(QueueChange(paused=True))

    def resume(self) -> None:
        """Let workers claim from it again; those that wait are woken."""
        self._change(QueueChange(paused=False))

    def set(self, *, ageing: Duration | None = None, max_waiting: int | None = None) -> None:
        """Change its settings; what is not given stays as it is, and 0 takes a setting away.

        With `ageing` a level of priority is worth so much waiting, for what becomes ready from now
        on: a job is overtaken by those only that were enqueued at most so many times `ageing` after
        it as their priority is higher.

        With `max_waiting` an enqueue is refused, or waits (`when_full`), while so many jobs wait:
        ready, scheduled and retrying ones."""
        if max_waiting is not None and (isinstance(max_waiting, bool) or max_waiting < 0):
            raise ValueError(f"max_waiting must be a whole number, found {max_waiting!r}")
        ageing_ms = None if ageing is None else to_ms(ageing, name="ageing")
        if ageing_ms is not None and 0 < ageing_ms < LEAST_AGEING_MS:
            raise ValueError(
                f"ageing must be at least {describe_ms(LEAST_AGEING_MS)}, or 0 for none, found "
                f"{ageing!r}"
            )
        self._change(QueueChange(ageing_ms=ageing_ms, max_waiting=max_waiting))

    def purge(self, progress: Callable[[int], object] = lambda number: None) -> int:
        """Remove what waits in it for good, not what runs; how many jobs that was.

        It is done in bounded bites, so others go on meanwhile, and what they enqueue may stay.
        `progress` is called with the number of each bite."""
        removed, cursor = 0, None
        while True:
            emptied = self._app.engine.purge(self.name, cursor)
            removed += emptied.number
            progress(emptied.number)
            cursor = emptied.cursor
            if cursor is None:
                break
        _log_purge(self.name, removed)
        return removed

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def _change(self, change: QueueChange) -> None:
        self._app.engine.change_queue(self.name, change)


def _log_purge(queue: str, removed: int) -> None:
    import logging  # slow to import, and seldom needed

    logging.getLogger("windlass").warning(
        "queue %s was purged: %s removed", queue, count(removed, "job")
    )

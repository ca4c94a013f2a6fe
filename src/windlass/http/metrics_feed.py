"""The numbers of `/metrics`: one snapshot of the engine a second, whatever the number of scrapers.

1. `read_app` reads counters, sessions and schedules. It reads no job, and its cost does not grow
   with the number of stored jobs.
2. `MetricsFeed` shares a snapshot between scrapers. A snapshot that takes too long is dropped: its
   numbers may be of different instants.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from windlass.core.queues.load import QueueLoad
from windlass.core.states import State
from windlass.engine.contract import Engine
from windlass.errors import EngineError
from windlass.fleet import count_fleet
from windlass.http.access_log import log
from windlass.http.gateway import Gateway
from windlass.queue_loads import count_jobs, read_loads
from windlass.telemetry.app_metrics import AppMetrics, AppSnapshot, QueueNumbers
from windlass.telemetry.metric_table import MAX_VALUES

#: A snapshot serves all scrapes of this time, in seconds.
FRESH_S: Final = 1.0
#: After this time without an answer the engine counts as away, in seconds.
LATE_S: Final = 2.0


class MetricsFeed:
    """The latest snapshot of an instance, as `gateway.part(MetricsFeed)`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._reading: asyncio.Task[AppSnapshot | None] | None = None
        self._began_at = float("-inf")
        self.metrics = AppMetrics()

    async def read(self) -> AppSnapshot | None:
        """Return a snapshot, at most about `FRESH_S` old; None if the engine does not answer. At
        most one call of the engine is under way."""
        now = time.monotonic()
        reading = self._reading
        if reading is None or (reading.done() and now >= self._began_at + FRESH_S):
            self._began_at = now
            reading = self._reading = asyncio.create_task(self._read())
        await asyncio.wait({reading}, timeout=LATE_S)
        return reading.result() if reading.done() else None

    async def _read(self) -> AppSnapshot | None:
        began = time.monotonic()
        try:
            snapshot = await self._gateway.call(read_app, self._gateway.app.engine)
        except EngineError as error:
            log.warning("metrics: no answer from the engine: %s", error)
            return None
        return snapshot if time.monotonic() - began <= LATE_S else None


def read_app(engine: Engine) -> AppSnapshot:
    """Read the numbers of an app."""
    stats = engine.stats()
    fleet = count_fleet(engine)
    jobs = count_jobs(stats)
    return AppSnapshot(
        queues=tuple(
            _numbers_of(load, jobs.get(load.queue, {})) for load in read_loads(engine, stats=stats)
        ),
        enqueued=stats.enqueued,
        sessions_lost=stats.totals.get("sessions_lost", 0),
        workers=fleet.workers,
        slots=fleet.slots,
        busy_slots=fleet.busy_slots,
        schedule_lags_s=_read_lags(engine),
    )


def _numbers_of(load: QueueLoad, jobs: dict[State, int]) -> QueueNumbers:
    return QueueNumbers(
        queue=load.queue,
        jobs=jobs,
        oldest_ready_s=load.oldest_s,
        demand_slots=load.demand_slots,
        drain_s=load.drain_s,
        is_paused=load.paused,
    )


def _read_lags(engine: Engine) -> dict[str, float]:
    """How long schedules have been due, by name: the first ones, and others that are due."""
    lags = {record.name: 0.0 for record in engine.list_schedules(limit=MAX_VALUES)}
    due = engine.due_schedules(limit=MAX_VALUES)
    for record in due.records:
        if record.due_ms is not None:
            lags[record.name] = max(0, due.now_ms - record.due_ms) / 1000
    return lags

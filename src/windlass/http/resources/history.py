"""The history of queues and tasks, by the minute or by the hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from windlass.core.durations import instant
from windlass.core.history import KEEP_HOURS_MS
from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine
from windlass.history import (
    HistoryChoice,
    HistoryRow,
    HistoryStep,
    QueueDepth,
    StepName,
    choose_from,
    depths_of,
    read_steps,
    rows_of,
)
from windlass.http.problems import invalid
from windlass.http.resources.fields import Instant, PlainName, QueueName
from windlass.http.routes import VIEWERS, ApiRequest, route

#: One request reads at most about this many rows of the engine, however few match.
MAX_READ: Final = 20_000


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    #: How far back: at most a day by the minute, and 30 days by the hour.
    since_s: Annotated[float, Meta(ge=0, le=KEEP_HOURS_MS / 1000)] = 3600.0
    step: StepName = "minute"
    queue: QueueName | None = None
    task: PlainName | None = None
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,15}$(?!\n)")] | None = None
    #: About this many entries: a page ends with a whole minute or hour.
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 1_000


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of one task in one queue did in one minute or hour."""

    at: Instant  # when the minute or hour began
    queue: str
    task: str
    enqueued: int
    outcomes: Mapping[str, int]  # how runs ended: succeeded, retried, dead, snoozed, released
    in_rate: float  # enqueued jobs per second
    out_rate: float  # runs that ended, per second
    failure_rate: float | None  # failed attempts, as a share of those that succeeded or failed
    mean_run_s: float | None
    wait_p50_s: float | None  # from when a job was ready to its start
    wait_p99_s: float | None
    run_p50_s: float | None
    run_p99_s: float | None


class DepthItem(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue at an instant of a minute; in an hour, the largest of these numbers."""

    at: Instant  # when the minute or hour began
    queue: str
    ready: int
    scheduled: int  # scheduled and retrying
    running: int
    dead: int
    oldest_s: float  # how long its next job had been ready


class HistoryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Some minutes or hours, in the order of time. A page may be short, or even empty, and still
    have a cursor."""

    step: StepName
    end: Instant  # now, by the engine's clock
    rows: tuple[HistoryItem, ...]
    depths: tuple[DepthItem, ...]
    cursor: str | None  # of the next page; null at the end


@route("GET", "/v1/history", roles=VIEWERS)
async def read_history(call: ApiRequest, query: HistoryQuery) -> HistoryAnswer:
    """Read what happened in queues and tasks, by the minute or by the hour.

    Runs of the last seconds, and jobs enqueued in the last minute, may be missing. A caller for
    some queues sees only those."""
    if query.queue is not None:
        call.principal.require_queue(query.queue)
    engine = call.gateway.app.engine
    return await call.gateway.call(_read_page, engine, query, call.principal.may_use)


def _read_page(
    engine: Engine, query: HistoryQuery, may_use: Callable[[str], bool]
) -> HistoryAnswer:
    now_ms = read_clock(engine)
    choice = HistoryChoice(
        since=int(query.since_s * 1000), step=query.step, queue=query.queue, task=query.task
    )
    try:
        begin_ms = choice.begin_ms(now_ms)
    except ValueError as error:
        raise invalid("query.since_s", str(error)) from error
    begin_ms = max(begin_ms, min(int(query.cursor or 0), now_ms))
    rows: list[HistoryItem] = []
    depths: list[DepthItem] = []
    read, cursor = 0, None
    for step in read_steps(engine, begin_ms, now_ms, query.step):
        if len(rows) + len(depths) >= query.limit or read >= MAX_READ:
            cursor = str(step.at_ms)
            break
        read += len(step.measures) + len(step.samples)
        seen = _visible(choose_from(step, choice), may_use)
        rows += map(_describe_row, rows_of(seen, query.step, now_ms))
        depths += map(_describe_depth, depths_of(seen))
    return HistoryAnswer(
        step=query.step,
        end=instant(now_ms),
        rows=tuple(rows),
        depths=tuple(depths),
        cursor=cursor,
    )


def _visible(step: HistoryStep, may_use: Callable[[str], bool]) -> HistoryStep:
    return HistoryStep(
        step.at_ms,
        {key: counts for key, counts in step.measures.items() if may_use(key[0])},
        {queue: sample for queue, sample in step.samples.items() if may_use(queue)},
    )


def _describe_row(row: HistoryRow) -> HistoryItem:
    return msgspec.convert(row, HistoryItem, from_attributes=True)


def _describe_depth(depth: QueueDepth) -> DepthItem:
    return msgspec.convert(depth, DepthItem, from_attributes=True)

"""The history of queues and tasks, `app.history()`: what happened minute by minute or hour by hour.

1. `HistoryChoice` is a filter. `read_steps` reads the minutes or hours of an engine one after the
   other, in bounded pages. The hours of the last day are added up from their minutes.
2. `HistoryWindow` adds up steps by queue and by task, and knows which time their counts cover.
3. `Activity` says what counts mean: rates, failure rate and quantiles.
4. `read_history` reads the whole `AppHistory`, and `read_window` only its sums.

What counts cover: workers add the runs that ended to the current minute, a few seconds later. So
these counts cover the time from the first step until now. Enqueued jobs are added once a minute,
for the time since the last addition, together with a sample of each queue. So these counts cover
the time from the first sample to the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from windlass.core.durations import Duration, describe_ms, instant, instant_ms, to_ms
from windlass.core.history import (
    HOUR_MS,
    KEEP_HOURS_MS,
    KEEP_MINUTES_MS,
    MINUTE_MS,
    WIDTH,
    Summary,
)
from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine, MeasureRow, QueueSample

if TYPE_CHECKING:
    from windlass.task import Task

StepName: TypeAlias = Literal["minute", "hour"]
STEP_MS: Final[Mapping[StepName, int]] = {"minute": MINUTE_MS, "hour": HOUR_MS}
#: How far back each step goes, in milliseconds.
LONGEST_MS: Final[Mapping[StepName, int]] = {"minute": KEEP_MINUTES_MS, "hour": KEEP_HOURS_MS}


# ----------------------------------------------------------------------------------------- records


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs did in a span of time."""

    enqueued: int
    outcomes: Mapping[str, int]  # how runs ended: succeeded, retried, dead, snoozed, released
    in_rate: float  # enqueued jobs per second
    out_rate: float  # runs that ended, per second
    failure_rate: float | None  # failed attempts, as a share of those that succeeded or failed
    mean_run_s: float | None
    wait_p50_s: float | None  # from when a job was ready to its start; None if no run ended
    wait_p99_s: float | None
    run_p50_s: float | None
    run_p99_s: float | None

    @property
    def runs(self) -> int:
        """How many runs ended, in any way."""
        return sum(self.outcomes.values())


class HistoryRow(Activity, frozen=True, kw_only=True):
    """What the jobs of one task in one queue did in one minute or hour."""

    at: datetime  # when the minute or hour began
    queue: str
    task: str


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue at an instant of a minute; in an hour, the largest of these numbers."""

    at: datetime  # when the minute or hour began
    queue: str
    ready: int
    scheduled: int  # scheduled and retrying
    running: int
    dead: int
    oldest_s: float  # how long its next job had been ready


class AppHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of an app, in the order of time, and its sums by queue and by task."""

    step: StepName
    begin: datetime  # when the first step began, or could have begun
    end: datetime  # when the history was read, by the engine's clock
    rows: tuple[HistoryRow, ...]
    depths: tuple[QueueDepth, ...]
    queues: Mapping[str, Activity]
    tasks: Mapping[str, Activity]


# ---------------------------------------------------------------------------------------- choosing


class HistoryChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the history to read."""

    since: datetime | int  # an instant, or an age in milliseconds
    step: StepName = "minute"
    queue: str | None = None
    task: str | None = None

    def fits(self, queue: str, task: str) -> bool:
        return self.queue in (None, queue) and self.task in (None, task)

    def begin_ms(self, now_ms: int) -> int:
        """When the first step begins: the step that contains `since`."""
        given = self.since
        since_ms = (
            instant_ms(given, name="since") if isinstance(given, datetime) else now_ms - given
        )
        longest_ms, step_ms = LONGEST_MS[self.step], STEP_MS[self.step]
        if since_ms > now_ms:
            raise ValueError(f"since must be before now, which is {instant(now_ms)}, found {given}")
        if now_ms - since_ms > longest_ms:
            raise ValueError(
                f"since must be at most {describe_ms(longest_ms)} ago with the step {self.step}, "
                f"found {describe_ms(now_ms - since_ms)}{self._advice(now_ms - since_ms)}"
            )
        return since_ms - since_ms % step_ms

    def _advice(self, age_ms: int) -> str:
        is_in_hours = self.step == "minute" and age_ms <= KEEP_HOURS_MS
        return ': the step "hour" goes back further' if is_in_hours else ""


def choose_history(
    since: datetime | Duration,
    queue: str | None,
    task: str | Task[..., Any] | None,
    step: StepName,
) -> HistoryChoice:
    """Check the arguments of `app.history`."""
    from windlass.client.options import read_queue  # a supervisor, which checks none, loads less
    from windlass.dead_letters import read_task

    if step not in get_args(StepName):
        raise ValueError(f"step must be one of {', '.join(get_args(StepName))}, found {step!r}")
    return HistoryChoice(
        since=since if isinstance(since, datetime) else to_ms(since, name="since"),
        step=step,
        queue=None if queue is None else read_queue("queue", queue),
        task=read_task(task),
    )


# ----------------------------------------------------------------------------------------- reading


class HistoryStep(msgspec.Struct, frozen=True):
    """One minute or hour of all queues and tasks."""

    at_ms: int
    measures: Mapping[tuple[str, str], Sequence[int]]  # queue and task -> counts
    samples: Mapping[str, QueueSample]

    @property
    def is_sampled(self) -> bool:
        """Whether enqueued jobs were counted in this step. If all of them have left, there is no
        sample of their queue."""
        return bool(self.samples) or any(
            Summary(counts).enqueued for counts in self.measures.values()
        )


def read_steps(engine: Engine, begin_ms: int, now_ms: int, step: StepName) -> Iterator[HistoryStep]:
    """Read the steps from an instant on, in the order of time. Reads only as far as the caller
    goes."""
    rows = _read_rows(engine, begin_ms, now_ms, by_hour=False)
    if step == "hour":
        # The hours first: a minute that is moved to its hour meanwhile is missing, not counted
        # twice.
        rows = merge(_read_rows(engine, begin_ms, now_ms, by_hour=True), rows, key=_begin_of)
    step_ms = STEP_MS[step]
    for at_ms, own in groupby(rows, lambda row: row.at_ms - row.at_ms % step_ms):
        yield _add_up(at_ms, own)


def _read_rows(
    engine: Engine, begin_ms: int, now_ms: int, *, by_hour: bool
) -> Iterator[MeasureRow | QueueSample]:
    """Read rows from an instant on, until now. The engine counts back from its own time, which is
    later than `now_ms`: so a little more is read. Rows of later minutes are from before the clock
    was set back, and in no rate of the last minutes."""
    cursor: str | None = None
    while True:
        page = engine.history(now_ms - begin_ms + MINUTE_MS, by_hour=by_hour, cursor=cursor)
        parts: tuple[Sequence[MeasureRow | QueueSample], ...] = page.measures, page.samples
        for row in merge(*parts, key=_begin_of):
            if row.at_ms > now_ms:
                return
            if row.at_ms >= begin_ms:
                yield row
        cursor = page.cursor
        if cursor is None:
            return


def _begin_of(row: MeasureRow | QueueSample) -> int:
    return row.at_ms


def _add_up(at_ms: int, rows: Iterator[MeasureRow | QueueSample]) -> HistoryStep:
    measures: dict[tuple[str, str], Sequence[int]] = {}
    samples: dict[str, QueueSample] = {}
    for row in rows:
        if isinstance(row, QueueSample):
            _note_largest(samples, row)
        else:
            key = row.queue, row.task
            known_counts = measures.get(key)
            measures[key] = row.counts if known_counts is None else _sum(known_counts, row.counts)
    return HistoryStep(at_ms, measures, samples)


def _sum(some: Sequence[int], others: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(some, others, strict=True)]


def _note_largest(samples: dict[str, QueueSample], other: QueueSample) -> None:
    one = samples.setdefault(other.queue, other)
    samples[other.queue] = QueueSample(
        at_ms=one.at_ms,
        queue=one.queue,
        ready=max(one.ready, other.ready),
        scheduled=max(one.scheduled, other.scheduled),
        running=max(one.running, other.running),
        dead=max(one.dead, other.dead),
        oldest_ready_ms=max(one.oldest_ready_ms, other.oldest_ready_ms),
    )


# --------------------------------------------------------------------------------------- adding up


class HistorySum:
    """The counts of a queue or task in a window."""

    __slots__ = ("counts", "enqueued_later")

    def __init__(self) -> None:
        self.counts: Sequence[int] = (0,) * WIDTH
        self.enqueued_later = 0  # after the first sample

    def add(self, counts: Sequence[int], *, is_later: bool) -> None:
        self.counts = _sum(self.counts, counts)
        if is_later:
            self.enqueued_later += Summary(counts).enqueued


class HistoryWindow:
    """The steps of a window, added up by queue and by task."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._begin_ms: int | None = None
        self._first_sample_ms: int | None = None
        self._last_sample_ms = 0
        self.queues: dict[str, HistorySum] = {}
        self.tasks: dict[str, HistorySum] = {}
        self.peaks: dict[str, QueueSample] = {}  # the largest numbers of each queue

    def add(self, step: HistoryStep) -> None:
        """Add a step that is later than all before it. Its samples are those of all queues: they
        tell when enqueued jobs were counted."""
        if self._begin_ms is None:
            self._begin_ms = step.at_ms
        is_later = self._first_sample_ms is not None
        if step.is_sampled:
            self._first_sample_ms = self._first_sample_ms or step.at_ms
            self._last_sample_ms = step.at_ms
        for sample in step.samples.values():
            _note_largest(self.peaks, sample)
        for (queue, task), counts in step.measures.items():
            for name, sums in ((queue, self.queues), (task, self.tasks)):
                sums.setdefault(name, HistorySum()).add(counts, is_later=is_later)

    def rates(self, own: HistorySum) -> tuple[float, float]:
        """Jobs that were enqueued, and runs that ended, per second. Enqueued jobs in the first
        sample entered before it: they count only if there is no other sample."""
        span_s, sampled_s = self.span_s, self._sampled_s
        runs = Summary(own.counts).runs / span_s
        if sampled_s:
            return own.enqueued_later / sampled_s, runs
        return Summary(own.counts).enqueued / span_s, runs

    def activity(self, own: HistorySum) -> Activity:
        in_rate, out_rate = self.rates(own)
        return Activity(**_facts(own.counts), in_rate=in_rate, out_rate=out_rate)

    @property
    def span_s(self) -> float:
        """The time that is covered. A part of a minute counts as a minute."""
        begin_ms = self._now_ms if self._begin_ms is None else self._begin_ms
        return max(self._now_ms - begin_ms, MINUTE_MS) / 1000

    @property
    def _sampled_s(self) -> float:
        return (self._last_sample_ms - (self._first_sample_ms or self._last_sample_ms)) / 1000


def _facts(counts: Sequence[int]) -> dict[str, Any]:
    """The fields of `Activity` that do not depend on a span of time."""
    summary = Summary(counts)
    return {
        "enqueued": summary.enqueued,
        "outcomes": summary.outcomes,
        "failure_rate": summary.failure_rate,
        "mean_run_s": summary.mean_run_s,
        "wait_p50_s": summary.wait_quantile_s(0.5),
        "wait_p99_s": summary.wait_quantile_s(0.99),
        "run_p50_s": summary.run_quantile_s(0.5),
        "run_p99_s": summary.run_quantile_s(0.99),
    }


# -------------------------------------------------------------------------------------- the result


def read_history(engine: Engine, choice: HistoryChoice) -> AppHistory:
    """Read the chosen part of the history."""
    now_ms = read_clock(engine)
    begin_ms = choice.begin_ms(now_ms)
    window, rows, depths = HistoryWindow(now_ms), list[HistoryRow](), list[QueueDepth]()
    for step in read_steps(engine, begin_ms, now_ms, choice.step):
        chosen = choose_from(step, choice)
        window.add(msgspec.structs.replace(chosen, samples=step.samples))
        rows += rows_of(chosen, choice.step, now_ms)
        depths += depths_of(chosen)
    return AppHistory(
        step=choice.step,
        begin=instant(begin_ms),
        end=instant(now_ms),
        rows=tuple(rows),
        depths=tuple(depths),
        queues={name: window.activity(own) for name, own in sorted(window.queues.items())},
        tasks={name: window.activity(own) for name, own in sorted(window.tasks.items())},
    )


def read_window(engine: Engine, choice: HistoryChoice) -> HistoryWindow:
    """Read only the sums of the chosen part of the history."""
    now_ms = read_clock(engine)
    window = HistoryWindow(now_ms)
    for step in read_steps(engine, choice.begin_ms(now_ms), now_ms, choice.step):
        window.add(msgspec.structs.replace(choose_from(step, choice), samples=step.samples))
    return window


def choose_from(step: HistoryStep, choice: HistoryChoice) -> HistoryStep:
    """A step without the queues and tasks that were not chosen. Samples have no task."""
    measures = {key: counts for key, counts in step.measures.items() if choice.fits(*key)}
    samples = {name: one for name, one in step.samples.items() if choice.queue in (None, name)}
    return HistoryStep(step.at_ms, measures, samples)


def rows_of(step: HistoryStep, name: StepName, now_ms: int) -> Iterator[HistoryRow]:
    """The rows of a step. The current step is not over: runs that ended are divided by the time
    since its beginning, and enqueued jobs, which are added once a minute, by whole minutes."""
    passed_ms = min(STEP_MS[name], max(now_ms - step.at_ms, 1000))
    minutes_ms = -(-passed_ms // MINUTE_MS) * MINUTE_MS
    for (queue, task), counts in sorted(step.measures.items()):
        summary = Summary(counts)
        yield HistoryRow(
            **_facts(counts),
            at=instant(step.at_ms),
            queue=queue,
            task=task,
            in_rate=summary.enqueued / minutes_ms * 1000,
            out_rate=summary.runs / passed_ms * 1000,
        )


def depths_of(step: HistoryStep) -> Iterator[QueueDepth]:
    for queue, sample in sorted(step.samples.items()):
        yield QueueDepth(
            at=instant(step.at_ms),
            queue=queue,
            ready=sample.ready,
            scheduled=sample.scheduled,
            running=sample.running,
            dead=sample.dead,
            oldest_s=sample.oldest_ready_ms / 1000,
        )

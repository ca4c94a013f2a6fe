"""The reference model of the history: counters of enqueued jobs, measures and samples, as dicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

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
    MAX_PAIRS,
    REPORTER_MS,
    HistoryPage,
    Measure,
    MeasureRow,
    QueueSample,
    Stats,
    check_report,
    make_history_page,
    read_history_cursor,
)

Pair = tuple[str, str]  # queue, without labels, and task
_OTHERS: Pair = (OTHER, OTHER)


class PairCounter(msgspec.Struct):
    """The number of jobs that were enqueued for a queue and task."""

    number: int
    grown_ms: int  # when the history got the last of them
    sampled: int = 0  # how many of them the history has


class HistoryModel(ABC):
    def __init__(self) -> None:
        self.pairs: dict[Pair, PairCounter] = {}
        self.forgotten = 0  # jobs of pairs without a counter
        #: Whether it is an hour, its beginning, and the pair -> counts.
        self.measures: dict[tuple[bool, int, Pair], tuple[int, ...]] = {}
        self.samples: dict[tuple[bool, int, str], QueueSample] = {}
        self.reporters: dict[str, tuple[int, int]] = {}  # its last number, and until when
        self.sampled_ms = 0

    @abstractmethod
    def clock_ms(self) -> int: ...

    @abstractmethod
    def stats(self) -> Stats: ...

    def count_enqueued(self, line: str, task: str) -> None:
        pair = (queue_of(line), task)
        if pair not in self.pairs and len(self.pairs.keys() - {_OTHERS}) >= MAX_PAIRS:
            pair = _OTHERS
        counter = self.pairs.setdefault(pair, PairCounter(0, self.clock_ms()))
        counter.number += 1

    def record(self, reporter: str, number: int, measures: Sequence[Measure]) -> None:
        check_report(number, measures)
        now_ms = self.clock_ms()
        last, until_ms = self.reporters.get(reporter, (0, 0))
        if now_ms < until_ms and number <= last:
            return
        self.reporters[reporter] = (number, now_ms + REPORTER_MS)
        at_ms = now_ms - now_ms % MINUTE_MS
        for measure in measures:
            self._add((False, at_ms, (measure.queue, measure.task)), measure.counts)

    def _add(self, name: tuple[bool, int, Pair], counts: Sequence[int]) -> None:
        by_hour, at_ms, _ = name
        others = [pair for *when, pair in self.measures if when == [by_hour, at_ms]]
        if name not in self.measures and len({*others} - {_OTHERS}) >= MAX_PAIRS:
            name = (by_hour, at_ms, _OTHERS)
        self.measures[name] = add_counts([self.measures.get(name, (0,) * WIDTH), counts])

    def keep_history(self) -> None:
        """Do the maintenance of the history, in one batch of any size."""
        now_ms = self.clock_ms()
        at_ms = now_ms - now_ms % MINUTE_MS
        if self.sampled_ms != at_ms:
            self._add_growth(at_ms)
            self._take_samples(at_ms)
            self.sampled_ms = at_ms
        begin_ms, end_ms = now_ms - KEEP_HOURS_MS, now_ms + KEEP_HOURS_MS
        self.measures = {
            name: row for name, row in self.measures.items() if begin_ms <= name[1] <= end_ms
        }
        self.samples = {
            name: row for name, row in self.samples.items() if begin_ms <= name[1] <= end_ms
        }
        self._roll_up(now_ms - KEEP_MINUTES_MS)

    def _add_growth(self, at_ms: int) -> None:
        now_ms = self.clock_ms()
        for pair, counter in list(self.pairs.items()):
            if counter.number > counter.sampled:
                counts = [0] * WIDTH
                counts[ENQUEUED] = counter.number - counter.sampled
                self._add((False, at_ms, pair), counts)
                counter.sampled, counter.grown_ms = counter.number, now_ms
            elif counter.grown_ms <= now_ms - KEEP_MINUTES_MS:
                self.forgotten += self.pairs.pop(pair).number

    def _take_samples(self, at_ms: int) -> None:
        stats = self.stats()
        queues = sorted({queue_of(line) for line in stats.queues})[:MAX_PAIRS]
        for queue in queues:
            lines = [line for line in stats.queues if queue_of(line) == queue]
            numbers = {state: sum(stats.queues[line][state] for line in lines) for state in State}
            self.samples[False, at_ms, queue] = QueueSample(
                at_ms=at_ms,
                queue=queue,
                ready=numbers[State.READY],
                scheduled=numbers[State.SCHEDULED] + numbers[State.RETRYING],
                running=numbers[State.RUNNING],
                dead=numbers[State.DEAD],
                oldest_ready_ms=max(stats.oldest_ready_ms.get(line, 0) for line in lines),
            )

    def _roll_up(self, before_ms: int) -> None:
        for name in sorted(self.measures):
            by_hour, at_ms, pair = name
            if not by_hour and at_ms < before_ms:
                self._add((True, at_ms - at_ms % HOUR_MS, pair), self.measures.pop(name))
        for by_hour, at_ms, queue in sorted(self.samples):
            if not by_hour and at_ms < before_ms:
                hour_ms = at_ms - at_ms % HOUR_MS
                sample = self.samples.pop((False, at_ms, queue))
                known = self.samples.get((True, hour_ms, queue), sample)
                self.samples[True, hour_ms, queue] = _largest(hour_ms, known, sample)

    def history(
        self, begin_ago_ms: int, *, by_hour: bool = False, cursor: str | None = None
    ) -> HistoryPage:
        begin_ms = self.clock_ms() - begin_ago_ms
        if cursor is not None:
            begin_ms = read_history_cursor(cursor)
        measures = [
            MeasureRow(at_ms=at_ms, queue=queue, task=task, counts=counts)
            for (is_hour, at_ms, (queue, task)), counts in self.measures.items()
            if is_hour == by_hour and at_ms >= begin_ms
        ]
        samples = [
            sample
            for (is_hour, at_ms, _), sample in self.samples.items()
            if is_hour == by_hour and at_ms >= begin_ms
        ]
        return make_history_page(measures, samples, None)


def _largest(at_ms: int, one: QueueSample, other: QueueSample) -> QueueSample:
    names = ("ready", "scheduled", "running", "dead", "oldest_ready_ms")
    numbers = {name: max(getattr(one, name), getattr(other, name)) for name in names}
    return QueueSample(at_ms=at_ms, queue=one.queue, **numbers)

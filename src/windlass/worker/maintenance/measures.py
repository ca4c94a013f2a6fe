"""The measures of a whole worker, and their way into the history of the engine.

1. `WorkerMeasures` adds up what children report: totals since the start, for metrics, and the
   growth that is not in the history yet. Both are bounded, however many tasks and queues there are
   and however long the engine is away. The totals include children that have ended.
2. `HistoryRecorder` records the growth in the engine every few seconds. A report has a number.
   After an error it is repeated with the same number and the same measures, which the engine adds
   once; later growth waits for the next report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from logging import getLogger
from threading import Lock
from time import monotonic
from typing import Final, TypeAlias

import msgspec

from windlass.core.history import OTHER, WIDTH, Summary, Tally, add_counts
from windlass.core.ids import random_digits
from windlass.core.quantities import Count
from windlass.engine.contract import MAX_MEASURES, REPORTER_MS, Engine, Measure
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: The most tasks, queues, and pairs of both with measures of their own. Others count as
#: `history.OTHER`.
MAX_NAMES: Final = 200
MAX_TOTALS: Final = 1_000
#: How often to record the growth, in seconds.
RECORD_S: Final = 10.0
#: A report that has failed for this long, in seconds, is dropped: the engine may soon forget
#: whether it has added the report.
GIVE_UP_S: Final = REPORTER_MS / 1000 / 2

NO_COUNTS: Final = (0,) * WIDTH
NO_STALE: Final[Mapping[str, int]] = {}
#: A queue, without labels, and a task.
Pair: TypeAlias = tuple[str, str]


class Totals(msgspec.Struct, frozen=True):
    """The measures of a worker since its start."""

    measures: tuple[Measure, ...]
    stale: Mapping[str, int]  # the number of rejected outcomes by verb


class WorkerMeasures:
    """The measures of all children of a worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._totals: dict[Pair, tuple[int, ...]] = {}
        self._growth: dict[Pair, tuple[int, ...]] = {}
        self._stale: dict[str, int] = {}
        self._queues: set[str] = set()
        self._tasks: set[str] = set()

    def add(self, measures: Sequence[Measure], stale: Mapping[str, int] = NO_STALE) -> None:
        """Add the growth of the measures of a child."""
        with self._lock:
            for measure in measures:
                pair = self._pair_of(measure.queue, measure.task)
                for kept in (self._totals, self._growth):
                    kept[pair] = add_counts([kept.get(pair, NO_COUNTS), measure.counts])
            for verb, number in stale.items():
                self._stale[verb] = self._stale.get(verb, 0) + number

    def add_run(
        self, queue: str, task: str, outcome: int, wait_s: float | None, run_s: float | None
    ) -> None:
        """Add one run, as `Tally.add` counts it."""
        tally = Tally()
        tally.add(outcome, wait_s, run_s)
        self.add([Measure(queue=queue, task=task, counts=tuple(tally.counts))])

    def snapshot(self) -> Totals:
        """The totals since the start."""
        with self._lock:
            return Totals(_measures_of(self._totals), dict(self._stale))

    def has_growth(self) -> bool:
        return bool(self._growth)

    def take_growth(self) -> tuple[Measure, ...]:
        """Return the growth since the last call."""
        with self._lock:
            growth, self._growth = self._growth, {}
        return _measures_of(growth)

    def _pair_of(self, queue: str, task: str) -> Pair:
        pair = (queue, task)
        if pair in self._totals:
            return pair
        pair = (_known(queue, self._queues), _known(task, self._tasks))
        if pair not in self._totals and len(self._totals) >= MAX_TOTALS:
            return OTHER, OTHER
        return pair


def _known(name: str, names: set[str]) -> str:
    """Return the name, or `OTHER` if it is new and there are too many names."""
    if name not in names:
        if len(names) >= MAX_NAMES:
            return OTHER
        names.add(name)
    return name


def _measures_of(kept: Mapping[Pair, tuple[int, ...]]) -> tuple[Measure, ...]:
    return tuple(
        Measure(queue=queue, task=task, counts=counts) for (queue, task), counts in kept.items()
    )


class NumberedReport(msgspec.Struct, frozen=True):
    """A report that was sent, or is about to be."""

    number: int
    measures: tuple[Measure, ...]
    first_at: float  # of the first attempt, by the monotonic clock


class HistoryRecorder:
    """Records the growth of measures in the engine. Used by one thread."""

    def __init__(
        self,
        engine: Engine,
        measures: WorkerMeasures,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._engine = engine
        self._measures = measures
        self._clock = clock
        self._reporter = random_digits(16)
        self._last_number = 0
        self._reports: deque[NumberedReport] = deque()

    @property
    def has_reports(self) -> bool:
        """Whether a report has failed, and is to be repeated."""
        return bool(self._reports)

    @property
    def is_settled(self) -> bool:
        """Whether all measures are recorded."""
        return not self._reports and not self._measures.has_growth()

    def record(self) -> float:
        """Record the growth; return the seconds until the next call. Raises `EngineError`; the next
        call then repeats the report."""
        if not self._reports:
            self._number(self._measures.take_growth())
        self._drop_old()
        while self._reports:
            report = self._reports[0]
            self._engine.record(self._reporter, report.number, report.measures)
            self._reports.popleft()
        return RECORD_S

    def _number(self, measures: tuple[Measure, ...]) -> None:
        now = self._clock()
        for at in range(0, len(measures), MAX_MEASURES):
            self._last_number += 1
            part = measures[at : at + MAX_MEASURES]
            self._reports.append(NumberedReport(self._last_number, part, now))

    def _drop_old(self) -> None:
        while self._reports and self._clock() - self._reports[0].first_at > GIVE_UP_S:
            _log_dropped(self._reports.popleft().measures)

    def close(self) -> None:
        """Log the measures that are not recorded: the worker ends."""
        left = [measure for report in list(self._reports) for measure in report.measures]
        _log_dropped([*left, *self._measures.take_growth()])


def _log_dropped(measures: Sequence[Measure]) -> None:
    runs = sum(Summary(measure.counts).runs for measure in measures)
    if runs:
        log.warning(LogEvent.MEASURES_DROPPED, Count(runs, "run"))

"""Read the numbers that rules of alerts watch.

`Readings` belongs to one look. Each part of the engine is read once, and only if a rule needs it:
counters, live sessions, the history of the last minutes, due schedules, and the engine's memory. No
job is read, so that the cost does not grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from windlass.core.alerts.rules import WINDOW_MS, Alert, AlertKind
from windlass.core.alerts.states import Reading
from windlass.core.history import Summary, add_counts
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import may_take, queue_of
from windlass.core.queues.plans import queue_names
from windlass.core.states import State
from windlass.engine.contract import DueSchedules, Engine, SessionCommand, SessionRecord, Stats

#: A queue whose next job has been ready for less than this time has a worker, in milliseconds.
LEAST_WAIT_MS: Final = 5_000
#: At most this many overdue schedules are read, of each partition.
MAX_OVERDUE: Final = 100
#: The slowest run in this share of the runs is the run time of a task.
RUN_SHARE: Final = 0.99


class Readings:
    """What one look reads."""

    def __init__(self, engine: Engine, rules: Iterable[Alert]) -> None:
        self._engine = engine
        watches_schedules = any(rule.kind is AlertKind.OVERDUE_SCHEDULE for rule in rules)
        self._due = engine.due_schedules(limit=MAX_OVERDUE if watches_schedules else 1)

    @property
    def at_ms(self) -> int:
        """The engine's clock."""
        return self._due.now_ms

    def of(self, rule: Alert) -> dict[str, Reading]:
        """The numbers by subject. A subject that is left out has the number 0. Growth is measured
        by its caller, who knows earlier totals: see `died`."""
        found = self._read(rule)
        return {subject: number for subject, number in found.items() if rule.concerns(subject)}

    def _read(self, rule: Alert) -> dict[str, Reading]:
        match rule.kind:
            case AlertKind.DEAD_LETTERS:
                return self._dead_letters(rule.subject)
            case AlertKind.DEAD_GROWTH:
                return {}
            case AlertKind.OLDEST_AGE:
                return _numbers(self._oldest_s)
            case AlertKind.NO_WORKER:
                return _numbers(self._unserved)
            case AlertKind.FAILURE_RATE:
                return self._failure_rates(rule.min_runs)
            case AlertKind.RUN_TIME:
                return self._run_times(rule.min_runs)
            case AlertKind.OVERDUE_SCHEDULE:
                return _numbers(overdue_s(self._due))
            case AlertKind.ENGINE_MEMORY:
                return self._memory

    @property
    def died(self) -> int:
        """How many jobs have died so far."""
        return self._stats.totals.get("dead", 0)

    # ------------------------------------------------------------------------------- counters

    @cached_property
    def _stats(self) -> Stats:
        return self._engine.stats()

    def _dead_letters(self, queue: str) -> dict[str, Reading]:
        dead = (
            counts.get(State.DEAD, 0)
            for line, counts in self._stats.queues.items()
            if queue in ("", queue_of(line))
        )
        return {queue: Reading(sum(dead))}

    @cached_property
    def _oldest_s(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for line, age_ms in self._stats.oldest_ready_ms.items():
            queue = queue_of(line)
            found[queue] = max(found.get(queue, 0.0), age_ms / 1000)
        return found

    @cached_property
    def _unserved(self) -> dict[str, float]:
        """The ready jobs that no worker may claim, by queue."""
        waiting = {
            line: self._stats.queues.get(line, {}).get(State.READY, 0)
            for line, age_ms in self._stats.oldest_ready_ms.items()
            if age_ms >= LEAST_WAIT_MS
        }
        if not any(waiting.values()):
            return {}
        served = ServedLines(_claiming(self._engine.sessions()))
        found: dict[str, float] = {}
        for line, ready in waiting.items():
            if line not in served:
                found[queue_of(line)] = found.get(queue_of(line), 0) + ready
        return found

    # -------------------------------------------------------------------------------- history

    @cached_property
    def _summaries(self) -> dict[str, Summary]:
        """What happened to each task, in all queues. Later rows than now are from before the clock
        was set back."""
        rows: dict[str, list[tuple[int, ...]]] = {}
        cursor: str | None = None
        while True:
            page = self._engine.history(WINDOW_MS, cursor=cursor)
            for row in page.measures:
                if row.at_ms <= self.at_ms:
                    rows.setdefault(row.task, []).append(row.counts)
            cursor = page.cursor
            if cursor is None:
                break
        return {task: Summary(add_counts(counts)) for task, counts in rows.items()}

    def _failure_rates(self, min_runs: int) -> dict[str, Reading]:
        return {
            task: Reading(rate, is_enough=_attempts(summary) >= min_runs)
            for task, summary in self._summaries.items()
            if (rate := summary.failure_rate) is not None
        }

    def _run_times(self, min_runs: int) -> dict[str, Reading]:
        return {
            task: Reading(seconds, is_enough=summary.runs >= min_runs)
            for task, summary in self._summaries.items()
            if (seconds := summary.run_quantile_s(RUN_SHARE)) is not None
        }

    # --------------------------------------------------------------------------------- memory

    @cached_property
    def _memory(self) -> dict[str, Reading]:
        space = self._engine.space()
        return {"": Reading(space.used / space.limit)} if space.limit else {}


def overdue_s(due: DueSchedules) -> dict[str, float]:
    """By how many seconds each due schedule is overdue."""
    return {
        record.name: max(0, due.now_ms - record.due_ms) / 1000
        for record in due.records
        if record.due_ms is not None
    }


def _numbers(values: Mapping[str, float]) -> dict[str, Reading]:
    return {subject: Reading(value) for subject, value in values.items()}


def _attempts(summary: Summary) -> int:
    outcomes = summary.outcomes
    return outcomes["succeeded"] + outcomes["retried"] + outcomes["dead"]


def _claiming(sessions: Iterable[SessionRecord]) -> list[Introduction]:
    """The descriptions of live sessions that claim jobs."""
    return [
        Introduction.unpack(one.info)
        for one in sessions
        if one.expires_in_ms >= 0 and one.command is SessionCommand.RUN
    ]


class ServedLines:
    """The lines from which some worker claims. A worker without a description serves all queues.
    Each list of queues is read once, so that thousands of workers and queues take little time."""

    def __init__(self, workers: Iterable[Introduction]) -> None:
        #: Queue -> the labels of each worker that serves it. The empty name is every queue.
        self._labels: dict[str, set[tuple[str, ...]]] = {}
        for queues, labels in {(one.queues, one.labels) for one in workers if not one.is_solo}:
            for queue in queue_names(queues) or ("",):
                self._labels.setdefault(queue, set()).add(labels)

    def __contains__(self, line: str) -> bool:
        found = (self._labels.get(queue, ()) for queue in ("", queue_of(line)))
        return any(may_take(line, labels) for own in found for labels in own)

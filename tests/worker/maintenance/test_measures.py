"""The measures of a worker: totals and growth, bounded, and their way into the history."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.worker.faulty import Faulty, lose_reply, lose_request, once
from windlass.app import Windlass
from windlass.core.history import OTHER, OUTCOMES, Summary, Tally, add_counts
from windlass.engine.contract import Engine, Measure
from windlass.errors import EngineUnavailable
from windlass.worker.maintenance.measures import (
    GIVE_UP_S,
    MAX_NAMES,
    MAX_TOTALS,
    HistoryRecorder,
    WorkerMeasures,
)

SUCCEEDED = OUTCOMES.index("succeeded")


def measure(queue: str, task: str, runs: int = 1) -> Measure:
    tally = Tally()
    tally.add_runs(SUCCEEDED, [0.02] * runs, [0.3] * runs)
    return Measure(queue=queue, task=task, counts=tuple(tally.counts))


def runs_of(measures: tuple[Measure, ...]) -> dict[tuple[str, str], int]:
    return {(one.queue, one.task): Summary(one.counts).runs for one in measures}


def test_totals_stay_and_growth_is_taken_once() -> None:
    measures = WorkerMeasures()
    measures.add([measure("mail", "send", 2), measure("mail", "sort")], {"succeed": 1})
    measures.add([measure("mail", "send")], {"succeed": 1, "retry": 2})
    assert runs_of(measures.take_growth()) == {("mail", "send"): 3, ("mail", "sort"): 1}
    assert not measures.has_growth()
    measures.add_run("mail", "send", SUCCEEDED, None, 4.0)
    assert runs_of(measures.take_growth()) == {("mail", "send"): 1}
    totals = measures.snapshot()
    assert runs_of(totals.measures) == {("mail", "send"): 4, ("mail", "sort"): 1}
    assert totals.stale == {"succeed": 2, "retry": 2}


def test_tasks_beyond_the_limit_count_as_other() -> None:
    measures = WorkerMeasures()
    measures.add([measure("mail", f"task-{number}") for number in range(MAX_NAMES + 50)])
    measures.add([measure("mail", "task-0")])
    totals = runs_of(measures.snapshot().measures)
    assert len(totals) == MAX_NAMES + 1
    assert totals["mail", OTHER] == 50
    assert totals["mail", "task-0"] == 2


def test_no_number_of_pairs_is_too_large() -> None:
    measures = WorkerMeasures()
    for queue in range(MAX_NAMES + 20):
        measures.add([measure(f"queue-{queue}", f"task-{task}") for task in range(10)])
    totals = measures.snapshot().measures
    assert len(totals) <= MAX_TOTALS + 1
    assert Summary(add_counts(one.counts for one in totals)).runs == (MAX_NAMES + 20) * 10
    assert len(measures.take_growth()) <= MAX_TOTALS + 1


# --------------------------------------------------------------------------------------- recording


class Recording:
    """A recorder with a real engine that may fail, and a clock that a test moves."""

    def __init__(self, app: Windlass) -> None:
        self.now = 0.0
        self.engine = app.engine
        self.faulty = Faulty(self.engine)
        self.measures = WorkerMeasures()
        self.recorder = HistoryRecorder(
            cast(Engine, self.faulty), self.measures, clock=lambda: self.now
        )

    def runs(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for row in self.engine.history(60 * 60 * 1000).measures:
            key = (row.queue, row.task)
            found[key] = found.get(key, 0) + Summary(row.counts).runs
        return {key: number for key, number in found.items() if number}

    def fail(self) -> None:
        with pytest.raises(EngineUnavailable):
            self.recorder.record()


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield Recording(app)
    app.close()


@pytest.mark.parametrize("fault", [lose_reply, lose_request])
def test_a_report_is_added_once_and_later_growth_follows(
    recording: Recording, fault: Callable[[Callable[[], Any]], Any]
) -> None:
    recording.measures.add([measure("mail", "send", 3)])
    recording.faulty.faults["record"] = once(fault)
    recording.fail()
    recording.measures.add([measure("mail", "send", 4)])
    assert not recording.recorder.is_settled
    recording.recorder.record()  # the repeat
    assert recording.runs() == {("mail", "send"): 3}
    recording.recorder.record()
    assert recording.runs() == {("mail", "send"): 7}
    assert recording.recorder.is_settled
    recording.recorder.record()
    assert recording.faulty.calls.count("record") == 3  # none without growth


def test_many_measures_are_recorded_in_parts(recording: Recording) -> None:
    for queue in ("a", "b", "c", "d", "e"):
        recording.measures.add([measure(queue, f"task-{number}") for number in range(150)])
    recording.faulty.faults["record"] = once(lose_reply, on=2)
    recording.fail()
    recording.recorder.record()
    assert recording.faulty.calls.count("record") == 3
    assert sum(recording.runs().values()) == 750


def test_measures_are_kept_while_the_engine_is_away_in_bounded_space(
    recording: Recording,
) -> None:
    recording.faulty.faults["record"] = lambda real, arguments: lose_request(real)
    for _ in range(20):
        recording.measures.add([measure("mail", "send", 2), measure("mail", "sort")])
        recording.fail()
    recording.faulty.faults.clear()
    recording.recorder.record()
    recording.recorder.record()
    assert recording.runs() == {("mail", "send"): 40, ("mail", "sort"): 20}
    assert recording.faulty.calls.count("record") == 22


def test_a_report_that_the_engine_may_have_forgotten_is_dropped(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    recording.measures.add([measure("mail", "send", 3)])
    recording.faulty.faults["record"] = once(lose_reply)
    recording.fail()
    recording.now += GIVE_UP_S + 1
    with caplog.at_level(logging.WARNING):
        recording.recorder.record()
    assert "could not record 3 runs in the history" in caplog.text
    assert recording.faulty.calls.count("record") == 1
    recording.measures.add([measure("mail", "send", 4)])
    recording.recorder.record()
    assert recording.runs() == {("mail", "send"): 7}


def test_what_is_left_at_the_end_is_logged(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    recording.measures.add([measure("mail", "send", 3)])
    recording.faulty.faults["record"] = once(lose_request)
    recording.fail()
    recording.measures.add([measure("mail", "sort", 2)])
    with caplog.at_level(logging.WARNING):
        recording.recorder.close()
    assert "could not record 5 runs in the history" in caplog.text

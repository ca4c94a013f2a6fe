"""Steps of jobs whose process is killed: each runs once, on every engine."""

from __future__ import annotations

import pytest

from tests.worker.apps.charging import KILLED_STARTS, Charging
from tests.worker.yard import Yard
from windlass.core.states import State

APP = "tests.worker.apps.charging:app"


def lines(yard: Yard, event: str, job_id: str) -> list[str]:
    return [line for line in yard.lines() if line.startswith(f"{event} {job_id}")]


@pytest.mark.parametrize("kind", ["plain", "coroutine", "process", "below"])
def test_a_completed_step_outlives_its_process(yard: Yard, kind: str) -> None:
    """Each start is ended by SIGKILL after the charge, apart from the last."""
    job = getattr(Charging(yard.app), kind).enqueue(1250)
    yard.start(app=APP)
    record = yard.await_state(job, State.SUCCEEDED)
    assert record.counters.crashes == KILLED_STARTS
    assert len(lines(yard, "begin", job.id)) == KILLED_STARTS + 1
    assert len(lines(yard, "charge", job.id)) == 1
    assert job.result(timeout=5) == "receipt-1"
    assert len(set(lines(yard, "key", job.id))) == 1
    if kind != "coroutine":
        assert lines(yard, "mail", job.id) == [f"mail {job.id} receipt-1"]

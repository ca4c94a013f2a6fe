"""The metrics of a worker, made from snapshots."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.core.history import BOUNDS_S, OUTCOMES, Tally
from windlass.telemetry import metric_table as table
from windlass.telemetry.metric_table import Place
from windlass.telemetry.worker_metrics import WorkerSnapshot, collect_worker

SUCCEEDED, RETRIED = OUTCOMES.index("succeeded"), OUTCOMES.index("retried")
EMPTY = WorkerSnapshot(
    is_up=True,
    measures={},
    stale_outcomes={},
    engine_calls={},
    slots=4,
    busy_slots=1,
    last_claim_at=0.0,
    shared_children=1,
    solo_children=0,
    children_started=1,
    memory={},
)


def tally(*runs: tuple[int, float, float]) -> list[int]:
    own = Tally()
    for outcome, wait_s, run_s in runs:
        own.add(outcome, wait_s, run_s)
    return own.counts


def collect(**changes: Any) -> dict[str, dict[Any, Any]]:
    now = msgspec.structs.replace(EMPTY, **changes)
    families = collect_worker(now)
    return {family.metric.name: dict(family.values) for family in families}


def test_every_metric_of_a_worker_is_collected_and_no_other() -> None:
    assert set(collect()) == {one.name for one in table.TABLE if one.place is not Place.SERVE}


def test_runs_are_counted_by_outcome() -> None:
    counts = tally((SUCCEEDED, 0.1, 0.2), (SUCCEEDED, 0.1, 0.2), (RETRIED, 0.1, 0.2))
    found = collect(measures={("mail", "send"): counts})["windlass_jobs_finished_total"]
    assert found["mail", "send", "succeeded"] == 2
    assert found["mail", "send", "retried"] == 1
    assert found["mail", "send", "dead"] == 0


def test_histograms_have_the_layout_of_the_history() -> None:
    measures = {
        ("mail", "send"): tally((SUCCEEDED, 0.004, 2.0)),
        ("mail", "read"): tally((SUCCEEDED, 9999.0, 0.5)),
    }
    found = collect(measures=measures)
    wait = found["windlass_job_wait_seconds"][("mail",)]
    assert (wait.buckets[0], wait.buckets[-1], sum(wait.buckets)) == (1, 1, 2)
    assert wait.sum_s == 9999.004
    run = found["windlass_job_run_seconds"]["mail", "send"]
    assert run.buckets[BOUNDS_S.index(2.5)] == 1
    assert run.sum_s == 2.0

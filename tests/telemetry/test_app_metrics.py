"""The metrics of an app, made from snapshots."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from windlass.core.history import OTHER
from windlass.core.states import State
from windlass.telemetry import metric_table as table
from windlass.telemetry.app_metrics import AppMetrics, AppSnapshot, QueueNumbers
from windlass.telemetry.metric_table import MAX_PAIRS, MAX_VALUES, Family, Place

EMPTY = AppSnapshot(
    queues=(), enqueued={}, sessions_lost=0, workers=0, slots=0, busy_slots=0, schedule_lags_s={}
)


def snapshot(**changes: Any) -> AppSnapshot:
    return msgspec.structs.replace(EMPTY, **changes)


def collect(now: AppSnapshot | None, metrics: AppMetrics | None = None) -> dict[str, Any]:
    families = list((metrics or AppMetrics()).collect(now))
    return {family.metric.name: dict(family.values) for family in families}


def names_of(families: list[Family]) -> set[str]:
    return {family.metric.name for family in families}


def test_every_metric_of_the_server_is_collected_and_no_other() -> None:
    expected = {one.name for one in table.TABLE if one.place is not Place.WORKER}
    assert names_of(list(AppMetrics().collect(EMPTY))) == expected


def test_without_an_answer_there_is_one_series() -> None:
    assert collect(None) == {"windlass_up": {(): 0.0}}


def test_a_queue_has_every_state() -> None:
    mail = QueueNumbers(queue="mail", jobs={State.READY: 3}, oldest_ready_s=1.5, demand_slots=2)
    found = collect(snapshot(queues=(mail,)))
    jobs = found["windlass_queue_jobs"]
    assert jobs == {("mail", state): 3 if state is State.READY else 0 for state in State}
    assert found["windlass_queue_oldest_ready_seconds"] == {("mail",): 1.5}
    assert found["windlass_queue_demand_slots"] == {("mail",): 2}


def test_a_queue_that_never_drains_is_infinite() -> None:
    mail = QueueNumbers(queue="mail", jobs={}, drain_s=None, is_paused=True)
    found = collect(snapshot(queues=(mail,)))
    assert found["windlass_queue_drain_seconds"] == {("mail",): inf}
    assert found["windlass_queue_paused"] == {("mail",): 1.0}


def test_queues_beyond_the_limit_are_joined() -> None:
    queues = [
        QueueNumbers(
            queue=f"q{number:03}",
            jobs={State.READY: 1, State.DEAD: number},
            oldest_ready_s=number,
            demand_slots=1,
            drain_s=None if number == 0 else 1.0,
        )
        for number in range(MAX_VALUES + 5)
    ]
    found = collect(snapshot(queues=tuple(queues)))
    ages = found["windlass_queue_oldest_ready_seconds"]
    assert len(ages) == MAX_VALUES + 1
    assert ("q004",) not in ages, "the smallest queues lose their names"
    assert ages[OTHER,] == 4
    assert found["windlass_queue_jobs"][OTHER, State.DEAD] == 0 + 1 + 2 + 3 + 4
    assert found["windlass_queue_demand_slots"][OTHER,] == 5
    assert found["windlass_queue_drain_seconds"][OTHER,] == inf
    assert sum(found["windlass_queue_jobs"].values()) == sum(
        sum(one.jobs.values()) for one in queues
    )


def test_a_pair_keeps_its_series_when_others_appear() -> None:
    metrics = AppMetrics()
    first = {("mail", f"t{number:03}"): 1 for number in range(100, 100 + MAX_PAIRS)}
    collect(snapshot(enqueued=first), metrics)
    found = collect(snapshot(enqueued={("mail", "t000"): 7, ("mail", "t001"): 2, **first}), metrics)
    series = found["windlass_jobs_enqueued_total"]
    assert series.pop((OTHER, OTHER)) == 9
    assert series == first


def test_schedules_beyond_the_limit_show_the_longest_lag() -> None:
    lags = {f"s{number:03}": float(number) for number in range(MAX_VALUES + 2)}
    found = collect(snapshot(schedule_lags_s=lags))["windlass_schedule_lag_seconds"]
    assert len(found) == MAX_VALUES + 1
    assert found[OTHER,] == MAX_VALUES + 1


def test_a_caller_for_some_queues_sees_only_those() -> None:
    now = snapshot(
        queues=(QueueNumbers(queue="mail", jobs={}), QueueNumbers(queue="pay", jobs={})),
        enqueued={("mail", "send"): 1, ("pay", "charge"): 2},
        workers=3,
    )
    seen = list(AppMetrics().collect(now, may_use=lambda name: name == "mail", sees_all=False))
    assert "windlass_workers" not in names_of(seen)
    assert all("pay" not in labels for family in seen for labels, _ in family.values)
    assert any("mail" in labels for family in seen for labels, _ in family.values)


def test_slots_are_busy_or_free() -> None:
    assert collect(snapshot(slots=4, busy_slots=7))["windlass_slots"] == {
        ("busy",): 4,
        ("free",): 0,
    }
    assert collect(snapshot(slots=4, busy_slots=1))["windlass_slots"] == {
        ("busy",): 1,
        ("free",): 3,
    }

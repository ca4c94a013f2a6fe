"""The load of a queue: drain time and demand."""

from __future__ import annotations

import pytest

from windlass.core.queues.load import (
    ASSUMED_RUN_S,
    QueueFlow,
    QueueLoad,
    count_slots,
    drain_time_s,
    measure_load,
)


def jobs(
    ready: int = 0, running: int = 0, *, paused: bool = False, held: bool = False
) -> QueueLoad:
    return QueueLoad(queue="mail", ready=ready, running=running, paused=paused, held=held)


def test_an_empty_queue_is_drained_and_needs_nothing() -> None:
    load = measure_load(jobs(), QueueFlow())
    assert (load.drain_s, load.demand_slots) == (0.0, 0)


def test_demand_is_that_of_arrivals_and_of_the_backlog() -> None:
    flow = QueueFlow(in_rate=20, out_rate=20, mean_run_s=3)
    assert count_slots(jobs(ready=1200, running=64), flow) == 64 + 1200 * 3 // 60
    assert count_slots(jobs(ready=1200, running=10), flow) == 20 * 3 + 1200 * 3 // 60
    assert count_slots(jobs(ready=1200), flow, drain_target_s=600) == 60 + 6


def test_busy_slots_are_demanded_without_a_backlog() -> None:
    assert count_slots(jobs(running=8), QueueFlow()) == 8


def test_jobs_that_run_again_arrive_again() -> None:
    flow = QueueFlow(in_rate=1, out_rate=4, return_rate=3, mean_run_s=10)
    assert count_slots(jobs(), flow) == 40


def test_a_demand_is_rounded_up_but_not_by_errors_of_fractions() -> None:
    flow = QueueFlow(mean_run_s=0.1)
    assert count_slots(jobs(ready=1), flow) == 1
    assert count_slots(jobs(ready=600), flow) == 1
    assert count_slots(jobs(ready=601), flow) == 2
    assert count_slots(jobs(ready=3), QueueFlow(in_rate=0.1, mean_run_s=20)) == 3


@pytest.mark.parametrize("mean_run_s", [0.0, 1e-9, 0.0005])
def test_a_ready_job_needs_a_slot_however_short_it_is(mean_run_s: float) -> None:
    flow = QueueFlow(mean_run_s=mean_run_s)
    assert count_slots(jobs(ready=1), flow, drain_target_s=86_400) == 1


def test_a_ready_job_needs_no_more_than_a_slot_however_long_it_is() -> None:
    assert count_slots(jobs(ready=10), QueueFlow(mean_run_s=7200)) == 10


def test_an_unmeasured_run_is_assumed_to_take_a_second() -> None:
    assert ASSUMED_RUN_S == 1
    assert count_slots(jobs(ready=1200), QueueFlow()) == 20


def test_a_paused_queue_needs_the_slots_that_it_uses_and_never_drains() -> None:
    flow = QueueFlow(in_rate=100, out_rate=200, mean_run_s=1)
    load = measure_load(jobs(ready=5000, running=3, paused=True), flow)
    assert (load.drain_s, load.demand_slots) == (None, 3)


def test_held_jobs_never_drain_and_need_one_slot() -> None:
    """Their tasks are paused or unknown to all workers: more slots of these workers are no help."""
    flow = QueueFlow(in_rate=0, out_rate=200, mean_run_s=60)
    load = measure_load(jobs(ready=5000, held=True), flow)
    assert (load.drain_s, load.demand_slots) == (None, 1)


def test_released_jobs_have_not_left() -> None:
    """A worker claims jobs that it cannot run, and releases them, again and again."""
    stray = QueueFlow(out_rate=2, return_rate=2, release_rate=2)
    assert drain_time_s(jobs(ready=6), stray) is None
    some = QueueFlow(out_rate=4, return_rate=2, release_rate=2)
    assert drain_time_s(jobs(ready=6), some) == 3


def test_retried_jobs_have_left_the_line() -> None:
    assert drain_time_s(jobs(ready=6), QueueFlow(in_rate=1, out_rate=2, return_rate=2)) == 3


def test_a_backlog_drains_by_what_leaves_above_what_enters() -> None:
    flow = QueueFlow(in_rate=40, out_rate=100, mean_run_s=1)
    assert drain_time_s(jobs(ready=1200), flow) == 20
    failing = QueueFlow(in_rate=40, out_rate=100, return_rate=50, mean_run_s=1)
    assert drain_time_s(jobs(ready=1200), failing) == 120


def test_a_growing_backlog_never_drains() -> None:
    flow = QueueFlow(in_rate=100, out_rate=100, mean_run_s=1)
    assert drain_time_s(jobs(ready=1200), flow) is None
    assert drain_time_s(jobs(ready=1), QueueFlow()) is None


def test_a_queue_that_keeps_up_drains_although_as_many_jobs_enter_as_leave() -> None:
    flow = QueueFlow(in_rate=101, out_rate=100, mean_run_s=1)
    assert drain_time_s(jobs(ready=50), flow) == 0.5


def test_a_drain_target_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="drain_target_s must be above 0, found 0"):
        count_slots(jobs(ready=1), QueueFlow(), drain_target_s=0)

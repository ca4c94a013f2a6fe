"""The policy of autoscaling, by examples and by properties."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.queues.load import DRAIN_TARGET_S, KEEPS_UP_S
from windlass.worker.maintenance.demand import WorkerDemand
from windlass.worker.supervisor.scale_policy import (
    PACE_S,
    SCALE_PERIODS,
    ChildCount,
    ScaleDecision,
    ScalePeriods,
    ScalePolicy,
)

SLOTS = 10
LOOK_S, REST_S, HOLD_S, STEP_S = SCALE_PERIODS
IDLE = WorkerDemand()


def policy(least: int = 2, most: int = 8) -> ScalePolicy:
    return ScalePolicy(least, most, SLOTS, SCALE_PERIODS)


def busy(number: int) -> ChildCount:
    """Children with a job in every slot."""
    return ChildCount(number, number * SLOTS, number * SLOTS)


def load(ready: int, running: int, *, run_s: float = 1.0, oldest_s: float = 10.0) -> WorkerDemand:
    """The demand of a queue that this worker serves alone, as `core.queues.load` computes it."""
    slots = running + ready * min(1.0, run_s / DRAIN_TARGET_S)
    return WorkerDemand(ready, running, oldest_s if ready else 0.0, slots, ready * run_s, run_s)


def number(decision: ScaleDecision | None) -> int | None:
    return None if decision is None else decision.number


@pytest.mark.parametrize(
    ("children", "demand", "expected"),
    [
        pytest.param(busy(2), load(1200, 20), 4, id="as many as the demand, at once"),
        pytest.param(busy(2), load(9000, 20), 8, id="never above the largest number"),
        pytest.param(busy(2), load(30, 20, run_s=60), 5, id="one slot for each long job"),
        pytest.param(busy(2), load(1, 20), 3, id="a job that waits for long"),
        pytest.param(busy(2), load(30, 20, oldest_s=1), None, id="a queue that keeps up"),
        pytest.param(busy(2), load(0, 20), None, id="busy, and no job waits"),
        pytest.param(ChildCount(2, 20, 15), load(1200, 15), None, id="free slots"),
        pytest.param(ChildCount(3, 20, 20), load(600, 20), None, id="enough are starting"),
        pytest.param(ChildCount(2, 0, 0), load(3000, 0), None, id="no child has started yet"),
        pytest.param(busy(8), load(9000, 80), None, id="at the largest number"),
        pytest.param(ChildCount(8, 80, 0), IDLE, None, id="not down at once"),
    ],
)
def test_the_first_observation(
    children: ChildCount, demand: WorkerDemand, expected: int | None
) -> None:
    assert number(policy().decide(0.0, children, demand)) == expected


def test_a_backlog_that_drains_in_time_needs_no_more_children() -> None:
    scaling = policy()
    assert number(scaling.decide(0.0, busy(2), load(1200, 20))) == 4
    at, ready = 0.0, 1200
    while ready > 200:
        at, ready = at + LOOK_S, ready - 40 * round(LOOK_S)
        assert scaling.decide(at, busy(4), load(ready, 40)) is None


def test_a_backlog_that_does_not_get_smaller_needs_more() -> None:
    scaling = policy()
    assert number(scaling.decide(0.0, busy(2), load(1200, 20))) == 4
    assert scaling.decide(LOOK_S, busy(4), load(1200, 40)) is None, "the pace is measured again"
    assert number(scaling.decide(2 * LOOK_S, busy(4), load(1200, 40))) == 6


def test_jobs_that_only_fill_new_slots_make_no_pace() -> None:
    scaling = policy()
    assert number(scaling.decide(0.0, busy(2), load(100, 20))) == 3
    scaling.decide(LOOK_S, busy(3), load(95, 25))
    decision = scaling.decide(2 * LOOK_S, busy(3), load(90, 30))
    assert decision is not None
    assert (decision.number, decision.drain_s) == (4, inf)


def test_after_a_raise_the_pace_is_measured_for_two_runs() -> None:
    """Jobs that started together end together: between these moments nothing seems to move."""
    scaling = policy()
    assert number(scaling.decide(0.0, busy(2), load(100, 20, run_s=10))) == 4
    for at in (2.0, 8.0, 14.0, 19.0):
        assert scaling.decide(at, busy(4), load(100, 40, run_s=10)) is None
    assert scaling.decide(20.0, busy(4), load(60, 40, run_s=10)) is None, "100 jobs in 30 s"
    assert number(scaling.decide(PACE_S + 30, busy(4), load(60, 40, run_s=10))) is not None


def run_idle(scaling: ScalePolicy, seconds: float, children: int, at: float = 0.0) -> list[float]:
    """Look at an idle worker; return when it was scaled down."""
    downs, end = [], at + seconds
    while at <= end:
        decision = scaling.decide(at, ChildCount(children, children * SLOTS, 0), IDLE)
        if decision is not None:
            assert decision.number == children - 1
            children -= 1
            downs.append(at)
        at += REST_S
    return downs


def test_down_one_by_one_after_the_hold() -> None:
    downs = run_idle(policy(), 10 * HOLD_S, 8)
    assert downs == [HOLD_S + STEP_S * step for step in range(6)], "and no further than to 2"


def test_one_busy_moment_begins_the_hold_again() -> None:
    scaling = policy()
    assert run_idle(scaling, HOLD_S - 1, 8) == []
    assert scaling.decide(HOLD_S, busy(8), load(0, 80)) is None
    assert run_idle(scaling, HOLD_S - 1, 8, at=HOLD_S + 1) == []
    assert run_idle(scaling, REST_S, 8, at=2 * HOLD_S + 1) != []


def test_down_leaves_a_fifth_of_the_slots_free() -> None:
    def settle(busy_slots: int) -> int:
        scaling, children, at = policy(1, 8), 8, 0.0
        for _ in range(100):
            decision = scaling.decide(
                at, ChildCount(children, children * SLOTS, busy_slots), load(0, busy_slots)
            )
            children = children if decision is None else decision.number
            at += REST_S
        return children

    assert [settle(busy_slots) for busy_slots in (0, 8, 9, 16, 17, 64, 65)] == [
        *(1, 1, 2, 2, 3),
        *(8, 8),
    ]


def test_after_a_gap_the_hold_begins_again() -> None:
    """The engine was away: what happened meanwhile is unknown."""
    scaling = policy()
    assert run_idle(scaling, HOLD_S - 1, 8) == []
    assert run_idle(scaling, HOLD_S - 1, 8, at=3 * HOLD_S) == []
    assert run_idle(scaling, REST_S, 8, at=4 * HOLD_S) != []


def test_forgetting_begins_the_hold_again() -> None:
    scaling = policy()
    assert run_idle(scaling, HOLD_S - 1, 8) == []
    scaling.forget()
    assert run_idle(scaling, HOLD_S - 1, 8, at=HOLD_S) == []


def test_the_reason_is_part_of_the_decision() -> None:
    scaling = policy()
    decision = scaling.decide(0.0, busy(2), load(1200, 20))
    assert decision == ScaleDecision(4, 40, None, 0)
    scaling.decide(LOOK_S, busy(4), load(1200, 40))
    later = scaling.decide(2 * LOOK_S, busy(4), load(1190, 40))
    assert later is not None
    assert later.drain_s == pytest.approx(1190 * LOOK_S / 10)


# -------------------------------------------------------------------------------------- properties

observations = st.lists(
    st.tuples(
        st.floats(0.1, 100),  # the time since the last one
        st.integers(0, 5_000),  # ready
        st.integers(0, 200),  # running, of all workers
        st.floats(0.001, 100),  # the time of a run
        st.floats(0, 1),  # the share of busy slots
    ),
    max_size=60,
)


@given(observations, st.integers(1, 5), st.integers(0, 10))
def test_the_number_stays_within_its_limits_and_falls_one_by_one(
    seen: list[tuple[float, int, int, float, float]], least: int, more: int
) -> None:
    most, at, children = least + more, 0.0, least
    scaling = policy(least, most)
    downs: list[float] = []
    for wait_s, ready, running, run_s, share in seen:
        at += wait_s
        slots = children * SLOTS
        count = ChildCount(children, slots, round(slots * share))
        decision = scaling.decide(at, count, load(ready, running, run_s=run_s))
        if decision is None:
            continue
        assert least <= decision.number <= most
        if decision.number < children:
            assert decision.number == children - 1
            assert not downs or at - downs[-1] >= STEP_S - 1e-6
            downs.append(at)
        else:
            assert ready > 0
            assert count.is_busy
        children = decision.number


@given(st.integers(1, 80), st.floats(0.01, 50))
def test_a_steady_load_does_not_make_the_number_swing(rate: int, run_s: float) -> None:
    """Jobs arrive at a steady rate: after the number has settled, it stays."""
    needed = min(80, rate * run_s)
    scaling = ScalePolicy(1, 12, SLOTS, ScalePeriods())
    at, children, changes = 0.0, 1, []
    for _ in range(400):
        at += LOOK_S
        running = round(min(needed, children * SLOTS))
        behind = needed > children * SLOTS
        demand = load(rate * 60 if behind else 0, running, run_s=run_s, oldest_s=KEEPS_UP_S * 2)
        count = ChildCount(children, children * SLOTS, running)
        decision = scaling.decide(at, count, demand)
        if decision is not None:
            changes.append((at, decision.number > children))
            children = decision.number
    assert not [one for one in changes if one[0] > 500]
    assert children * SLOTS >= needed

"""The counts of runs, and what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from windlass.core.history import (
    BOUNDS_S,
    BUCKETS,
    RUN_MS,
    WAIT_MS,
    WIDTH,
    Summary,
    Tally,
    add_counts,
    quantile_s,
)


def test_a_tally_counts_a_run_once_in_each_part() -> None:
    tally = Tally()
    tally.add(0, wait_s=0.02, run_s=1.5)
    tally.add(1, wait_s=0.0, run_s=5000.0)
    summary = Summary(tuple(tally.counts))
    assert summary.outcomes == {
        "succeeded": 1, "retried": 1, "dead": 0, "snoozed": 0, "released": 0
    }  # fmt: skip
    assert summary.runs == 2
    assert summary.failure_rate == 0.5
    assert summary.mean_run_s == pytest.approx(2500.75)
    assert summary.mean_wait_s == pytest.approx(0.01)
    assert len(tally.counts) == WIDTH


def test_a_time_on_a_bound_belongs_below_it() -> None:
    for place, bound in enumerate(BOUNDS_S):
        tally = Tally()
        tally.add(0, bound, bound)
        for quantile in (
            Summary(tally.counts).wait_quantile_s,
            Summary(tally.counts).run_quantile_s,
        ):
            assert quantile(1.0) == bound, place


def test_sums_have_the_counts_of_all() -> None:
    first, second = Tally(), Tally()
    first.add(0, 0.1, 0.2)
    second.add(0, 0.1, 0.2)
    assert add_counts([first.counts, second.counts]) == tuple(2 * n for n in first.counts)
    assert add_counts([]) == (0,) * WIDTH


def test_quantiles_lie_inside_their_bucket() -> None:
    buckets = [0] * BUCKETS
    assert quantile_s(buckets, 0.5) is None
    buckets[3] = 10  # 0.025 to 0.05
    assert quantile_s(buckets, 0.5) == pytest.approx(0.0375)
    buckets[-1] = 1000
    assert quantile_s(buckets, 0.99) == BOUNDS_S[-1]


def test_nothing_ran() -> None:
    summary = Summary((0,) * WIDTH)
    assert summary.failure_rate is None
    assert summary.mean_run_s is None
    assert summary.run_quantile_s(0.99) is None


def test_a_time_that_is_not_known_is_in_no_histogram_and_no_mean() -> None:
    tally = Tally()
    tally.add(2, None, None)
    tally.add(0, None, 3.0)
    summary = Summary(tally.counts)
    assert (summary.runs, summary.outcomes["dead"]) == (2, 1)
    assert (summary.mean_run_s, summary.mean_wait_s) == (3.0, None)
    assert summary.wait_quantile_s(0.5) is None


@given(lists(floats(0, 5_000), max_size=50))
def test_many_runs_at_once_count_as_one_by_one(times: list[float]) -> None:
    times += BOUNDS_S
    one_by_one, at_once = Tally(), Tally()
    for time_s in times:
        one_by_one.add(3, time_s, 2 * time_s)
    at_once.add_runs(3, list(times), [2 * time_s for time_s in times])
    for total in (WAIT_MS, RUN_MS):  # a sum is rounded once, and may fall short of the last ms
        assert one_by_one.counts[total] <= at_once.counts[total] + 1
        assert at_once.counts[total] <= one_by_one.counts[total] + len(times)
        one_by_one.counts[total] = at_once.counts[total] = 0
    assert one_by_one.counts == at_once.counts

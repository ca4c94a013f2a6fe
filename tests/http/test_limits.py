"""Rate limits: a bucket per caller, for a bounded number of callers."""

from __future__ import annotations

import pytest

from windlass.http import limits
from windlass.http.limits import RateLimits
from windlass.http.problems import Problem, ProblemType


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_caller_may_send_a_burst_and_then_the_rate() -> None:
    clock = Clock()
    rates = RateLimits(2.0, 3.0, clock)
    for _ in range(3):
        rates.take("ann")
    with pytest.raises(Problem) as refused:
        rates.take("ann")
    assert refused.value.kind is ProblemType.TOO_MANY
    assert refused.value.headers["Retry-After"] == "1"
    assert refused.value.headers["RateLimit-Limit"] == "3"
    clock.now += 0.5
    rates.take("ann")
    with pytest.raises(Problem):
        rates.take("ann")


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    rates = RateLimits(1.0, 1.0, clock)
    rates.take("ann")
    for _ in range(10):
        with pytest.raises(Problem):
            rates.take("ann")
    clock.now += 1.0
    rates.take("ann")


def test_callers_do_not_share_a_bucket() -> None:
    rates = RateLimits(1.0, 1.0, Clock())
    rates.take("ann")
    rates.take("bob")


def test_a_silent_caller_saves_no_more_than_the_burst() -> None:
    clock = Clock()
    rates = RateLimits(1.0, 2.0, clock)
    rates.take("ann")
    clock.now += 1_000.0
    rates.take("ann")
    rates.take("ann")
    with pytest.raises(Problem):
        rates.take("ann")


def test_a_bounded_number_of_callers_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CALLERS", 10)
    rates = RateLimits(1.0, 1.0, Clock())
    for number in range(100):
        rates.take(f"caller-{number}")
    assert len(rates._buckets) == 10

"""Rates as users write them, and steps that keep to them."""

from __future__ import annotations

import pytest

from windlass.core.rates import MAX_DEBT_S, MAX_STEP, Pace, per_second


@pytest.mark.parametrize(
    ("rate", "expected"), [("500/s", 500), (" 30 / m ", 0.5), ("36/h", 0.01), (7, 7), (0.5, 0.5)]
)
def test_rates(rate: str | float, expected: float) -> None:
    assert per_second(rate, name="rate") == pytest.approx(expected)


@pytest.mark.parametrize("rate", ["", "500", "0/s", "-1/s", "5/d", 0, -1, float("nan"), True])
def test_what_is_no_rate_is_refused(rate: str | float) -> None:
    with pytest.raises(ValueError, match=r'rate must be text such as "500/s"'):
        per_second(rate, name="rate")


@pytest.mark.parametrize("per_s", [0.5, 3, 500, 10_000])
def test_steps_make_the_rate(per_s: float) -> None:
    pace, now_s, done = Pace(per_s, 100.0), 100.0, 0
    while now_s < 200.0:
        done += pace.size
        now_s += pace.pause_s(pace.size, now_s)
    assert done / (now_s - 100.0) == pytest.approx(per_s)
    assert 1 <= pace.size <= MAX_STEP


def test_a_long_delay_is_not_made_up_for() -> None:
    pace = Pace(100, 0.0)
    pace.pause_s(pace.size, 1_000.0)
    done, now_s = 0, 1_000.0
    while (pause_s := pace.pause_s(pace.size, now_s)) == 0:
        done += pace.size
    assert done <= 100 * MAX_DEBT_S
    assert pause_s > 0


def test_without_a_rate_there_are_no_pauses() -> None:
    pace = Pace(None, 0.0)
    assert (pace.size, pace.pause_s(pace.size, 0.0)) == (MAX_STEP, 0.0)

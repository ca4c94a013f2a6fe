"""Numbers with nouns, sizes of memory, and rates."""

from __future__ import annotations

import pytest

from windlass.core.quantities import (
    MAX_DEBT_S,
    MAX_STEP,
    Count,
    Pace,
    count,
    describe_bytes,
    per_second,
    to_bytes,
)


def test_one_is_not_many() -> None:
    assert [count(number, "task") for number in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
    assert count(1_000, "crash", "crashes") == "1,000 crashes"
    assert count(1, "crash", "crashes") == "1 crash"


def test_a_count_is_a_number_that_is_shown_with_its_noun() -> None:
    assert Count(1, "job") == 1
    assert f"{Count(1, 'job')}, {Count(2, 'job')!s}" == "1 job, 2 jobs"
    assert "%s" % Count(3, "job") == "3 jobs"  # noqa: UP031  # as log lines are made


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (15_300, "15 kB"),
        (2_340_000, "2.3 MB"),
        (82 * 10**9, "82 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_two_digits_that_count(number: int, text: str) -> None:
    assert describe_bytes(number) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1.5g", 1_500_000_000),
        ("2GB", 2_000_000_000),
        ("64k", 64_000),
        ("1000", 1000),
        ("7B", 7),
    ],
)
def test_a_size_is_read(text: str, count: int) -> None:
    assert to_bytes(text, name="it") == count


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1MB2", "1,5GB"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='max_memory must be a size such as "512MB"'):
        to_bytes(text, name="max_memory")


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

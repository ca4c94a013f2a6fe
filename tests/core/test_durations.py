"""Durations and instants: what is read, what is refused, and that no moment is made earlier."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.durations import MAX_DURATION_MS, describe_ms, instant_ms, to_ms


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        (0, 0),
        (5, 5_000),
        (0.25, 250),
        (0.1 + 0.2, 300),
        (0.000_1, 1),
        ("30", 30_000),
        ("0.5", 500),
        ("500ms", 500),
        ("1.5s", 1_500),
        ("90s", 90_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 2d ", 172_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("0.1ms", 1),
        (timedelta(minutes=1), 60_000),
        (timedelta(microseconds=1_001), 2),
        ("365000d", MAX_DURATION_MS),
    ],
)
def test_reads_a_duration(value: Any, expected_ms: int) -> None:
    assert to_ms(value, name="timeout") == expected_ms


@pytest.mark.parametrize(
    "value",
    ["", "  ", "10M", "10 minutes", "1m1h", "1h1h", "h", "1.s", "-1s", "+1s", "1e3", "٣s", "nan"],
)
def test_refuses_text_that_is_no_duration(value: str) -> None:
    with pytest.raises(ValueError, match=r'lease must be .*"1h30m".* found') as caught:
        to_ms(value, name="lease")
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [-1, -0.001, timedelta(microseconds=-1), float("nan"), float("inf"), float("-inf"), 1e300],
)
def test_refuses_numbers_that_are_no_duration(value: Any) -> None:
    with pytest.raises(ValueError, match="lease must"):
        to_ms(value, name="lease")


@pytest.mark.parametrize("value", ["365001d", "9" * 400, timedelta.max, 10**12])
def test_refuses_more_than_a_thousand_years(value: Any) -> None:
    with pytest.raises(ValueError, match="lease must be at most 365000d"):
        to_ms(value, name="lease")


@pytest.mark.parametrize("value", [True, None, b"1s", [1], datetime.now(UTC)])
def test_refuses_other_types(value: Any) -> None:
    with pytest.raises(TypeError, match=r"lease must be .* found (a bool|\w+)"):
        to_ms(value, name="lease")


@given(st.integers(0, MAX_DURATION_MS))
def test_what_is_described_is_read_again(milliseconds: int) -> None:
    assert to_ms(describe_ms(milliseconds), name="x") == milliseconds


@given(st.timedeltas(timedelta(0), timedelta(days=365_000)))
def test_is_never_shorter_than_asked_for(value: timedelta) -> None:
    shortfall = value - timedelta(milliseconds=to_ms(value, name="x"))
    assert timedelta(milliseconds=-1) < shortfall <= timedelta(0)


@given(st.floats(0, 1e9))
def test_a_float_is_kept_to_the_microsecond(value: float) -> None:
    assert to_ms(value, name="x") == to_ms(timedelta(seconds=value), name="x")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (5_400_000, "1h30m"), (1_500, "1s500ms"), (-60_000, "-1m"), (86_400_000, "1d")],
)
def test_describes(milliseconds: int, text: str) -> None:
    assert describe_ms(milliseconds) == text


def test_an_instant_is_the_same_in_every_zone() -> None:
    moment = datetime(2024, 6, 1, 12, tzinfo=UTC)
    assert instant_ms(moment, name="run_after") == 1_717_243_200_000
    assert instant_ms(moment.astimezone(ZoneInfo("Asia/Tokyo")), name="run_after") == (
        1_717_243_200_000
    )


def test_an_instant_is_never_earlier_than_asked_for() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=timezone(timedelta(0)))
    assert instant_ms(epoch + timedelta(microseconds=1), name="x") == 1
    assert instant_ms(epoch - timedelta(microseconds=1), name="x") == 0
    assert instant_ms(epoch - timedelta(microseconds=1_000), name="x") == -1


def test_refuses_a_naive_instant() -> None:
    naive = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    with pytest.raises(
        ValueError, match=r"run_after must .* time zone, found the naive 2024-01-01"
    ):
        instant_ms(naive, name="run_after")


def test_refuses_a_date() -> None:
    day: Any = date(2024, 1, 1)
    with pytest.raises(
        TypeError, match="run_after must be a datetime with a time zone, found date"
    ):
        instant_ms(day, name="run_after")

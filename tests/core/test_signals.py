"""The three signals that a task raises."""

import copy
from datetime import timedelta
from typing import Any

import pytest

from windlass.core.signals import Reject, RetryLater, Snooze

HOUR_MS = 3_600_000


def test_signals_carry_their_delay() -> None:
    assert RetryLater("1m30s").delay_ms == 90_000
    assert RetryLater(60).delay_ms == 60_000
    assert Snooze(timedelta(hours=1)).delay_ms == HOUR_MS


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        (Reject("no such user"), "no such user"),
        (Reject(KeyError("user")), "'user'"),
        (Reject(), "rejected by the task"),
        (RetryLater(90), "to be tried again in 1m30s"),
        (RetryLater(90, "the bank is closed"), "the bank is closed"),
        (Snooze("1h"), "put off for 1h"),
    ],
    ids=repr,
)
def test_signals_read_well_and_survive_copying(signal: Exception, text: str) -> None:
    for one in (signal, copy.copy(signal), copy.deepcopy(signal)):
        assert type(one) is type(signal)
        assert str(one) == text
        assert vars(one) == vars(signal)


def test_reject_can_be_raised_bare() -> None:
    with pytest.raises(Reject):
        raise Reject


@pytest.mark.parametrize("signal", [RetryLater, Snooze])
@pytest.mark.parametrize(
    ("delay", "kind", "message"),
    [
        (-1, ValueError, "be negative"),
        ("soon", ValueError, "found 'soon'"),
        (None, TypeError, "found NoneType"),
    ],
)
def test_a_wrong_delay_is_told_when_the_signal_is_made(
    signal: Any, delay: object, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=f"the delay of {signal.__name__} must .*{message}"):
        signal(delay)

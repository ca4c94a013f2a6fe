"""Retry policies: how long they wait, what they give up, and how they are written down."""

import copy
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.durations import MAX_DURATION_MS
from windlass.core.retry import Decision, GiveUp, Retry, RetryIn
from windlass.core.signals import Reject, RetryLater
from windlass.core.states import Reason

HOUR_MS = 3_600_000
EXHAUSTED = GiveUp(Reason.EXHAUSTED)
REJECTED = GiveUp(Reason.REJECTED)

spans_ms = st.integers(0, MAX_DURATION_MS)
shares = st.floats(0, 1)
factors = st.floats(1, 1_000)
seeds = st.integers(0, 2**32)


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def delays_of(policy: Retry, seed: int = 1) -> list[int]:
    """What the policy waits after each attempt, until it gives up."""
    random = Random(seed)
    delays = []
    for attempt in range(1, policy.max_attempts):
        decision = policy.decide(ValueError(), attempt, random)
        assert isinstance(decision, RetryIn)
        delays.append(decision.delay_ms)
    assert policy.decide(ValueError(), policy.max_attempts, random) == EXHAUSTED
    return delays


def first_decision(policy: Retry, error: BaseException) -> Decision:
    return policy.decide(error, 1, Random(1))


@st.composite
def growing(draw: st.DrawFn, /, **fixed: Any) -> Retry:
    base_ms, cap_ms = sorted(draw(st.tuples(spans_ms, spans_ms)))
    options: dict[str, Any] = {
        "max_attempts": draw(st.integers(1, 12)),
        "base": ms(base_ms),
        "cap": ms(cap_ms),
        "factor": draw(factors),
        "jitter": draw(shares | spans_ms.map(ms)),
    }
    return Retry(**(options | fixed))


@st.composite
def listed(draw: st.DrawFn) -> Retry:
    delays = draw(st.lists(spans_ms.map(ms), max_size=8))
    return Retry(delays=delays, jitter=draw(shares | spans_ms.map(ms)))


policies = growing() | listed()


# ------------------------------------------------------------------------------------------- delays


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retry(jitter=0), [10_000, 20_000, 40_000, 80_000]),
        (Retry(4, base=1, factor=3, jitter=0), [1_000, 3_000, 9_000]),
        (Retry(6, base="1s", cap="5s", jitter=0), [1_000, 2_000, 4_000, 5_000, 5_000]),
        (Retry(3, base=timedelta(minutes=1), factor=1, jitter=0), [60_000, 60_000]),
        (Retry(4, base=0.001, factor=1.5, jitter=0), [1, 2, 2]),
        (Retry(3, base=0), [0, 0]),
        (Retry(1), []),
        (Retry(delays=[0, "1h", "6h"]), [0, HOUR_MS, 6 * HOUR_MS]),
        (Retry(3, delays=(2.5, timedelta(seconds=1))), [2_500, 1_000]),
        (Retry(delays=[]), []),
    ],
    ids=repr,
)
def test_delays(policy: Retry, expected: list[int]) -> None:
    assert delays_of(policy) == expected


def test_the_defaults_are_the_documented_ones() -> None:
    assert Retry() == Retry(5, base=10, factor=2, cap=600, jitter=0.25)
    assert Retry(delays=[1, 2]) == Retry(3, delays=[1, 2], jitter=0)


@given(policy=growing(jitter=0))
def test_without_jitter_delays_never_shrink_and_start_at_the_base(policy: Retry) -> None:
    delays = delays_of(policy)
    assert delays == sorted(delays)
    assert delays[:1] in ([], [policy.backoff.delay_ms(1)])


@given(base_ms=spans_ms, longer_ms=spans_ms, factor=factors, attempt=st.integers(1, 10**9))
def test_no_attempt_is_too_late_to_have_a_delay(
    base_ms: int, longer_ms: int, factor: float, attempt: int
) -> None:
    cap_ms = min(base_ms + longer_ms, MAX_DURATION_MS)
    policy = Retry(10**9 + 1, base=ms(base_ms), factor=factor, cap=ms(cap_ms), jitter=0)
    decision = policy.decide(ValueError(), attempt, Random(1))
    assert isinstance(decision, RetryIn)
    assert base_ms <= decision.delay_ms <= cap_ms


def test_a_delay_too_large_for_a_float_is_the_cap() -> None:
    late = 100_000
    assert Retry(late, jitter=0).decide(OSError(), late - 1, Random(1)) == RetryIn(600_000)
    assert Retry(late, base=0).decide(OSError(), late - 1, Random(1)) == RetryIn(0)


# ------------------------------------------------------------------------------------------- jitter


@given(policy=growing(jitter=0) | listed(), share=shares, seed=seeds)
def test_a_share_stays_within_its_range_of_every_delay(
    policy: Retry, share: float, seed: int
) -> None:
    plain = [policy.backoff.delay_ms(attempt) for attempt in range(1, policy.max_attempts)]
    spread = delays_of(Retry(delays=list(map(ms, plain)), jitter=share), seed)
    for delay_ms, spread_ms in zip(plain, spread, strict=True):
        assert delay_ms * (1 - share) <= spread_ms <= delay_ms * (1 + share)


@given(policy=growing(jitter=0), share=shares, seed=seeds)
def test_no_delay_is_beyond_the_cap_and_its_jitter(policy: Retry, share: float, seed: int) -> None:
    data = policy.to_data()
    jittery = Retry.from_data(data | {"jitter": share})
    cap_ms = data["cap_ms"]
    assert isinstance(cap_ms, int)
    assert all(delay_ms <= cap_ms * (1 + share) for delay_ms in delays_of(jittery, seed))


@given(delay_ms=spans_ms, span_ms=spans_ms, seed=seeds)
def test_a_span_is_added_to_the_delay(delay_ms: int, span_ms: int, seed: int) -> None:
    [spread_ms] = delays_of(Retry(delays=[ms(delay_ms)], jitter=ms(span_ms)), seed)
    assert delay_ms <= spread_ms <= delay_ms + span_ms


@pytest.mark.parametrize(
    ("jitter", "lowest", "highest"),
    [
        (0.25, 45_000, 75_000),
        (0.1, 54_000, 66_000),
        (1, 0, 120_000),
        ("30s", 60_000, 90_000),
        (timedelta(seconds=6), 60_000, 66_000),
    ],
)
def test_jitter_spreads_evenly_over_its_whole_range(
    jitter: float | str | timedelta, lowest: int, highest: int
) -> None:
    policy, random, draws, buckets = Retry(2, base=60, jitter=jitter), Random(7), 4_000, 10
    counts = [0] * buckets
    for _ in range(draws):
        decision = policy.decide(OSError(), 1, random)
        assert isinstance(decision, RetryIn)
        assert lowest <= decision.delay_ms <= highest
        counts[(decision.delay_ms - lowest) * buckets // (highest - lowest + 1)] += 1
    # 400 are expected in each; 80 is more than four standard deviations.
    assert all(abs(count - draws / buckets) < 80 for count in counts), counts


def test_the_same_chance_gives_the_same_delays() -> None:
    assert delays_of(Retry(), seed=3) == delays_of(Retry(), seed=3) != delays_of(Retry(), seed=4)


# ----------------------------------------------------------------------------------- classification


class Flaky(ConnectionError):
    pass


def says(answer: object) -> Any:
    return lambda error: answer


def raises(error: BaseException) -> Any:
    raise ZeroDivisionError("no such field")


RETRIED = RetryIn(10_000)


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({}, ValueError(), RETRIED),
        ({}, SystemExit(3), RETRIED),
        ({}, Reject("no such user"), REJECTED),
        ({}, RetryLater("1h"), RetryIn(HOUR_MS)),
        ({"reject_on": ValueError}, ValueError(), REJECTED),
        ({"reject_on": (KeyError, ValueError)}, UnicodeError(), REJECTED),
        ({"reject_on": [ValueError]}, KeyError(), RETRIED),
        ({"retry_on": ConnectionError}, Flaky(), RETRIED),
        ({"retry_on": [ConnectionError, TimeoutError]}, TimeoutError(), RETRIED),
        ({"retry_on": ConnectionError}, ValueError(), REJECTED),
        ({"retry_on": ConnectionError, "reject_on": Flaky}, Flaky(), REJECTED),
        ({"retry_on": ConnectionError, "reject_on": Flaky}, ConnectionError(), RETRIED),
        ({"retry_if": says(True)}, ValueError(), RETRIED),
        ({"retry_if": says(False)}, ValueError(), REJECTED),
        ({"retry_if": says(None)}, ValueError(), REJECTED),
        ({"retry_if": raises}, ValueError(), RETRIED),
        # What comes first decides, and what comes later is not asked.
        ({"retry_on": Reject}, Reject(), REJECTED),
        ({"retry_if": says(True)}, Reject(), REJECTED),
        ({"reject_on": RetryLater}, RetryLater(1), RetryIn(1_000)),
        ({"retry_on": OSError}, RetryLater(1), RetryIn(1_000)),
        ({"retry_if": says(False)}, RetryLater(1), RetryIn(1_000)),
        ({"reject_on": ValueError, "retry_if": says(True)}, ValueError(), REJECTED),
        ({"retry_on": OSError, "retry_if": says(True)}, ValueError(), REJECTED),
        ({"retry_on": OSError, "retry_if": says(False)}, OSError(), REJECTED),
    ],
)
def test_the_first_rule_that_fits_decides(
    options: dict[str, Any], error: BaseException, expected: Decision
) -> None:
    assert first_decision(Retry(2, jitter=0, **options), error) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ValueError(), EXHAUSTED), (RetryLater("1h"), EXHAUSTED), (Reject(), REJECTED)],
    ids=repr,
)
@pytest.mark.parametrize("attempt", [3, 4])
def test_the_last_attempt_ends_it(error: BaseException, expected: Decision, attempt: int) -> None:
    assert Retry(3).decide(error, attempt, Random(1)) == expected


def test_an_error_not_worth_repeating_is_rejected_even_at_the_last_attempt() -> None:
    assert Retry(2, reject_on=OSError).decide(OSError(), 2, Random(1)) == REJECTED


@given(policy=policies, attempt=st.integers(1, 20), seed=seeds)
def test_attempts_are_bounded(policy: Retry, attempt: int, seed: int) -> None:
    decision = policy.decide(OSError(), attempt, Random(seed))
    assert (decision == EXHAUSTED) == (attempt >= policy.max_attempts)


def test_the_delay_of_retry_later_is_kept_exactly() -> None:
    policy = Retry(cap="10m", jitter=1)
    drawn = {repr(policy.decide(RetryLater("7h"), 2, Random(seed))) for seed in range(20)}
    assert drawn == {repr(RetryIn(7 * HOUR_MS))}


def test_a_predicate_is_asked_about_the_error_itself() -> None:
    error = OSError()
    assert first_decision(Retry(jitter=0, retry_if=lambda asked: asked is error), error) == RETRIED


def test_a_predicate_that_raises_is_told_of_on_the_error() -> None:
    error = ValueError("bad")
    first_decision(Retry(retry_if=raises), error)
    [note] = error.__notes__
    assert "retry_if" in note
    assert "ZeroDivisionError: no such field" in note


def test_an_interrupt_inside_a_predicate_is_not_swallowed() -> None:
    def interrupted(error: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first_decision(Retry(retry_if=interrupted), ValueError())


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_are_counted_from_one(attempt: int) -> None:
    with pytest.raises(ValueError, match="attempt must be 1"):
        Retry().decide(OSError(), attempt, Random(1))


# ---------------------------------------------------------------------------------------- mistakes


async def asynchronous(error: BaseException) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"max_attempts": 0}, ValueError, "max_attempts must be a whole number from 1.*found 0"),
        ({"max_attempts": -1}, ValueError, "found -1"),
        ({"max_attempts": 2.5}, ValueError, "found 2.5"),
        ({"max_attempts": True}, ValueError, "found True"),
        ({"max_attempts": None}, TypeError, "max_attempts must be .*found None"),
        ({"max_attempts": "5"}, TypeError, "found '5'"),
        ({"base": "soon"}, ValueError, "base must be .*found 'soon'"),
        ({"base": -1}, ValueError, "base must not be negative"),
        ({"cap": None}, TypeError, "cap must be .*found NoneType"),
        ({"base": "1h"}, ValueError, "cap must be at least base, 1h, found 10m, the default"),
        ({"base": 5, "cap": 3}, ValueError, "cap must be at least base, 5s, found 3s:"),
        ({"factor": 0.9}, ValueError, "factor must be a number from 1 .*found 0.9"),
        ({"factor": 1001}, ValueError, "to 1000, found 1001"),
        ({"factor": float("nan")}, ValueError, "found nan"),
        ({"factor": True}, ValueError, "found True"),
        ({"factor": "2"}, TypeError, "factor must be a number .*found '2'"),
        ({"jitter": 1.01}, ValueError, "jitter must be a fraction .*from 0 to 1.*found 1.01"),
        ({"jitter": -0.1}, ValueError, "found -0.1"),
        ({"jitter": float("nan")}, ValueError, "found nan"),
        ({"jitter": True}, ValueError, "found True"),
        ({"jitter": "0.25"}, ValueError, "text with a unit .*found '0.25'"),
        ({"jitter": ""}, ValueError, "found ''"),
        ({"jitter": "5 parsecs"}, ValueError, "jitter must be .*found '5 parsecs'"),
        ({"jitter": timedelta(-1)}, ValueError, "jitter must not be negative"),
        ({"jitter": None}, TypeError, "jitter must be .*found None"),
        ({"delays": "1h"}, TypeError, "delays must be a list .*found '1h'"),
        ({"delays": 5}, TypeError, "found 5"),
        ({"delays": [0, "never"]}, ValueError, r"delays\[1\] must be .*found 'never'"),
        (
            {"delays": [1], "max_attempts": 5},
            ValueError,
            "disagree: with 1 delay there are 2 attempts",
        ),
        ({"delays": [1], "base": 10}, ValueError, "found base too"),
        ({"delays": [1], "factor": 2, "cap": 9}, ValueError, "found factor and cap too"),
        ({"retry_on": "OSError"}, TypeError, "retry_on must be an exception class.*'OSError'"),
        ({"retry_on": int}, TypeError, "retry_on must be an exception class .*int"),
        ({"reject_on": [OSError, 5]}, TypeError, "reject_on must be an exception class .*5"),
        ({"reject_on": None}, TypeError, "reject_on must be .*found None"),
        (
            {"retry_on": [KeyError, FileNotFoundError], "reject_on": OSError},
            ValueError,
            "disagree about FileNotFoundError: reject_on=.OSError.",
        ),
        ({"retry_if": 5}, TypeError, "retry_if must be a plain function .*found 5"),
        ({"retry_if": asynchronous}, TypeError, "retry_if must be a plain function"),
    ],
    ids=lambda value: re.sub(" at 0x.*?>", ">", repr(value)),
)
def test_a_mistake_is_told_when_the_policy_is_made(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        Retry(**options)
    assert caught.type is kind


def test_raising_the_policy_itself_is_refused_by_python() -> None:
    policy: Any = Retry()
    with pytest.raises(TypeError, match="exceptions must derive from BaseException"):
        raise policy


# ------------------------------------------------------------------------------------- as a value


def test_equal_policies_are_equal_values() -> None:
    assert {Retry(base="10s"), Retry(base=10), Retry(base=timedelta(seconds=10))} == {Retry()}
    assert Retry(retry_on=OSError) == Retry(retry_on=[OSError]) != Retry(reject_on=OSError)


def test_a_policy_cannot_be_changed() -> None:
    policy: Any = Retry()
    with pytest.raises(AttributeError):
        policy.max_attempts = 6


@given(policy=policies)
def test_a_policy_can_be_copied(policy: Retry) -> None:
    assert copy.deepcopy(policy) == policy == copy.copy(policy)


def is_transient(error: BaseException) -> bool:
    return True


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Retry(), "Retry(max_attempts=5, base='10s', factor=2, cap='10m', jitter=0.25)"),
        (
            Retry(2, base=0.5, factor=1.5, cap="90m", jitter="30s"),
            "Retry(max_attempts=2, base='500ms', factor=1.5, cap='1h30m', jitter='30s')",
        ),
        (Retry(delays=[0, "1h"]), "Retry(delays=['0s', '1h'], jitter=0)"),
        (
            Retry(delays=[], retry_on=OSError, reject_on=[Flaky, KeyError], retry_if=is_transient),
            "Retry(delays=[], jitter=0, retry_on=[OSError], reject_on=[Flaky, KeyError], "
            "retry_if=is_transient)",
        ),
    ],
)
def test_a_policy_is_shown_as_it_would_be_written(policy: Retry, text: str) -> None:
    assert repr(policy) == text


# ------------------------------------------------------------------------------------------- stored


@given(policy=policies)
def test_a_policy_survives_being_stored(policy: Retry) -> None:
    assert Retry.from_data(json.loads(json.dumps(policy.to_data()))) == policy


@pytest.mark.parametrize(
    ("policy", "data"),
    [
        (
            Retry(),
            {"max_attempts": 5, "base_ms": 10_000, "factor": 2, "cap_ms": 600_000, "jitter": 0.25},
        ),
        (
            Retry(delays=[0, "1h"], jitter="5s"),
            {"max_attempts": 3, "delays_ms": [0, HOUR_MS], "jitter_ms": 5_000},
        ),
    ],
    ids=repr,
)
def test_the_stored_form_stays_readable(policy: Retry, data: dict[str, object]) -> None:
    assert policy.to_data() == data
    assert Retry.from_data(data) == policy


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (Retry(retry_on=OSError), ["retry_on"]),
        (Retry(reject_on=OSError, retry_if=is_transient), ["reject_on", "retry_if"]),
    ],
    ids=repr,
)
def test_classification_does_not_travel(policy: Retry, names: Sequence[str]) -> None:
    with pytest.raises(TypeError, match=f"found {' and '.join(names)}:"):
        policy.to_data()


GROWING = Retry().to_data()
LISTED = Retry(delays=[1]).to_data()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "Expected `object`"),
        ([], "Expected `object`"),
        ({}, "missing required field `max_attempts`"),
        ({"max_attempts": 5}, "expected base_ms, factor and cap_ms together"),
        (GROWING | {"delays_ms": [1]}, "or delays_ms alone"),
        (GROWING | {"factor": None}, "expected base_ms, factor and cap_ms together"),
        (GROWING | {"colour": 1}, "unknown field `colour`"),
        (GROWING | {"max_attempts": 0}, "max_attempts must be .*found 0"),
        (GROWING | {"max_attempts": True}, "got `bool`"),
        (GROWING | {"base_ms": -1}, "Expected `int` >= 0"),
        (GROWING | {"base_ms": 0.5}, "got `float`"),
        (GROWING | {"cap_ms": 1}, "cap must be at least base"),
        (GROWING | {"factor": 0.5}, "factor must be .*found 0.5"),
        (GROWING | {"factor": 10**400}, "out of range"),
        (GROWING | {"jitter": 2}, "jitter must be .*found 2"),
        (GROWING | {"jitter_ms": 5}, "jitter and jitter_ms exclude each other"),
        (LISTED | {"delays_ms": [MAX_DURATION_MS + 1]}, "Expected `int` <="),
        (LISTED | {"delays_ms": "1h"}, "got `str`"),
        (LISTED | {"max_attempts": 7}, "max_attempts=7 and delays disagree"),
    ],
)
def test_data_that_makes_no_policy_is_refused(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"this is not a stored retry policy: .*{message}"):
        Retry.from_data(data)


plain_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(changes=st.dictionaries(st.sampled_from([*GROWING, *LISTED, "jitter_ms"]), plain_data))
@pytest.mark.parametrize("data", [GROWING, LISTED], ids=["growing", "listed"])
def test_data_makes_a_policy_or_a_value_error(
    data: dict[str, object], changes: dict[str, object]
) -> None:
    try:
        policy = Retry.from_data(data | changes)
    except ValueError:
        return
    assert Retry.from_data(policy.to_data()) == policy


def test_a_job_sets_the_pace_and_its_task_the_verdicts() -> None:
    task_policy = Retry(5, reject_on=ValueError)
    paced = task_policy.paced_by(Retry(2, base="1s", jitter=0))
    assert paced.decide(ValueError(), 1, Random(1)) == GiveUp(Reason.REJECTED)
    assert paced.decide(OSError(), 1, Random(1)) == RetryIn(1_000)
    assert paced.decide(OSError(), 2, Random(1)) == GiveUp(Reason.EXHAUSTED)

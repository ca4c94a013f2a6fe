"""`Unique`: what may be declared, and which state of a job holds a key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windlass.core.serialization.codec import CallCodec
from windlass.core.states import State
from windlass.core.unique import HOLDING, OnConflict, Unique, Until, is_held


def test_a_job_is_held_longer_by_each_choice() -> None:
    assert HOLDING[Until.START] < HOLDING[Until.END] < HOLDING[Until.SUCCESS]
    live = {state for state in State if not state.is_final}
    assert HOLDING[Until.START] == live - {State.RUNNING}
    assert HOLDING[Until.END] == live
    assert HOLDING[Until.SUCCESS] == live | {State.DEAD}


@pytest.mark.parametrize("state", State)
def test_a_period_holds_in_every_state(state: State) -> None:
    assert is_held(Until.START, state, 1_001, 1_000)
    assert is_held(Until.START, state, 1_000, 1_000) is (state in HOLDING[Until.START])


def test_what_is_declared() -> None:
    unique = Unique("success", period="10m", by=["a", "b", "a"], on_conflict="raise")
    assert (unique.until, unique.period_ms) == (Until.SUCCESS, 600_000)
    assert (unique.by, unique.on_conflict) == (("a", "b"), OnConflict.RAISE)
    assert unique == Unique(
        "success", period=timedelta(minutes=10), by=("a", "b"), on_conflict="raise"
    )
    assert repr(unique) == "Unique('success', period='10m', by=['a', 'b'], on_conflict='raise')"
    assert repr(Unique()) == "Unique('end', on_conflict='return')"
    with pytest.raises(AttributeError):
        unique.__setattr__("until", Until.END)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"until": "never"}, r"until .* one of 'start', 'end', 'success', found 'never'"),
        ({"until": None}, "found None"),
        ({"on_conflict": "skip"}, r"on_conflict .* 'return', 'replace', 'raise', found 'skip'"),
        ({"period": 0}, "longer than 0, found 0"),
        ({"period": "soon"}, "period"),
        ({"period": -1}, "period must not be negative"),
        ({"by": []}, r"by .* found \[\]"),
        ({"by": [1]}, r"found \[1\]"),
        ({"by": 7}, "found 7"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Unique(**given)


# ------------------------------------------------------------------------------------- the identity


SENTINEL: Any = object()  # no call could pass it


def function(
    a: int, /, b: dict[str, int], *more: int, c: str = "c", d: Any = SENTINEL, **rest: int
) -> None: ...


codec = CallCodec.of(function, skip_first=False)


def identity(names: list[str] | None, *args: Any, **kwargs: Any) -> bytes:
    return codec.identity(codec.encode(args, kwargs), names)


def test_the_same_values_make_the_same_identity() -> None:
    same = {
        identity(None, 1, {"x": 1, "y": 2}),
        identity(None, 1, {"y": 2, "x": 1}),
        identity(None, 1, b={"x": 1, "y": 2}),
        identity(None, 1, c="c", b={"x": 1, "y": 2}),
    }
    assert len(same) == 1


def test_other_values_make_another_identity() -> None:
    calls = [
        identity(None, 1, {}),
        identity(None, 2, {}),
        identity(None, 1, {"x": 1}),
        identity(None, 1, {}, 3),
        identity(None, 1, {}, 3, 4),
        identity(None, 1, {}, c="d"),
        identity(None, 1, {}, d=None),
        identity(None, 1, {}, e=1),
        identity(None, 1, {}, f=1),
        identity(None, 2**70, {}),
        identity(None, 2**70 + 1, {}),
        identity(None, 1, {}, a=5),
        identity(None, 2, {}, a=5),
    ]
    assert len(set(calls)) == len(calls)


def test_only_the_parameters_that_are_named_count() -> None:
    assert identity(["a", "c"], 1, {}, 5) == identity(["a", "c"], 1, {"x": 1}, c="c", e=9)
    assert identity(["a", "c"], 1, {}) != identity(["a", "c"], 1, {}, c="d")
    assert identity(["a"], 1, {}) != identity(["c"], 1, {})
    assert identity(["a"], 1, {}, a=5) == identity(["a"], 1, {}, a=6) != identity(["a"], 2, {}, a=5)
    assert identity(["d"], 1, {}) != identity(["d"], 1, {}, d=None)


def test_names_must_be_parameters() -> None:
    assert codec.check_names(["a", "b", "c", "d"]) == ""
    for name in ("more", "rest", "e"):
        assert f"no parameter '{name}', only a, b, c, d" in codec.check_names(["a", name])

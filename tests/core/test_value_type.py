"""Values: immutable, and equal if their fields are equal."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass import Cron, Every, Retry, Unique

VALUES = [Retry(3), Unique("start", by="key"), Cron("0 3 * * *"), Every("1h")]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_never_changed(value: Any) -> None:
    before = repr(value)
    for name in (*vars(value), "another"):
        with pytest.raises(AttributeError, match=f"{name} cannot be set: .* Make another one"):
            setattr(value, name, 1)
    for name in vars(value):
        with pytest.raises(AttributeError, match=f"{name} cannot be deleted"):
            delattr(value, name)
    assert repr(value) == before


def test_values_that_say_the_same_are_the_same() -> None:
    assert Retry(3, base=60) == Retry(3, base="1m")
    assert hash(Retry(3, base=60)) == hash(Retry(3, base="1m"))
    assert Retry(3) != Retry(4)
    assert Unique("start") == Unique("start")
    assert Unique("start") != Unique("end")
    assert len({Every("1h"), Every("60m"), Every("2h"), Cron("0 * * * *")}) == 3


def test_only_values_of_one_class_are_equal() -> None:
    class Like:
        def __init__(self, value: object) -> None:
            vars(self).update(vars(value))

    assert Like(Retry(3)) != Retry(3)
    assert Retry(3) != Like(Retry(3))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_copy_is_the_same_value(value: Any) -> None:
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert hash(copy.deepcopy(value)) == hash(value)

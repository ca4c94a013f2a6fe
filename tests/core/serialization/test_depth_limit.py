"""The depth of JSON, found on its bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.serialization.wire import MAX_DEPTH, too_deep

json_values = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(['[[["', "]}\\", '\\"[', "{}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=60,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(json_values, st.integers(0, 8), st.booleans())
def test_agrees_with_the_value_itself(value: Any, limit: int, ascii_only: bool) -> None:
    encoded = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    # What is shorter than its limit allows is not looked at, so blanks make it long enough.
    assert too_deep(encoded + b" " * 20, limit) == (depth(value) > limit)


def test_the_limit_itself_is_allowed() -> None:
    assert not too_deep(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert too_deep(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_objects_count_as_lists_do() -> None:
    assert too_deep(b'{"a":[' * 33 + b"]}" * 33)
    assert not too_deep(b'{"a":[' * 32 + b"]}" * 32)


def test_many_flat_values_are_not_deep() -> None:
    assert not too_deep(b"[" + b",".join([b'{"a":[1,2]}'] * 10_000) + b"]")


def test_brackets_in_text_neither_count_nor_hide() -> None:
    assert not too_deep(json.dumps(["[" * 1_000]).encode())
    hiding = b'["]",' * 200 + b"1" + b"]" * 200
    assert depth(json.loads(hiding)) == 200
    assert too_deep(hiding)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_what_never_closes_is_too_deep(opening: bytes) -> None:
    assert too_deep(opening * 1_000_000)

"""Calls that are encoded in one step: the same bytes, and the same refusals, as the full check."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NewType
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.serialization.shapes import Colour, Level, Tone
from windlass.core.serialization.codec import CallCodec
from windlass.core.serialization.pickle_codec import PickleCodec
from windlass.core.serialization.wire import JSON, MSGPACK, Wire
from windlass.errors import EncodeError

UserId = NewType("UserId", int)

#: A parameter of each of these types is given values of all types.
ANNOTATIONS: list[Any] = [
    *(Any, None, bool, int, float, str, bytes, UUID, UserId, inspect.Parameter.empty),
    *(int | None, str | None, bool | int, int | float, bytes | None, UUID | None),
    *(int | float | str | bool | None, float | None, str | int, list[int], dict[str, int]),
    *(Colour, Level, Tone, Level | None, Annotated[int, msgspec.Meta(ge=0)]),
    *(Annotated[str, msgspec.Meta(max_length=3)], Annotated[float, msgspec.Meta(lt=1)]),
]


class Text(str):
    __slots__ = ()


VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**53 + 1, 2**63, 2**64, -(2**70), 10**4200, 10**4299, 10**4300),
    *(0.0, -0.0, 1.0, 0.1, 1e16, 1e22, 1e300, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", "null", "a", "\0", "木", "\ud800", "x" * 5000, "\\", '"', "2026-01-01", str(UUID(int=1))),
    *(b"", b"\xff\0", b"null", UUID(int=0), UUID(int=2**128 - 1)),
    *([1], {"a": 1}, (), Text("a"), Level.LOW, Colour.RED, Tone.SOFT),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.text(st.characters())  # with surrogates
    | st.binary()
    | st.uuids()
    | st.sampled_from(VALUES)
)


def function_of(*annotations: Any) -> Callable[..., None]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    def function(*args: Any, **kwargs: Any) -> None: ...

    parameters = [
        inspect.Parameter(f"p{at}", kind, annotation=one) for at, one in enumerate(annotations)
    ]
    vars(function)["__signature__"] = inspect.Signature(parameters)
    return function


def codec_of(*annotations: Any, wire: Wire = JSON) -> CallCodec:
    return CallCodec.of(function_of(*annotations), False, name="task", wire=wire)


def outcome(encode: Callable[[], bytes]) -> bytes | str:
    try:
        return encode()
    except EncodeError as error:
        return str(error)


def checked(codec: CallCodec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | str:
    """The outcome of the full check, always."""
    return outcome(lambda: codec._encode_checked(("no shape of a call",), args, kwargs))


def assert_same(codec: CallCodec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    expected = checked(codec, args, kwargs)
    for _ in range(2):  # the first call may teach the codec its shape
        assert outcome(lambda: codec.encode(args, kwargs)) == expected


def learned(annotations: list[Any], wire: Wire) -> CallCodec:
    """A codec that knows the shapes of all values that it has accepted."""
    codec = codec_of(*annotations, wire=wire)
    for value in VALUES:
        args = (value,) * len(annotations)
        outcome(lambda args=args: codec.encode(args, {}))  # type: ignore[misc]  # mypy: the default
    return codec


CODECS = {
    (at, wire.name): learned([annotation], wire)
    for at, annotation in enumerate(ANNOTATIONS)
    for wire in (JSON, MSGPACK)
}


@pytest.mark.parametrize("at", range(len(ANNOTATIONS)), ids=lambda at: str(ANNOTATIONS[at]))
@pytest.mark.parametrize("wire", ["JSON", "msgpack"])
def test_one_value_of_each_kind_has_one_outcome(at: int, wire: str) -> None:
    for value in VALUES:
        assert_same(CODECS[at, wire], (value,), {})


@given(st.sampled_from(sorted(CODECS)), scalars)
def test_any_value_has_the_outcome_of_the_full_check(which: tuple[int, str], value: Any) -> None:
    assert_same(CODECS[which], (value,), {})


@given(
    st.lists(st.tuples(st.integers(0, len(ANNOTATIONS) - 1), scalars), max_size=4),
    st.sampled_from([JSON, MSGPACK]),
    st.data(),
)
def test_any_call_has_the_outcome_of_the_full_check(
    pairs: list[tuple[int, Any]], wire: Wire, data: st.DataObject
) -> None:
    codec = codec_of(*(ANNOTATIONS[at] for at, _ in pairs), wire=wire)
    values = [value for _, value in pairs]
    split = data.draw(st.integers(0, len(values)))
    named = data.draw(st.permutations(list(enumerate(values))[split:]))
    assert_same(codec, tuple(values[:split]), {f"p{at}": value for at, value in named})


def starred(*args: int, **kwargs: Any) -> None: ...


@given(st.lists(scalars, max_size=3), st.dictionaries(st.text(max_size=3), scalars, max_size=3))
def test_starred_parameters_have_the_outcome_of_the_full_check(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert_same(CallCodec.of(starred, False), tuple(args), kwargs)


# ------------------------------------------------------------------------------ what is in one step


@contextmanager
def only_in_one_step(codec: CallCodec, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_args: object) -> bytes:
        raise AssertionError("this call was checked again")

    with monkeypatch.context() as patched:
        patched.setattr(codec, "_encode_checked", refuse)
        yield


@pytest.mark.parametrize(
    ("annotations", "args", "kwargs"),
    [
        ((int, str), (1, "a"), {}),
        ((int, str), (), {"p0": 1, "p1": "a"}),
        ((int, str), (1,), {"p1": "a"}),
        ((float, bool), (1.5, True), {}),
        ((bool, None), (True, None), {}),
        ((bytes, UUID), (b"a", UUID(int=1)), {}),
        ((Any, inspect.Parameter.empty), (1, "a"), {}),
        ((int | None, str | None), (None, "a"), {}),
        ((UserId,), (1,), {}),
    ],
)
@pytest.mark.parametrize("wire", [JSON, MSGPACK], ids=lambda wire: str(wire.name))
def test_a_second_call_of_proven_types_is_not_checked(
    annotations: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec = codec_of(*annotations, wire=wire)
    expected = codec.encode(args, kwargs)
    with only_in_one_step(codec, monkeypatch):
        assert codec.encode(args, kwargs) == expected


def test_a_call_that_does_not_fit_is_never_proven() -> None:
    codec = codec_of(int)
    codec.encode((1,), {})
    for args, kwargs in (((), {}), ((1, 2), {}), ((), {"p1": 1}), ((1,), {"p0": 1})):
        with pytest.raises(TypeError):
            codec.encode(args, kwargs)


def test_a_codec_remembers_a_limited_number_of_shapes() -> None:
    codec = CallCodec.of(starred, False)
    for number in range(1, 300):
        codec.encode((1,) * number, {})
    assert len(codec._proven) == 128


def test_a_long_number_is_checked_whatever_python_allows() -> None:
    codec, most = codec_of(int), sys.get_int_max_str_digits()
    codec.encode((1,), {})
    sys.set_int_max_str_digits(0)
    try:
        assert_same(codec, (10**5000,), {})
    finally:
        sys.set_int_max_str_digits(most)


def test_a_pickle_needs_no_annotation() -> None:
    codec = PickleCodec(function_of("nowhere.Hidden"), False, name="task")
    assert codec.identity(codec.encode((1,), {}), None) == codec.identity(
        codec.encode((), {"p0": 1}), None
    )

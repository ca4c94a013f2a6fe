"""Calls and results as bytes: binding, the stored form, bad bytes, limits."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import wraps
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.serialization.shapes import Address, Colour, codec_for, named
from windlass.core.serialization.codec import (
    CallCodec,
    check_size,
    decode_json,
    encode_plain,
    fingerprint,
)
from windlass.core.serialization.wire import MAX_DEPTH
from windlass.errors import AnnotationError, DecodeError, EncodeError, PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.nowhere import Hidden  # type: ignore[import-not-found]  # what cannot be resolved


def resize(path: str, widths: list[int]) -> list[str]:
    return [f"{path}-{width}" for width in widths]


def mixed(first: int, /, second: Path, *rest: UUID, flag: bool = False, **extra: Decimal) -> None:
    """One parameter of every kind."""


def with_context(ctx: Hidden, path: str, depth: int = 1) -> None:
    """The context's annotation is never looked at."""


ID = UUID(int=7)


# ---------------------------------------------------------------------------------- the stored form


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        (("a", [1]), {}, b'{"args":["a",[1]]}'),
        (("a",), {"widths": [1]}, b'{"args":["a"],"kwargs":{"widths":[1]}}'),
        ((), {"widths": [1], "path": "a"}, b'{"kwargs":{"path":"a","widths":[1]}}'),
    ],
)
def test_a_call_is_stored_as_it_was_made(
    args: tuple[Any, ...], kwargs: dict[str, Any], stored: bytes
) -> None:
    codec = named(resize)
    assert codec.encode(args, kwargs) == stored
    assert codec.decode(stored) == (args, kwargs)


def test_a_call_without_arguments_is_an_empty_object() -> None:
    def clean_up(age: int = 3) -> None: ...

    assert named(clean_up).encode((), {}) == b"{}"
    assert named(clean_up).decode(b"{}") == ((), {})


def test_every_kind_of_parameter() -> None:
    args = (1, Path("a"), ID, ID)
    kwargs = {"flag": True, "zeta": Decimal("1.0"), "alpha": Decimal(2)}
    codec = named(mixed)
    stored = codec.encode(args, kwargs)
    assert stored == (
        b'{"args":[1,"a","00000000-0000-0000-0000-000000000007",'
        b'"00000000-0000-0000-0000-000000000007"],'
        b'"kwargs":{"flag":true,"alpha":"2","zeta":"1.0"}}'
    )
    assert codec.decode(stored) == (args, kwargs)


def test_keywords_beyond_the_parameters_are_sorted() -> None:
    def report(**counts: int) -> None: ...

    names = list("qwertzuiopasdfghjkl")
    stored = decode_json(named(report).encode((), dict.fromkeys(names, 1)))
    assert list(stored["kwargs"]) == sorted(names)


def test_a_keyword_may_have_the_name_of_a_positional_only_parameter() -> None:
    codec = named(mixed)
    call = codec.decode(codec.encode((1, Path("a")), {"first": Decimal(9)}))
    assert call == ((1, Path("a")), {"first": Decimal(9)})


def test_the_context_is_left_out() -> None:
    codec = named(with_context, skip_first=True)
    codec.resolve()
    assert codec.encode(("a",), {"depth": 2}) == b'{"args":["a"],"kwargs":{"depth":2}}'


def test_a_task_with_a_context_needs_a_parameter_for_it() -> None:
    def nothing() -> None: ...

    def only_keywords(*, ctx: object) -> None: ...

    for function in (nothing, only_keywords):
        with pytest.raises(TypeError, match="takes the context, so its first parameter must be"):
            CallCodec.of(function, skip_first=True)


def test_sees_through_a_decorator() -> None:
    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    with pytest.raises(EncodeError, match="expected int, found str"):
        CallCodec.of(decorated(resize), skip_first=False).encode(("a", ["b"]), {})


def test_the_same_call_gives_the_same_bytes_in_every_process() -> None:
    program = """
from tests.core.serialization.shapes import EXAMPLES, codec_for
from windlass.core.serialization.codec import fingerprint
for name, example in EXAMPLES.items():
    print(name, fingerprint(codec_for(example.annotation).encode((example.value,), {})))
"""
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([".", "src"])},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert "set-of-enum" in first
    assert first == second


def test_a_dict_keeps_its_order() -> None:
    codec = codec_for(dict[str, set[int]])
    (value,), _ = codec.decode(codec.encode(({"b": {2, 1}, "a": set()},), {}))
    assert list(value) == ["b", "a"]


def test_encoding_leaves_the_value_alone() -> None:
    value = {"b": {2, 1}, "a": {3}}
    before = copy.deepcopy(value)
    codec_for(dict[str, set[int]]).encode((value,), {})
    assert value == before


# ------------------------------------------------------------------------------------------ binding


WRONG_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("a",), {}, r"resize\(\): missing a required argument: 'widths'"),
    ((), {"widths": [1]}, r"resize\(\): missing a required argument: 'path'"),
    (("a", [1], 2), {}, r"resize\(\): too many positional arguments"),
    (("a", [1]), {"path": "b"}, r"resize\(\): multiple values for argument 'path'"),
    (("a", [1]), {"colour": 1}, r"resize\(\): got an unexpected keyword argument 'colour'"),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), WRONG_CALLS)
def test_wrong_arguments_are_a_type_error(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        named(resize).encode(args, kwargs)


@pytest.mark.parametrize(("args", "kwargs", "message"), WRONG_CALLS)
def test_a_stored_call_that_does_not_fit_is_a_decode_error(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(DecodeError, match=message + "; the call was stored for another version"):
        named(resize).decode(encode_plain("resize", args, kwargs))


def no_parameters() -> None: ...
def defaults(a: int, b: int = 1) -> None: ...
def keyword_only(a: int, *, b: int, c: int = 1) -> None: ...
def positional_only(a: int, b: int = 1, /) -> None: ...
def positional_and_extra(a: int, /, **b: int) -> None: ...
def starred(a: int, *b: int, c: int) -> None: ...
def extra_only(**a: int) -> None: ...


@given(
    st.sampled_from(
        [
            no_parameters,
            defaults,
            keyword_only,
            positional_only,
            positional_and_extra,
            starred,
            extra_only,
        ]
    ),
    st.lists(st.just(1), max_size=3),
    st.sets(st.sampled_from("abc")),
)
def test_binds_exactly_what_python_binds(
    function: Callable[..., None], args: list[int], names: set[str]
) -> None:
    kwargs = dict.fromkeys(sorted(names), 1)
    try:
        function(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            named(function).encode(args, kwargs)
    else:
        assert named(function).decode(named(function).encode(args, kwargs)) == (
            tuple(args),
            kwargs,
        )


# -------------------------------------------------------------------------------------- annotations


def sooner(value: Later) -> None:
    """Annotated with a class that is defined further down."""


def impossible(value: Opaque) -> None:
    """Annotated with a class that has no JSON form."""


@dataclass
class Later:
    name: str


class Opaque:
    pass


def unresolved(known: int, value: Hidden = None) -> None:
    """Annotated with a name that exists only for the type checker."""


def test_an_annotation_that_cannot_be_resolved_names_the_parameter() -> None:
    codec = named(unresolved)
    codec.resolve()
    assert codec.encode((1,), {}) == b'{"args":[1]}'
    with pytest.raises(
        EncodeError, match=r"unresolved\(value=\.\.\.\): the annotation Hidden"
    ) as e:
        codec.encode((1, 2), {})
    assert (e.value.task, e.value.parameter) == ("unresolved", "value")
    assert isinstance(e.value.__cause__, AnnotationError)
    with pytest.raises(DecodeError, match=r"cannot be resolved .*TYPE_CHECKING"):
        codec.decode(b'{"args":[1,2]}')


def test_a_required_parameter_that_cannot_be_carried_is_found_early() -> None:
    codec = named(impossible)
    with pytest.raises(AnnotationError, match=r"impossible\(value=\.\.\.\): .* names Opaque") as e:
        codec.resolve()
    assert (e.value.task, e.value.parameter) == ("impossible", "value")


def test_a_class_defined_after_the_function_is_found() -> None:
    codec = named(sooner)
    assert codec.decode(codec.encode((Later("x"),), {})) == ((Later("x"),), {})


# ------------------------------------------------------------------------------------------- errors


def test_an_encode_error_names_the_parameter_and_the_place() -> None:
    with pytest.raises(EncodeError) as caught:
        named(resize).encode(("a", [1, "b"]), {})
    error = caught.value
    assert str(error) == (
        "resize(widths=...): expected int, found str at $[1]; the annotation is list[int]"
    )
    assert (error.task, error.parameter, error.path) == ("resize", "widths", "$[1]")


@pytest.mark.parametrize("value", ["x", [1, object()]])
def test_an_encode_error_has_one_traceback(value: object) -> None:
    with pytest.raises(EncodeError) as caught:
        named(resize).encode(("a", value), {})
    assert "".join(format_exception(caught.value)).count("Traceback") == 1


class Moody(msgspec.Struct):
    is_calm: bool

    def __post_init__(self) -> None:
        if not self.is_calm:
            raise RuntimeError("it comes in no other mood")


def test_an_encode_error_keeps_what_a_class_of_the_user_raised() -> None:
    value = Moody(True)
    value.is_calm = False
    with pytest.raises(EncodeError, match="in no other mood") as caught:
        codec_for(Moody).encode((value,), {})
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_encode_error_names_which_of_the_starred_values() -> None:
    with pytest.raises(EncodeError, match=r"mixed\(\*rest\[1\]=\.\.\.\): expected UUID, found str"):
        named(mixed).encode((1, Path("a"), ID, str(ID)), {})
    with pytest.raises(EncodeError, match=r"mixed\(\*\*extra\['k'\]=\.\.\.\): expected Decimal"):
        named(mixed).encode((1, Path("a")), {"k": 0.5})


def test_a_decode_error_names_the_parameter_and_the_place() -> None:
    with pytest.raises(DecodeError) as caught:
        named(resize).decode(b'{"args":["a",[1,"b"]]}')
    error = caught.value
    assert str(error) == "resize(widths=...): expected int, found str at $[1]"
    assert (error.task, error.parameter, error.path) == ("resize", "widths", "$[1]")


# ---------------------------------------------------------------------------------------- bad bytes


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"null",
        b"[]",
        b'{"args":{}}',
        b'{"kwargs":[]}',
        b'{"args":["a",[1]],"more":1}',
        b'{"args":["a",[1]]',
        b'{"args":["a",[1]]} x',
        b'{"args":["\xff",[1]]}',
        b'{"args":["\\ud800",[1]]}',
        b'{"args":["a",[NaN]]}',
        b'{"args":["a",[1e999]]}',
        b'{"args":["a",[1.5]]}',
        b'{"args":["a",null]}',
        b'{"args":["a",[' + b"9" * 1_000_000 + b"]]}",
        b'{"args":["a",' + b"[" * 10_000_000,
        b'{"args":["a",' + b"[" * 1_000 + b"]" * 1_000 + b"]}",
        b"cposix\nsystem\n(S'exit 1'\ntR.",
    ],
)
def test_bad_bytes_are_a_decode_error(bad: bytes) -> None:
    with pytest.raises(DecodeError):
        named(resize).decode(bad)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"nul",
        b'"\xff"',
        b"[" * 10_000_000,
        b"[" * 65 + b"]" * 65,
        b"9" * 1_000_000,
        b"1e999",
    ],
)
def test_bad_results_are_a_decode_error(bad: bytes) -> None:
    with pytest.raises(DecodeError):
        codec_for(Any).decode_result(bad)
    with pytest.raises(DecodeError, match="the stored bytes are not JSON"):
        decode_json(bad)


@given(st.binary(max_size=100), st.data())
def test_mutated_calls_are_read_or_refused(noise: bytes, data: st.DataObject) -> None:
    stored = bytearray(named(mixed).encode((1, Path("a"), ID), {"k": Decimal(1)}))
    start = data.draw(st.integers(0, len(stored)))
    stored[start : start + data.draw(st.integers(0, 5))] = noise[:4]
    for bad in (bytes(stored), noise):
        for read in (named(mixed).decode, codec_for(Any).decode_result, decode_json):
            try:
                read(bad)
            except DecodeError:
                continue


# ------------------------------------------------------------------------------------------- limits


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_stored_argument_may_be_as_deep_as_a_passed_one() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    codec_for(Any).decode(b'{"args":[' + deepest + b"]}")
    with pytest.raises(DecodeError, match="stored for task are nested deeper than 64 levels"):
        codec_for(Any).decode(b'{"args":[[' + deepest + b"]]}")


def test_the_deepest_argument_that_is_carried() -> None:
    codec = codec_for(Any)
    deepest = nested(MAX_DEPTH)
    assert codec.decode(codec.encode((deepest,), {})) == ((deepest,), {})
    assert codec.decode_result(codec.encode_result(deepest)) == deepest
    with pytest.raises(EncodeError, match=r"task\(value=\.\.\.\): nested deeper than 64 levels"):
        codec.encode((nested(MAX_DEPTH + 1),), {})


@pytest.mark.parametrize("annotation", [Any, list[list[Any]], list[set[int]]])
def test_a_value_inside_itself_is_refused(annotation: Any) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(EncodeError, match="nested deeper than 64 levels, or inside itself"):
        codec_for(annotation).encode((circle,), {})


def test_the_size_is_checked_to_the_byte() -> None:
    check_size(b"x" * 1_000, 1_000, "a call of resize")
    with pytest.raises(PayloadTooLarge) as caught:
        check_size(b"x" * 1_001, 1_000, "a call of resize")
    assert (caught.value.size, caught.value.limit) == (1_001, 1_000)
    assert str(caught.value) == (
        "a call of resize takes 1,001 bytes, and the limit is 1,000. Store the data elsewhere (a "
        "file, an object store, a table) and pass a reference to it, or raise max_payload."
    )


def test_a_fingerprint_tells_calls_apart() -> None:
    assert fingerprint(b'{"args":[1]}') == "1c6ba4f6009a31b399388f97bf68786b"
    assert fingerprint(b'{"args":[1]}') != fingerprint(b'{"args":[2]}')


# ---------------------------------------------------------------------- without a function, results


def test_a_call_without_its_function_takes_json_types() -> None:
    assert encode_plain("a.b", (1, "x"), {"z": None, "k": [1.5]}) == (
        b'{"args":[1,"x"],"kwargs":{"k":[1.5],"z":null}}'
    )
    with pytest.raises(EncodeError, match=r"a\.b\(\*args\[1\]=\.\.\.\): found UUID, which would"):
        encode_plain("a.b", (1, ID), {})


def test_a_result_is_rebuilt_by_its_annotation() -> None:
    def find() -> dict[UUID, Address]:
        return {}

    codec = named(find)
    result = {ID: Address("Main St")}
    assert codec.decode_result(codec.encode_result(result)) == result


def test_a_result_that_is_not_what_the_annotation_says_is_refused() -> None:
    with pytest.raises(
        EncodeError, match=r"^the result of resize: expected str, found int at \$\[0\]"
    ) as caught:
        named(resize).encode_result([1])
    assert caught.value.parameter == ""

    def nothing() -> None: ...

    assert named(nothing).encode_result(None) == b"null"
    with pytest.raises(EncodeError, match="the result of nothing: expected null, found int"):
        named(nothing).encode_result(1)


def returns_anything():  # type: ignore[no-untyped-def]  # the annotation is what is missing
    """Not annotated at all."""


def returns_open() -> dict[str, Any]:
    return {}


def test_a_result_without_annotation_is_kept_in_its_json_form() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    result = {"at": moment, "by": ID, "where": Path("a"), "colour": Colour.RED, "n": (1, 2)}
    for function in (returns_anything, returns_open):
        codec = named(function)
        assert codec.decode_result(codec.encode_result(result)) == {
            "at": "2024-01-01T00:00:00Z",
            "by": str(ID),
            "where": "a",
            "colour": "red",
            "n": [1, 2],
        }


def test_a_result_that_has_no_json_form_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"found object, which cannot be stored .* at \$\['a'\]"):
        named(returns_anything).encode_result({"a": object()})
    with pytest.raises(EncodeError, match=r"found nan, which JSON cannot hold at \$\['a'\]\[1\]"):
        named(returns_anything).encode_result({"a": [None, float("nan")]})
    assert named(returns_anything).encode_result({"a": None}) == b'{"a":null}'

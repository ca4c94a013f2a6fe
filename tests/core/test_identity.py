"""Equal values are stored and compared alike, in any form and from any producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.serialization.shapes import codec_for
from tests.core.serialization.test_codec_types import ANY_VALUE
from windlass.core.serialization.codec import CallCodec, decode_json
from windlass.core.serialization.pickle_codec import PickleCodec
from windlass.core.serialization.wire import JSON, MSGPACK
from windlass.errors import DecodeError


@dataclass
class Mail:
    to: str
    subject: str = "hello"
    tags: list[str] = field(default_factory=list)
    sent: bool = field(init=False, default=False)


@dataclass(frozen=True)
class Place:
    shelf: int
    room: str = "cellar"


class Bundle(msgspec.Struct):
    mails: list[Mail]
    by_name: dict[str, Mail] = {}


@dataclass
class Options:
    depth: Any = None


class Sizes(TypedDict, total=False):
    width: float
    height: float


def task(annotation: Any) -> Callable[..., Any]:
    def function(value: Any) -> Any: ...

    function.__annotations__ = {"value": annotation}
    return function


def read(annotation: Any, text: str) -> Any:
    """A value as a worker, or the command line, makes it of JSON."""
    (value,), _ = codec_for(annotation).decode(f'{{"args":[{text}]}}'.encode())
    return value


#: An annotation, a value as Python makes it, and JSON of the same value in other words.
ALIKE: dict[str, tuple[Any, Any, str]] = {
    "dataclass": (Mail, Mail("a"), '{"to":"a"}'),
    "dataclass or nothing": (Mail | None, Mail("a"), '{"to":"a"}'),
    "dataclass in a list": (list[Mail], [Mail("a")], '[{"tags":[],"to":"a"}]'),
    "dataclass in a struct": (
        Bundle,
        Bundle([Mail("a")], {"x": Mail("b")}),
        '{"mails":[{"to":"a"}],"by_name":{"x":{"to":"b"}}}',
    ),
    "dataclasses in a set": (
        set[Place],
        {Place(2), Place(1, "attic")},
        '[{"shelf":2},{"shelf":1,"room":"attic"}]',
    ),
    "unknown field": (Mail, Mail("a"), '{"to":"a","colour":"red"}'),
    "float": (float, 1, "1.0"),
    "float or nothing": (float | None, 1, "1.0"),
    "floats": (list[float], [1, 2.5], "[1.0,2.5]"),
    "floats by float": (dict[float, float], {1: 2}, '{"1":2.0}'),
    "key order": (dict[str, int], {"a": 1, "b": 2}, '{"b":2,"a":1}'),
    "key order, anything": (Any, {"a": {"x": 1, "y": 2}, "b": 2}, '{"b":2,"a":{"y":2,"x":1}}'),
    "typed dict": (Sizes, {"width": 1, "height": 2}, '{"height":2.0,"width":1.0}'),
    "uuid": (UUID, UUID(int=10), '"00000000-0000-0000-0000-00000000000A"'),
    "decimal": (Decimal, Decimal("0.50"), '"0.50"'),
}
CODECS: dict[str, Callable[[Any], Any]] = {
    "json": lambda annotation: CallCodec.of(task(annotation), skip_first=False, wire=JSON),
    "msgpack": lambda annotation: CallCodec.of(task(annotation), skip_first=False, wire=MSGPACK),
    "pickle": lambda annotation: PickleCodec(task(annotation), skip_first=False, name="task"),
}


@pytest.mark.parametrize("mark", CODECS)
@pytest.mark.parametrize("name", ALIKE)
def test_equal_values_make_the_same_key(name: str, mark: str) -> None:
    annotation, made, text = ALIKE[name]
    found, codec = read(annotation, text), CODECS[mark](annotation)
    assert found == made
    calls = [codec.encode((made,), {}), codec.encode((found,), {})]
    plain = {codec.plain(call) for call in calls}
    assert len(plain) == 1
    assert plain == {codec_for(annotation).plain(codec_for(annotation).encode((made,), {}))}
    assert len({codec.identity(call, None) for call in calls}) == 1
    assert len({codec.identity(call, ["value"]) for call in calls}) == 1


@pytest.mark.parametrize("wire", [JSON, MSGPACK], ids=lambda wire: wire.name)
@pytest.mark.parametrize("name", [name for name in ALIKE if "dataclass" in name])
def test_a_dataclass_is_stored_with_all_its_fields(name: str, wire: Any) -> None:
    annotation, made, text = ALIKE[name]
    codec = CallCodec.of(task(annotation), skip_first=False, wire=wire)
    assert codec.encode((read(annotation, text),), {}) == codec.encode((made,), {})


def test_all_fields_are_those_of_the_class() -> None:
    mail = read(Mail, '{"to":"a"}')
    mail.colour = "red"
    stored = b'{"args":[{"to":"a","subject":"hello","tags":[],"sent":false}]}'
    assert codec_for(Mail).encode((mail,), {}) == stored
    assert codec_for(Mail).encode_result(mail) == stored[9:-2]
    assert "subject" not in vars(mail), "what the caller has is left as it is"


def test_a_default_in_other_words_is_the_default() -> None:
    usual = read(Mail, '{"to":"a"}')

    def send(mail: Mail = usual, weight: float = 1) -> None: ...

    codec = CallCodec.of(send, skip_first=False)
    calls: list[Any] = [((), {}), ((Mail("a"),), {}), ((), {"weight": 1.0})]
    assert len({codec.identity(codec.encode(*call), None) for call in calls}) == 1


def test_a_call_is_compared_as_it_was_passed() -> None:
    def resize(path: str, width: float = 1) -> None: ...

    codec = CallCodec.of(resize, skip_first=False)
    calls: list[Any] = [(("a",), {}), ((), {"path": "a"}), (("a", 1), {}), (("a",), {"width": 1})]
    plain = [codec.plain(codec.encode(*call)) for call in calls]
    assert plain[0] == b'{"args":["a"]}'
    assert len(set(plain)) == len(plain)


def test_other_values_are_told_apart() -> None:
    pairs: list[tuple[Any, Any, Any]] = [
        (Mail, Mail("a"), Mail("a", "b")),
        (list[int], [1, 2], [2, 1]),
        (dict[str, int], {"a": 1}, {"a": 2}),
        (int | float, 1, 1.0),  # the task is given which it was
        (Any, 1, 1.0),
        (Decimal, Decimal("1.0"), Decimal("1.00")),
    ]
    for annotation, *values in pairs:
        codec = codec_for(annotation)
        assert len({codec.plain(codec.encode((value,), {})) for value in values}) == 2


def test_what_stands_for_a_pickle_is_no_value_of_the_class() -> None:
    codec = PickleCodec(task(Options), skip_first=False, name="task")
    values = [Options(depth) for depth in (None, {1, 2}, {3}, 4j)]
    assert len({codec.plain(codec.encode((value,), {})) for value in values}) == len(values)


class Fetched:
    """Unpickled by a call that may fail for reasons of its own."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Callable[..., object], tuple[type[Exception]]]:
        return refuse, (self.error,)


def refuse(error: type[Exception]) -> object:
    raise error("not now")


@pytest.mark.parametrize("error", [ConnectionError, OSError, RuntimeError])
def test_an_error_of_code_that_a_pickle_calls_says_nothing_about_the_pickle(
    error: type[Exception],
) -> None:
    codec = PickleCodec(task(Any), skip_first=False, name="task")
    with pytest.raises(error, match="not now"):
        codec.decode(codec.encode((Fetched(error),), {}))
    with pytest.raises(DecodeError, match="not now"):
        codec.decode(codec.encode((Fetched(ImportError),), {}))


@pytest.mark.parametrize("name", ANY_VALUE)
@settings(max_examples=10)
@given(data=st.data())
def test_a_value_that_is_handed_on_keeps_its_key(name: str, data: st.DataObject) -> None:
    annotation, values = ANY_VALUE[name]
    codec = codec_for(annotation)
    call = codec.encode((data.draw(values),), {})
    again = codec.encode(*codec.decode(call))
    assert codec.plain(again) == codec.plain(call)
    assert decode_json(codec.plain(call)) == decode_json(call)

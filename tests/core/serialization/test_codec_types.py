"""Every type that is carried: its stored bytes, and that any value of it comes back the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.serialization.shapes import (
    EXAMPLES,
    Address,
    Aliased,
    Colour,
    Customer,
    Incomparable,
    Level,
    Options,
    Order,
    Parcel,
    Point,
    Reading,
    Tone,
    codec_for,
    there_and_back,
)
from windlass.errors import EncodeError

GOLDEN = Path(__file__).parent / "golden"

# ------------------------------------------------------------------------------------- golden files


def stored(name: str) -> bytes:
    return (GOLDEN / f"codec-{name}.json").read_bytes().removesuffix(b"\n")


@pytest.mark.parametrize("name", EXAMPLES)
def test_writes_the_stored_form(name: str) -> None:
    annotation, value = EXAMPLES[name]
    assert codec_for(annotation).encode((value,), {}) == stored(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_reads_the_stored_form(name: str) -> None:
    annotation, value = EXAMPLES[name]
    (read,), kwargs = codec_for(annotation).decode(stored(name))
    assert read == value
    assert type(read) is type(value)
    assert kwargs == {}


def test_every_golden_file_is_read() -> None:
    assert {path.stem for path in GOLDEN.glob("codec-*")} == {f"codec-{name}" for name in EXAMPLES}


# ---------------------------------------------------------------------------------------- any value

texts = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
offsets = st.integers(-14 * 60, 14 * 60).map(lambda n: timezone(timedelta(minutes=n)))
# Zones are asked only for times since 1972: until then some had offsets with seconds.
zones = st.sampled_from(["Europe/Paris", "America/New_York", "Asia/Kathmandu"]).map(ZoneInfo)
moments = st.datetimes(timezones=offsets) | st.datetimes(
    datetime(1973, 1, 1, tzinfo=UTC).replace(tzinfo=None), timezones=zones
)
decimals = st.decimals(allow_nan=True)
# A path is put together from parts: a text such as "a//b" is another path when read.
paths = st.lists(st.text("abc.é ", min_size=1), min_size=1, max_size=3).map(lambda p: Path(*p))
plain = st.none() | st.booleans() | st.integers() | finite | texts
json_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
addresses = st.builds(Address, texts, st.none() | texts)
orders: st.SearchStrategy[Order] = st.recursive(
    st.builds(Order, st.uuids(), decimals, moments, st.frozensets(texts), st.none() | addresses),
    lambda inner: st.builds(
        Order, st.uuids(), decimals, moments, children=st.lists(inner, max_size=2)
    ),
    max_leaves=4,
)
# pydantic reads times with an offset of less than a day, and only finite decimals.
customers = st.builds(
    Customer,
    id=st.uuids(),
    joined=st.datetimes(timezones=st.just(UTC)),
    balance=st.decimals(allow_nan=False, allow_infinity=False),
    address=st.none() | addresses,
)

ANY_VALUE: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "nothing": (None, st.none()),
    "any": (Any, json_values),
    "object": (object, json_values),
    "bare list": (list, st.lists(json_values)),
    "bare dict": (dict, st.dictionaries(texts, json_values)),
    "bool": (bool, st.booleans()),
    "int": (int, st.integers()),
    "float": (float, finite),
    "str": (str, texts),
    "bytes": (bytes, st.binary()),
    "bytearray": (bytearray, st.binary().map(bytearray)),
    "date": (date, st.dates()),
    "time": (time, (st.times() | st.times(timezones=offsets)).map(lambda t: t.replace(fold=0))),
    "timedelta": (timedelta, st.timedeltas()),
    "uuid": (UUID, st.uuids()),
    "path": (Path, paths),
    "pure path": (PurePosixPath, paths.map(PurePosixPath)),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "text enum": (Tone, st.sampled_from(Tone)),
    "literal": (Literal["a", "b", 1, None], st.sampled_from(["a", "b", 1, None])),
    "list": (list[UUID], st.lists(st.uuids())),
    "set": (set[date], st.sets(st.dates())),
    "frozenset": (frozenset[tuple[int, str]], st.frozensets(st.tuples(st.integers(), texts))),
    "set of sets": (
        set[frozenset[str]],
        st.sets(st.frozensets(texts, max_size=3), max_size=3),
    ),
    "bare set": (set, st.sets(st.integers() | texts)),
    "tuple": (tuple[int, bytes], st.tuples(st.integers(), st.binary())),
    "bare tuple": (tuple, st.lists(plain).map(tuple)),
    "long tuple": (tuple[bool, ...], st.lists(st.booleans()).map(tuple)),
    "named tuple": (Point, st.builds(Point, st.integers(), finite)),
    "typed dict": (
        Options,
        st.fixed_dictionaries({"depth": st.integers()}, optional={"label": texts}),
    ),
    "dict": (dict[str, list[int]], st.dictionaries(texts, st.lists(st.integers()))),
    "dict by uuid": (dict[UUID, Address], st.dictionaries(st.uuids(), addresses)),
    "dict by int": (dict[int, Path], st.dictionaries(st.integers(-(2**63), 2**64 - 1), paths)),
    "dict by path": (dict[Path, int], st.dictionaries(paths, st.integers())),
    "dict by enum": (dict[Colour, str], st.dictionaries(st.sampled_from(Colour), texts)),
    "dict by float": (dict[float, int], st.dictionaries(finite, st.integers())),
    "optional": (Decimal | None, st.none() | st.decimals(allow_nan=False)),
    "union": (
        int | str | list[float] | None,
        st.none() | st.integers() | texts | st.lists(finite),
    ),
    "bool or number": (bool | int | float, st.booleans() | st.integers() | finite),
    "number or decimal": (
        float | Decimal,
        finite | st.decimals(allow_nan=False, allow_infinity=False),
    ),
    "dataclass": (Address, addresses),
    "attrs": (Parcel, st.builds(Parcel, finite, addresses, st.sets(texts))),
    "pydantic": (Customer, customers),
    "pydantic in a list": (list[Customer | None], st.lists(st.none() | customers)),
    "pydantic by uuid": (dict[UUID, Customer], st.dictionaries(st.uuids(), customers, max_size=3)),
    "strict pydantic": (Aliased, st.builds(Aliased, firstName=texts, born=st.dates())),
}


@pytest.mark.parametrize("name", ANY_VALUE)
@given(data=st.data())
def test_any_value_comes_back_the_same(name: str, data: st.DataObject) -> None:
    annotation, values = ANY_VALUE[name]
    value = data.draw(values)
    assert_same(there_and_back(annotation, value), value)
    codec = codec_for(annotation)
    assert_same(codec.decode_result(codec.encode_result(value)), value)


def assert_same(back: Any, value: Any) -> None:
    # As they read, too: 1, 1.0 and True are equal, and so are dicts in another order.
    assert type(back) is type(value)
    assert back == value
    if not isinstance(value, set | frozenset | Parcel):
        assert repr(back) == repr(value) or "TzInfo" in repr(back)


def as_written(moment: datetime) -> tuple[datetime, timedelta | None]:
    return moment.replace(tzinfo=None, fold=0), moment.utcoffset()


@given(moments)
def test_any_datetime_comes_back_with_its_offset(moment: datetime) -> None:
    assert as_written(there_and_back(datetime, moment)) == as_written(moment)
    assert as_written(there_and_back(list[datetime], [moment])[0]) == as_written(moment)


@given(decimals)
def test_any_decimal_comes_back_digit_by_digit(number: Decimal) -> None:
    assert str(there_and_back(Decimal, number)) == str(number)


@given(orders)
def test_any_dataclass_that_holds_itself_comes_back(order: Order) -> None:
    assert_same_order(there_and_back(Order, order), order)


def assert_same_order(back: Order, order: Order) -> None:
    assert (back.id, back.tags, back.address) == (order.id, order.tags, order.address)
    assert str(back.price) == str(order.price)
    assert as_written(back.placed) == as_written(order.placed)
    for child, original in zip(back.children, order.children, strict=True):
        assert_same_order(child, original)


@given(st.builds(Reading, st.integers(), moments, st.sets(texts)))
def test_any_struct_comes_back(reading: Reading) -> None:
    back = there_and_back(Reading, reading)
    assert (back.sensor_id, back.seen) == (reading.sensor_id, reading.seen)
    assert as_written(back.taken_at) == as_written(reading.taken_at)


# ------------------------------------------------------------------------------ further annotations

Item = TypeVar("Item")
UserId = NewType("UserId", int)


class Box(msgspec.Struct, Generic[Item]):
    item: Item


class Envelope(pydantic.BaseModel, Generic[Item]):
    item: Item


class Names(pydantic.RootModel[list[str]]):
    pass


@attrs.frozen
class Hash:
    digits: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (UserId, UserId(4)),
        (Annotated[int, msgspec.Meta(gt=3)], 4),
        (Box[UUID], Box(UUID(int=1))),
        (Envelope[UUID], Envelope[UUID](item=UUID(int=1))),
        (list[Names], [Names(["a"])]),
        (Hash, Hash(frozenset({3, 1}))),
        (Mapping[str, Sequence[int]], {"a": [1]}),
        (AbstractSet[str], {"a"}),
        (Path | None, Path("a")),
        (Customer | None, None),
        (tuple[()], ()),
    ],
)
def test_other_annotations(annotation: Any, value: Any) -> None:
    assert there_and_back(annotation, value) == value


def test_a_constraint_of_the_annotation_is_kept_at_enqueue() -> None:
    with pytest.raises(EncodeError, match=r"task\(value=\.\.\.\): expected `int` >= 4"):
        codec_for(Annotated[int, msgspec.Meta(gt=3)]).encode((3,), {})


def test_a_class_without_equality_is_compared_by_its_fields() -> None:
    back = there_and_back(list[Incomparable], [Incomparable("a", 1)])
    assert [(one.name, one.size) for one in back] == [("a", 1)]


def test_fields_of_a_newer_producer_are_ignored() -> None:
    read = codec_for(Address).decode(b'{"args":[{"street":"x","zip":null,"planet":"Mars"}]}')
    assert read == ((Address("x"),), {})


def test_a_field_that_an_older_producer_left_out_has_its_default() -> None:
    assert codec_for(Address).decode(b'{"args":[{"street":"x"}]}') == ((Address("x"),), {})


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    assert codec_for(dict[str, int]).decode(b'{"args":[{"a":1,"a":2}]}') == (({"a": 2},), {})

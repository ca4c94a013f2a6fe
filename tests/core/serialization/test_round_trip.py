"""The rule for supported values: the worker passes what a plain call passes."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pytest

from tests.core.serialization.shapes import (
    Address,
    Colour,
    Incomparable,
    Level,
    Loose,
    Options,
    Order,
    Point,
    Reading,
    Tone,
    codec_for,
    there_and_back,
)
from windlass.errors import AnnotationError, EncodeError

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
NAIVE = MOMENT.replace(tzinfo=None)
PARIS = ZoneInfo("Europe/Paris")
ID = UUID(int=7)
NAN = float("nan")


class Stamp(datetime):
    """A datetime of another library."""


class Title(str):
    __slots__ = ()


@dataclass
class Villa(Address):
    pool: bool = True


@dataclass
class Measured:
    ratio: float | None


@attrs.define
class Private:
    shown: int
    _hidden: int = 0


class Lossy(pydantic.BaseModel):
    kept: int
    dropped: int = pydantic.Field(default=0, exclude=True)


class Gauge(pydantic.BaseModel):
    level: float | None = None


class Nested(TypedDict):
    at: datetime


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        # text and what has a text form
        (str, MOMENT, "expected str, found datetime"),
        (str, b"x", "expected str, found bytes"),
        (str, ID, "expected str, found UUID"),
        (str, Path("x"), "expected str, found PosixPath"),
        (str, Colour.RED, "expected str, found Colour"),
        (str, Decimal(1), "expected str, found Decimal"),
        (list[str], ["a", ID], r"expected str, found UUID at \$\[1\]"),
        (dict[str, str], {"a": ID}, r"expected str, found UUID at \$\['a'\]"),
        (dict[str, int], {ID: 1}, r"expected str, found UUID at \$\[UUID"),
        (UUID, str(ID), "expected UUID, found str"),
        (datetime, "2024-01-01T00:00:00Z", "expected datetime, found str"),
        (Path, "x", "expected PosixPath, found str"),
        (bytes, "eA==", "expected bytes, found str"),
        (Decimal, "1.5", "expected Decimal, found str"),
        (Colour, "red", "expected Colour, found str"),
        (Path, 7, "expected Path, found int"),
        # numbers
        (int, True, "expected int, found bool"),
        (bool, 1, "expected bool, found int"),
        (float, True, "expected float, found bool"),
        (int, 1.5, "expected int, found float"),
        (float, Decimal("0.5"), "expected float, found str"),
        (Decimal, 0.5, "expected Decimal, found float"),
        (list[Decimal], [Decimal(1), 0.5], r"expected Decimal, found float at \$\[1\]"),
        (int | Decimal, 0.5, "expected Decimal, found float"),
        (float, 2**60 + 1, "expected float, found an int that no float holds exactly"),
        pytest.param(int, 10**5000, "cannot be stored as JSON", id="5001 digits"),
        # numbers that JSON turns into null
        (float, NAN, "found nan, which JSON cannot hold"),
        (float | None, NAN, "found nan, which JSON cannot hold"),
        (list[float | None], [None, float("inf")], r"found inf, .* at \$\[1\]"),
        (Measured, Measured(-float("inf")), r"found -inf, .* at \$\.ratio"),
        (Any, [NAN], r"found nan, .* at \$\[0\]"),
        (Gauge, Gauge(level=NAN), "this Gauge would come back changed"),
        # times
        (datetime, NAIVE, "a naive datetime: give it a time zone"),
        (list[datetime | None], [None, NAIVE], r"a naive datetime.* at \$\[1\]"),
        (set[datetime], {MOMENT, NAIVE}, "a naive datetime"),
        (dict[datetime, int], {NAIVE: 1}, "a naive datetime"),
        (Nested, {"at": NAIVE}, r"a naive datetime.* at \$\['at'\]"),
        (Reading, Reading(1, NAIVE), r"a naive datetime.* at \$\.taken_at"),
        (Order, Order(ID, Decimal(1), NAIVE), r"a naive datetime.* at \$\.placed"),
        (datetime, datetime(1900, 1, 1, tzinfo=PARIS), "a UTC offset with seconds"),
        (time, time(1, tzinfo=PARIS), "a time cannot keep this time zone"),
        (date, MOMENT, "invalid RFC3339 encoded date"),
        # containers
        (list[int], {1, 2}, "expected list, found set"),
        (set[int], [1, 2], "expected set, found list"),
        (list[int], deque([1]), "found deque, which cannot be stored as JSON"),
        (tuple[int, int], (1, 2, 3), "expected `array` of length 2"),
        (Options, {"depth": 1, "more": 2}, "the key 'more' would be lost"),
        (Options, {"label": "x"}, "object missing required field `depth`"),
        # classes
        (Address, Villa("x"), "expected Address, found Villa"),
        (Address, {"street": "x", "zip": None}, "expected Address, found dict"),
        (Address, Address(street=7), r"expected str, found int at \$\.street"),  # type: ignore[arg-type]  # the mistake
        (Incomparable, Incomparable(Tone.SOFT, ID), "expected int"),  # type: ignore[arg-type]  # the mistake
        (Lossy, Lossy(kept=1, dropped=2), "this Lossy would come back changed"),
        (Private, Private(1, 2), "would come back changed"),
        # text that is no text
        (str, "\ud800", "cannot be stored as JSON .*surrogates"),
        (list[str], ["a", "\ud800"], r"cannot be stored as JSON .* at \$\[1\]"),
    ],
)
def test_refuses_what_would_come_back_changed(annotation: Any, value: Any, message: str) -> None:
    for encode in both_ways(annotation):
        with pytest.raises(EncodeError, match=message):
            encode(value)


def both_ways(annotation: Any) -> list[Callable[[Any], bytes]]:
    codec = codec_for(annotation)
    if annotation is Any:
        return [lambda value: codec.encode((value,), {})]
    return [lambda value: codec.encode((value,), {}), codec.encode_result]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (MOMENT, "found datetime, which would come back as str"),
        (b"x", "found bytes, which would come back as str"),
        (ID, "found UUID, which would come back as str"),
        ((1, 2), "found tuple, which would come back as list"),
        ({1, 2}, "found set, which would come back as list"),
        (Point(1, 2.0), "found Point, which would come back as list"),
        (Address("x"), "found Address, which would come back as dict"),
        (Tone.SOFT, "found Tone, which would come back as str"),
        (Level.LOW, "found Level, which would come back as int"),
        (OrderedDict(a=1), "found OrderedDict, which would come back as dict"),
        ({"a": [1, {"b": (1,)}]}, r"found tuple, .* as list at \$\['a'\]\[1\]\['b'\]"),
        ({1: "a"}, r"found int, which would come back as str at \$\[1\]"),
        ({1: "a", "1": "b"}, "the key 1 would be lost"),
        ({Tone.SOFT: 1}, "found Tone, which would come back as str"),
        ([1, Tone.SOFT], r"found Tone, which would come back as str at \$\[1\]"),
    ],
)
@pytest.mark.parametrize(
    ("annotation", "place"),
    [(Any, ""), (object, ""), (list, r"\[0\]"), (dict[str, Any], r"\['k'\]"), (Loose, r"\.extra")],
)
def test_without_a_type_only_json_types_are_taken(
    value: Any, message: str, annotation: Any, place: str
) -> None:
    wholes = {Any: value, object: value, list: [value], Loose: Loose("x", value)}
    whole = wholes.get(annotation, {"k": value})
    with pytest.raises(EncodeError, match=message.replace(r"\$", rf"\${place}")) as caught:
        codec_for(annotation).encode((whole,), {})
    assert "; annotate the parameter with its type" in str(caught.value)


def test_a_result_is_returned_and_not_passed() -> None:
    with pytest.raises(EncodeError, match=r"; return plain data, or an id$"):
        codec_for(Any).encode_result(object())


def test_a_type_that_is_not_carried_names_its_place() -> None:
    with pytest.raises(EncodeError) as caught:
        codec_for(dict[str, list[Any]]).encode(({"a": [1, object()]},), {})
    assert str(caught.value) == (
        "task(value=...): found object, which cannot be stored as JSON at $['a'][1]; "
        "pass plain data, or an id"
    )


@pytest.mark.parametrize(
    "annotation",
    [
        str | datetime,
        UUID | str,
        bytes | str,
        Path | str,
        date | datetime,
        list[int] | tuple[int, ...],
        Address | Loose,
        int | Level,
        list[str | UUID],
        dict[str, Path | int],
    ],
)
def test_a_union_that_json_cannot_tell_apart_is_refused(annotation: Any) -> None:
    with pytest.raises(
        AnnotationError, match=r"task\(value=\.\.\.\): values of .* cannot be rebuilt"
    ):
        codec_for(annotation).resolve()
    with pytest.raises(EncodeError, match="Annotate with one type with a distinct JSON form"):
        codec_for(annotation).encode(("2020-01-01",), {})


@pytest.mark.parametrize("annotation", [deque[int], complex, Callable[..., None], object.__class__])
def test_a_class_that_json_cannot_carry_is_refused(annotation: Any) -> None:
    with pytest.raises(AnnotationError, match="cannot be rebuilt from JSON"):
        codec_for(annotation).resolve()


# --------------------------------------------------------------------------------- what is let pass


class Number(enum.IntEnum):
    ONE = 1


class Ratio(float): ...


class Count(int): ...


class Blob(bytes): ...


class Money(Decimal): ...


class Day(date): ...


class Span(timedelta): ...


@pytest.mark.parametrize(
    ("annotation", "value", "back"),
    [
        (float, 1, 1.0),
        (list[float | Decimal], [1, Decimal("1.0")], [1.0, Decimal("1.0")]),
        (Loose, Loose("x", 1), Loose("x", 1)),
        (str, Tone.SOFT, "soft"),
        (str, Title("a"), "a"),
        (int, Number.ONE, 1),
        (Level, 1, Level.LOW),
        (list[Level | Decimal], [1, Decimal(1)], [Level.LOW, Decimal(1)]),
        (Tone, "soft", Tone.SOFT),
        (float, Ratio(0.5), 0.5),
        (int, Count(3), 3),
        (bytes, Blob(b"x"), b"x"),
        (Decimal, Money("1.50"), Decimal("1.50")),
        (date, Day(2024, 1, 1), date(2024, 1, 1)),
        (timedelta, Span(1, 2, 3), timedelta(1, 2, 3)),
        (list[str], ["a", Title("b")], ["a", "b"]),
        (dict[str, int], OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (dict[str, int], Counter("ab"), {"a": 1, "b": 1}),
        (dict[str, Decimal], OrderedDict(a=Decimal(1)), {"a": Decimal(1)}),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (list[datetime], (MOMENT,), [MOMENT]),
        (list[int], Point(1, 2), [1, 2]),
        (Point, (1, 2.5), Point(1, 2.5)),
        (set[int], frozenset({1}), {1}),
        (frozenset[Decimal], {Decimal(1)}, frozenset({Decimal(1)})),
        # these share a place in the set's table, so that its order is that of their arrival
        (set[Decimal], set(map(Decimal, (16, 8, 0))), set(map(Decimal, (0, 8, 16)))),
        (datetime, Stamp(2024, 1, 1, tzinfo=UTC), MOMENT),
    ],
)
def test_lets_pass_what_the_annotation_makes_of_it(annotation: Any, value: Any, back: Any) -> None:
    rebuilt = there_and_back(annotation, value)
    assert rebuilt == back
    assert type(rebuilt) is type(back)


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("annotation", [datetime, set[datetime]])
def test_an_hour_that_is_there_twice_comes_back(annotation: Any, fold: int) -> None:
    moment = datetime(2023, 10, 29, 2, 30, tzinfo=PARIS, fold=fold)
    value = moment if annotation is datetime else {moment, MOMENT, moment.replace(minute=45)}
    back = there_and_back(annotation, value)
    first = back if annotation is datetime else min(back)
    assert first.utcoffset() == timedelta(hours=2 - fold)
    assert first.astimezone(UTC) == moment.astimezone(UTC)


def test_a_zone_comes_back_as_its_offset() -> None:
    back = there_and_back(datetime, datetime(2024, 7, 1, tzinfo=PARIS))
    assert back.tzinfo == timezone(timedelta(hours=2))

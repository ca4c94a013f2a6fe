"""Classes of every kind that the codec supports, and one stored example of each type."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic

from windlass.core.serialization.codec import CallCodec


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Tone(enum.StrEnum):
    SOFT = "soft"


class Point(NamedTuple):
    x: int
    y: float


class Options(TypedDict, total=False):
    depth: typing.Required[int]
    label: str


@dataclass
class Address:
    street: str
    zip: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    id: UUID
    price: Decimal
    placed: datetime
    tags: frozenset[str] = frozenset()
    address: Address | None = None
    children: list[Order] = field(default_factory=list)


@dataclass(eq=False)
class Incomparable:
    name: str
    size: int


@dataclass
class Loose:
    name: str
    extra: Any = None


class Reading(msgspec.Struct, frozen=True, rename="camel"):
    sensor_id: int
    taken_at: datetime
    seen: set[str] = set()


@attrs.define
class Parcel:
    weight: float
    to: Address
    marks: set[str] = attrs.field(factory=set)


class Customer(pydantic.BaseModel):
    id: UUID
    joined: datetime
    balance: Decimal = Decimal(0)
    address: Address | None = None


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    first_name: str = pydantic.Field(alias="firstName")
    born: date

    @pydantic.computed_field
    def initial(self) -> str:
        return self.first_name[:1]


def codec_for(annotation: Any) -> CallCodec:
    """The codec of a function with one parameter, and a result, of this annotation."""

    def task(value: Any) -> Any: ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    return CallCodec.of(task, skip_first=False, name="task")


def there_and_back(annotation: Any, value: Any) -> Any:
    """The value that the worker gets when this value is passed."""
    codec = codec_for(annotation)
    args, kwargs = codec.decode(codec.encode((value,), {}))
    assert not kwargs
    return args[0]


class Example(NamedTuple):
    annotation: Any
    value: Any


_ID = UUID("12345678-1234-5678-1234-567812345678")
_MOMENT = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)

#: Each has a file in golden/, which must stay readable forever.
EXAMPLES: dict[str, Example] = {
    "none": Example(None, None),
    "bool": Example(bool, True),
    "int": Example(int, -42),
    "int-beyond-64-bits": Example(int, 2**100 + 1),
    "float": Example(float, 1.5e-7),
    "str": Example(str, 'naïve "quotes" \\ \n 木 \U0001f40d'),
    "any": Example(Any, {"b": [1, 2.5, None, True, "x"], "a": {}}),
    "bytes": Example(bytes, bytes(range(8))),
    "datetime": Example(datetime, _MOMENT),
    "datetime-offset": Example(
        datetime, datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    ),
    "date": Example(date, date(2024, 2, 29)),
    "time": Example(time, time(1, 2, 3, 4)),
    "timedelta": Example(timedelta, timedelta(days=-1, microseconds=5)),
    "uuid": Example(UUID, _ID),
    "decimal": Example(Decimal, Decimal("10.50")),
    "enum": Example(Colour, Colour.BLUE),
    "int-enum": Example(Level, Level.HIGH),
    "path": Example(Path, Path("photos/cat.jpg")),
    "pure-path": Example(PurePosixPath, PurePosixPath("/etc/hosts")),
    "list": Example(list[int], [3, 1, 2]),
    "set": Example(set[str], {"pear", "apple", "fig"}),
    "set-of-enum": Example(set[Colour], {Colour.RED, Colour.BLUE}),
    "frozenset": Example(frozenset[int], frozenset({10, 9, 8})),
    "tuple": Example(tuple[int, str, Path], (1, "a", Path("b"))),
    "tuple-of-any-length": Example(tuple[Decimal, ...], (Decimal("0.1"), Decimal("0.20"))),
    "named-tuple": Example(Point, Point(1, 2.5)),
    "typed-dict": Example(Options, {"depth": 3, "label": "x"}),
    "literal": Example(Literal["up", "down", 3], "down"),
    "optional": Example(UUID | None, None),
    "union": Example(int | str | list[float], [0.5]),
    "dict-by-uuid": Example(dict[UUID, Customer], {_ID: Customer(id=_ID, joined=_MOMENT)}),
    "dict-by-int": Example(dict[int, set[str]], {2: {"b", "a"}, 1: set()}),
    "dict-by-date": Example(dict[date, Decimal], {date(2024, 1, 1): Decimal("1.0")}),
    "dataclass": Example(
        Order,
        Order(_ID, Decimal("9.90"), _MOMENT, frozenset({"new", "gift"}), Address("Main St", "1")),
    ),
    "struct": Example(Reading, Reading(7, _MOMENT, {"b", "a"})),
    "attrs": Example(Parcel, Parcel(1.5, Address("Main St"), {"y", "x"})),
    "pydantic": Example(list[Customer], [Customer(id=_ID, joined=_MOMENT)]),
    "pydantic-aliased": Example(Aliased, Aliased(firstName="Ada", born=date(1815, 12, 10))),
}


def named(function: Callable[..., object], *, skip_first: bool = False) -> CallCodec:
    """The codec of a function under its bare name."""
    return CallCodec.of(function, skip_first, name=function.__name__)

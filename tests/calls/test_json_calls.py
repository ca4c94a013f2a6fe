"""Calls from JSON, and stored calls and results as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.hand import Hand
from windlass import InvalidCall, Windlass
from windlass.calls.json_calls import (
    MOST_TESTED,
    Arguments,
    call_as_json,
    read_call,
    read_plain_call,
    result_as_json,
    unread_fields,
)
from windlass.core.serialization import signature
from windlass.core.serialization.problems import ArgumentProblem
from windlass.engine.contract import JobRecord, Succeeded
from windlass.task import Task


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(0)


class Order(msgspec.Struct, rename="camel", omit_defaults=True):
    item_list: list[Item]
    placed: datetime | None = None
    weight: float = 0.0


class Colour(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    id: UUID
    share: float = pydantic.Field(default=1.0, alias="ratio")


@dataclass
class Fussy:
    code: str

    def __post_init__(self) -> None:
        raise LookupError(f"no such code: {len(self.code)}")


@dataclass
class Crowd:
    """A set is stored in another order than it was sent."""

    members: set[str] = field(default_factory=set)
    items: list[Item] = field(default_factory=list)


@pytest.fixture
def app() -> Iterator[Windlass]:
    with Windlass("sqlite:///:memory:") as app:
        app.task(name="place")(place)
        app.task(name="numbers")(numbers)
        app.task(name="anything")(anything)
        yield app


def place(
    order: Order, count: int = 1, /, *more: int, day: date | None = None, **others: Item
) -> None: ...


def numbers(a: int = 0, b: float = 0.0, c: Decimal = Decimal(0), d: Any = None) -> None: ...


def anything(*args: Any, **kwargs: Any) -> Any: ...


def raw(text: str | bytes) -> msgspec.Raw:
    return msgspec.json.decode(text, type=msgspec.Raw)


def read(task: Task[..., Any], *args: str | bytes, **kwargs: str | bytes) -> Arguments:
    named = {name: raw(value) for name, value in kwargs.items()}
    return read_call(task, [raw(one) for one in args], named)


def problems_of(
    task: Task[..., Any], *args: str | bytes, **kwargs: str | bytes
) -> tuple[ArgumentProblem, ...]:
    with pytest.raises(InvalidCall) as refused:
        read(task, *args, **kwargs)
    assert refused.value.task == task.name
    return refused.value.problems


# ---------------------------------------------------------------------------------------- by type


def test_arguments_are_rebuilt_by_their_annotations(app: Windlass) -> None:
    task = app.tasks["place"]
    order = '{"itemList": [{"name": "pen", "price": "1.50"}], "placed": "2030-01-31T08:00:00Z"}'
    positional, named = read(task, order, "2", "3", day='"2030-01-31"', gift='{"name": "bow"}')
    placed = datetime(2030, 1, 31, 8, tzinfo=UTC)
    assert positional == (Order([Item("pen", Decimal("1.50"))], placed), 2, 3)
    assert named == {"day": date(2030, 1, 31), "gift": Item("bow")}
    assert task.enqueue(*positional, **named).created


def test_every_argument_that_does_not_fit_is_reported(app: Windlass) -> None:
    task = app.tasks["place"]
    order = '{"itemList": [{"name": "pen"}, {"price": "1"}]}'
    found = problems_of(task, order, '"2"', "3", "4.5", day='"soon"', gift='{"name": 7}')
    assert [(one.parameter, one.path, one.expected, one.found) for one in found] == [
        ("order", "$.itemList[1]", "the field name", "none"),
        ("count", "$", "int", "str"),
        ("*more[1]", "$", "int", "float"),
        ("day", "$", "", ""),
        ("gift", "$.name", "str", "int"),
    ]
    assert found[1].message == "place(count=...): expected int, found str"
    assert found[4].message == "place(**others['gift']=...): expected str, found int at $.name"


@pytest.mark.parametrize(
    ("args", "kwargs", "parameters", "text"),
    [
        ((), {}, ["order"], "place(): missing a required argument: 'order'"),
        ((), {"order": "{}"}, ["order"], "place(): missing a required argument: 'order'"),
        ((), {"order": "{}", "day": "null"}, ["order"], "'order'"),
    ],
)
def test_a_call_that_misses_an_argument(
    app: Windlass, args: tuple[str, ...], kwargs: dict[str, str], parameters: list[str], text: str
) -> None:
    found = problems_of(app.tasks["place"], *args, **kwargs)
    assert [one.parameter for one in found] == parameters
    assert text in found[0].message


def test_a_call_with_the_wrong_names(app: Windlass) -> None:
    def pay(cents: int, to: str, *, note: str) -> None: ...

    task = app.task(name="pay")(pay)
    found = problems_of(task, "1", cents="2", tto="3", queue="4")
    assert [one.parameter for one in found] == ["tto", "queue", "cents"]
    assert "write task.using(queue=...)" in found[1].message
    assert found[2].message == "pay(): multiple values for argument 'cents'"
    found = problems_of(task, "1", '"a"', "3", "4")
    assert [one.parameter for one in found] == ["", "note"]
    assert found[0].message == "pay(): too many positional arguments"
    assert [one.parameter for one in problems_of(task)] == ["cents", "to", "note"]


def test_few_unknown_names_are_compared(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def note(name: str, *others: object) -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr(signature, "unexpected_keyword", note)
    many = {f"unknown{number}": "1" for number in range(1_000)}
    assert len(problems_of(app.tasks["numbers"], **many)) == 20
    assert len(compared) == 20


def test_the_message_has_all_problems(app: Windlass) -> None:
    with pytest.raises(InvalidCall) as refused:
        read(app.tasks["numbers"], '"a"', '"b"')
    assert str(refused.value) == (
        "numbers(a=...): expected int, found str; numbers(b=...): expected float, found str"
    )
    assert isinstance(refused.value, TypeError)


def test_an_error_of_a_class_is_a_problem_of_its_argument(app: Windlass) -> None:
    def check(fussy: Fussy) -> None: ...

    (found,) = problems_of(app.task(name="check")(check), '{"code": "x"}')
    assert found.message == "check(fussy=...): LookupError: no such code: 1"
    assert found.parameter == "fussy"


def test_a_class_that_cannot_be_stored_again(app: Windlass) -> None:
    class OneWay(pydantic.BaseModel):
        share: float = pydantic.Field(validation_alias="ratio")

    def check(model: Any) -> None: ...

    check.__annotations__["model"] = OneWay
    (found,) = problems_of(app.task(name="check")(check), '{"ratio": 0.5}')
    assert "validation error for OneWay" in found.message
    assert found.parameter == "model"


def test_a_message_is_cut(app: Windlass) -> None:
    """msgspec repeats the value for which an enum has no member."""

    def paint(colour: Colour) -> None: ...

    with pytest.raises(InvalidCall) as refused:
        read(app.task(name="paint")(paint), msgspec.json.encode("x" * 100_000))
    assert len(refused.value.problems[0].message) < 600
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
def test_the_codec_of_the_app_has_the_last_word(codec: Any) -> None:
    secret: dict[str, Any] = {"secret": "s" * 32} if codec == "pickle" else {}
    with Windlass("sqlite:///:memory:", codec=codec, **secret) as app:
        task = app.task(name="numbers")(numbers)
        assert read(task, str(2**63)) == ((2**63,), {})
        if codec == "msgpack":  # it holds no larger number
            (found,) = problems_of(task, str(2**64))
            assert found.parameter == "a"
        else:
            assert read(task, str(2**64)) == ((2**64,), {})


# ------------------------------------------------------------------------------- as it was sent


@pytest.mark.parametrize(
    "text",
    [
        *(str(number) for number in (2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400)),
        *("0.1", "1e22", "1E2", "-0.0", "0.30000000000000004", "5e-324", "1.7976931348623157e308"),
        "[[1, [2.5, {}]], null, true]",
        '"' + "x" * 2**20 + '"',
        '"\\u0000 \\ud83d\\ude00"',
        "[" * 64 + "]" * 64,
    ],
    ids=lambda text: text[:20],
)
def test_json_arrives_as_it_was_sent(app: Windlass, text: str) -> None:
    (value,), _ = read(app.tasks["anything"], text)
    assert value == msgspec.json.decode(text)
    stored = app.tasks["anything"].bind(value).encoded
    (again,), _ = app.tasks["anything"].codec.decode(stored)
    assert again == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1.00000000000000000001", "1.00000000000000000001"),
        ("1e-400", "1e-400"),
        ("1.2345e-320", "1.2345e-320"),
        ('{"deep": [1, 0.1234567890123456789]}', "0.1234567890123456789"),
        ("9" * 20 + ".5", "9" * 20 + ".5"),
    ],
)
def test_a_number_that_would_be_rounded_is_refused(app: Windlass, text: str, found: str) -> None:
    (problem,) = problems_of(app.tasks["anything"], text)
    assert (problem.expected, problem.found) == ("a number that can be stored exactly", found)
    assert "send it as text" in problem.message


@pytest.mark.parametrize(
    "text", ["1e400", "9" * 5_000, "[" * 65 + "]" * 65, '"\xff"', '{"a": "\xff"}']
)
def test_what_cannot_be_stored_is_refused(app: Windlass, text: str) -> None:
    encoded = text.encode("latin-1")
    (problem,) = problems_of(app.tasks["anything"], encoded)
    assert problem.parameter == "*args[0]"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "[1,]", "nul", "", '"\\ud800"', "1 2", "01"])
def test_what_is_no_json_never_becomes_an_argument(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        raw(text)


def test_a_float_takes_an_int_that_it_holds(app: Windlass) -> None:
    task = app.tasks["numbers"]
    for number in (7, 2**53, 2**63, 10**22):
        _, named = read(task, b=str(number))
        assert named == {"b": float(number)}
        assert int(named["b"]) == number
    for number in (2**53 + 1, 10**23 + 1):
        (problem,) = problems_of(task, b=str(number))
        assert (problem.parameter, problem.found) == ("b", str(number))


@pytest.mark.parametrize(
    "text", ["1e400", "1.00000000000000000001", '"1E+400"', "9" * 5_000, "2.50"]
)
def test_a_decimal_takes_every_number(app: Windlass, text: str) -> None:
    _, named = read(app.tasks["numbers"], c=text)
    assert named == {"c": Decimal(text.strip('"'))}
    assert str(named["c"]) == str(Decimal(text.strip('"')))


def test_numbers_inside_of_classes(app: Windlass) -> None:
    def check(
        order: Order | None = None, model: Model | None = None, crowd: Crowd | None = None
    ) -> None: ...

    task = app.task(name="check")(check)
    item = '{"name": "pen", "price": 0.12345678901234567890}'
    _, named = read(task, order=f'{{"itemList": [{item}], "weight": 9007199254740992}}')
    assert named["order"].item_list[0].price == Decimal("0.12345678901234567890")
    (problem,) = problems_of(task, order='{"itemList": [], "weight": 9007199254740993}')
    assert problem.found == "9007199254740993"
    model = '{{"id": "00000000-0000-0000-0000-000000000000", "ratio": {}}}'
    _, named = read(task, model=model.format("0.5"))
    assert named["model"].share == 0.5
    (problem,) = problems_of(task, model=model.format("9007199254740993"))
    assert problem.parameter == "model"
    (problem,) = problems_of(task, model=model.format('"NaN"'))
    assert problem.parameter == "model"


_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(
    args=st.lists(_JSON, max_size=3),
    kwargs=st.dictionaries(st.text("xyz", min_size=1), _JSON, max_size=3),
)
def test_any_json_is_read_as_it_is(args: list[Any], kwargs: dict[str, Any]) -> None:
    encoded = [msgspec.Raw(msgspec.json.encode(one)) for one in args]
    named = {name: msgspec.Raw(msgspec.json.encode(one)) for name, one in kwargs.items()}
    assert read_plain_call("any", encoded, named) == (tuple(args), kwargs)


@given(
    text=st.from_regex(
        r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,3})?", fullmatch=True
    )
)
def test_any_number_is_read_exactly_or_refused(text: str) -> None:
    try:
        (value,), _ = read_plain_call("any", [raw(text)], {})
    except InvalidCall:
        return
    exact = Decimal(text)
    assert exact in (Decimal(repr(value)), Decimal(value))


# ------------------------------------------------------------------------------------ unread fields


def test_a_field_that_no_class_reads_is_refused(app: Windlass) -> None:
    task = app.tasks["place"]
    order = '{"itemList": [{"name": "pen", "prize": 1}], "wieght": {"all": 1}}'
    found = problems_of(task, order, gift='{"name": "bow", "colour": "red"}')
    assert [(one.parameter, one.found) for one in found] == [
        ("order", "the field prize"),
        ("order", "the field wieght"),
        ("gift", "the field colour"),
    ]
    args, kwargs = [raw(order)], {"gift": raw('{"name": "bow", "colour": "red"}')}
    assert unread_fields(task, args, kwargs) == ["prize", "wieght", "colour"]
    positional, _ = read_call(task, args, kwargs, allow_unread=True)
    assert positional == (Order([Item("pen")]),)


def test_a_field_that_is_read_is_never_reported(app: Windlass) -> None:
    def check(crowd: Crowd, model: Model, free: dict[str, Any]) -> None: ...

    task = app.task(name="check")(check)
    crowd = '{"members": ["z", "a", "m"], "items": [{"name": "pen", "price": 2}]}'
    model = '{"id": "AAAAAAAA-0000-0000-0000-000000000000", "ratio": 1.0}'
    read(task, crowd, model, '{"any": {"field": null}}')
    (found,) = problems_of(task, crowd, model.replace("ratio", "share"), "{}")
    assert found.found == "the field share"


@dataclass
class Counted:
    number: int
    made = 0

    def __post_init__(self) -> None:
        Counted.made += 1


def test_the_search_is_cheap_for_fields_that_are_stored_as_sent(app: Windlass) -> None:
    """Each test of a field rebuilds the whole argument."""

    def count(items: list[Counted], label: Item) -> None: ...

    task = app.task(name="count")(count)
    items = msgspec.json.encode([{"number": number} for number in range(100)])
    read(task, items, '{"name": "a"}')
    assert Counted.made < 1_000
    wrong = items.replace(b'{"number":7}', b'{"number":7,"numbr":8}')
    (found,) = problems_of(task, wrong, '{"name": "a"}')
    assert found.found == "the field numbr"
    assert Counted.made < 2_000


def test_a_large_call_is_not_tested(app: Windlass) -> None:
    name = "x" * MOST_TESTED
    order = f'{{"itemList": [{{"name": "{name}", "prize": 1}}]}}'
    positional, _ = read(app.tasks["place"], order)
    assert positional == (Order([Item(name)]),)


# ---------------------------------------------------------------------------------- stored values


def record_of(app: Windlass, job_id: str) -> JobRecord:
    (record,) = app.engine.get([job_id])
    assert record is not None
    return record


def open_app(path: Path, **settings: Any) -> Windlass:
    return Windlass(f"sqlite:///{path}/jobs.db?durability=normal", **settings)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("encrypt", [False, True])
def test_a_stored_call_is_shown_as_json(tmp_path: Path, codec: Any, encrypt: bool) -> None:
    secret = {"secret": "s" * 32, "encrypt": True} if encrypt else {}
    with open_app(tmp_path, codec=codec, **secret) as app:
        task = app.task(name="anything")(anything)
        job = task.using(headers={"user": "ann"}).enqueue(2**63, [0.1], when="x" * 5)
        shown = call_as_json(app, record_of(app, job.id))
        assert [bytes(one) for one in shown.args] == [b"9223372036854775808", b"[0.1]"]
        assert {name: bytes(one) for name, one in shown.kwargs.items()} == {"when": b'"xxxxx"'}
        assert (shown.problem, job.info().headers) == ("", {"user": "ann"})
        hand = Hand(app)
        claim = hand.take()
        assert call_as_json(app, claim) == shown
        result = app.packing.pack_result(
            codec, task.codec.encode_result([2**60, None]), "anything", job.id, claim.payload
        )
        app.engine.finish(
            [Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=60_000)]
        )
        seen = result_as_json(app, record_of(app, job.id))
        assert seen.result is not None
        assert (bytes(seen.result), seen.problem) == (b"[1152921504606846976,null]", "")
    if encrypt:
        with open_app(tmp_path) as other:
            record = record_of(other, job.id)
            hidden, result_hidden = call_as_json(other, record), result_as_json(other, record)
            assert (hidden.args, hidden.kwargs, hidden.call) == ([], {}, None)
            assert hidden.problem.startswith("encrypted with key ")
            assert result_hidden.result is None
            assert result_hidden.problem.startswith("encrypted with key ")


def test_a_call_without_arguments_and_a_job_without_a_result(app: Windlass) -> None:
    record = record_of(app, app.tasks["anything"].enqueue().id)
    shown = call_as_json(app, record)
    assert (shown.args, shown.kwargs, shown.problem) == ([], {}, "")
    assert result_as_json(app, record) == result_as_json(app, record).__class__()


def test_a_pickle_is_never_shown(tmp_path: Path) -> None:
    with open_app(tmp_path, codec="pickle", secret="s" * 32) as app:
        job = app.task(name="anything")(anything).enqueue(1)
        shown = call_as_json(app, record_of(app, job.id))
        assert shown.problem == "written by the codec pickle, which is not shown"


def test_what_json_cannot_hold_is_not_shown_as_something_else(tmp_path: Path) -> None:
    with open_app(tmp_path, codec="msgpack") as app:
        job = app.task(name="anything")(anything).enqueue(float("nan"))
        shown = call_as_json(app, record_of(app, job.id))
        assert (shown.args, shown.problem) == ([], "its arguments have no form in JSON")


@pytest.mark.parametrize("payload", [b"", b"{", b'{"args":[1}', b"[]", b"\xff\x00", b'{"args":5}'])
def test_damaged_bytes_are_told_of(app: Windlass, payload: bytes) -> None:
    record = record_of(app, app.tasks["anything"].enqueue().id)
    damaged = msgspec.structs.replace(record, payload=payload, result=b"{", has_result=True)
    shown = call_as_json(app, damaged)
    assert (shown.args, shown.kwargs) == ([], {})
    assert shown.problem
    assert result_as_json(app, damaged).problem.startswith("undecodable: ")

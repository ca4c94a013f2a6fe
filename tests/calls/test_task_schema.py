"""JSON Schemas of tasks, for documents about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pydantic
import pytest

from windlass import Context, Windlass
from windlass.calls.task_schema import task_schema

if TYPE_CHECKING:
    from nowhere import Absent  # type: ignore[import-not-found]  # the subject


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(0)
    within: Item | None = None


class Part(pydantic.BaseModel):
    share: float


class Plan(pydantic.BaseModel):
    parts: list[Part]
    next: Plan | None = None


@dataclass
class Odd:
    share: Fraction


def define(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    with Windlass("sqlite:///:memory:") as app:
        return task_schema(app.task(name="t", **options)(function))


def as_document(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema["parameters"], "$defs": schema["$defs"]}


def test_parameters_and_the_result() -> None:
    def send(
        to: str,
        /,
        item: Item,
        day: date | None = None,
        *more: int,
        loud: bool = False,
        **rest: Path,
    ) -> list[Item]:
        return [item]

    schema = define(send)
    assert list(schema) == ["parameters", "positional", "more_positional", "result", "$defs"]
    parameters = schema["parameters"]
    assert parameters["properties"] == {
        "to": {"type": "string"},
        "item": {"$ref": "#/$defs/Item"},
        "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        "loud": {"type": "boolean", "default": False},
    }
    assert parameters["required"] == ["to", "item"]
    assert parameters["additionalProperties"] == {"type": "string"}
    assert schema["positional"] == ["to", "item", "day"]
    assert schema["more_positional"] == {"type": "integer"}
    assert schema["result"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert list(schema["$defs"]) == ["Item"]
    document = as_document(schema)
    jsonschema.Draft202012Validator.check_schema(document)
    item = {"name": "a", "price": "1.5", "within": {"name": "b"}}
    jsonschema.validate({"to": "ann", "item": item}, document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"to": "ann", "item": {"name": 7}}, document)


def test_a_task_without_parameters() -> None:
    def work(ctx: Context) -> None: ...

    assert define(work, takes_context=True) == {
        "parameters": {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        },
        "positional": [],
        "more_positional": None,
        "result": {"type": "null"},
        "$defs": {},
    }


def test_models_of_pydantic() -> None:
    def run(plan: Plan, part: Part) -> None: ...

    schema = define(run)
    assert set(schema["$defs"]) == {"Part", "Plan"}
    document = as_document(schema)
    one = {"parts": [{"share": 0.5}]}
    jsonschema.validate({"plan": {**one, "next": one}, "part": {"share": 1}}, document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"plan": {"parts": [], "next": {"parts": 1}}, "part": {}}, document)


def test_two_classes_of_the_same_name() -> None:
    def make() -> type[Any]:
        class Part(msgspec.Struct):
            weight: int

        return Part

    def run(plan: Any, part: Any) -> None: ...

    run.__annotations__ = {"plan": Plan, "part": make(), "return": None}
    schema = define(run)
    properties = schema["parameters"]["properties"]
    assert properties["part"] == {"$ref": "#/$defs/Part"}
    assert list(schema["$defs"]) == ["Part"]
    assert schema["$defs"]["Part"]["properties"] == {"weight": {"type": "integer"}}
    jsonschema.validate({"plan": 7, "part": {"weight": 1}}, as_document(schema))


def _unresolved(one: Absent, two: int) -> Absent: ...


def _unsupported(one: Fraction, two: int) -> Fraction:
    return one


def _nested(one: Odd, two: int) -> dict[str, Odd]:
    return {}


def _open(one: Any, two: int) -> object: ...


def _bare(one, two: int): ...  # type: ignore[no-untyped-def]  # the subject


@pytest.mark.parametrize("function", [_unresolved, _unsupported, _nested, _open, _bare])
def test_a_type_without_a_schema_fits_any_value(function: Callable[..., Any]) -> None:
    schema = define(function)
    assert schema["parameters"]["properties"] == {"one": {}, "two": {"type": "integer"}}
    assert schema["parameters"]["required"] == ["one", "two"]
    assert (schema["result"], schema["$defs"]) == ({}, {})


def test_an_open_type_inside_of_another() -> None:
    def work(values: list[object], plain: list[Any]) -> None: ...

    values, plain = define(work)["parameters"]["properties"].values()
    for schema in (values, plain):
        jsonschema.validate([1, "a", None], schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({}, schema)


def test_a_default_that_cannot_be_written() -> None:
    def work(one: object = Fraction(1, 2), two: int = 3) -> None: ...

    assert define(work)["parameters"]["properties"] == {
        "one": {},
        "two": {"type": "integer", "default": 3},
    }


@dataclass
class Moody:
    """A class that can be rebuilt once, and not again."""

    number: int
    made = 0

    def __post_init__(self) -> None:
        Moody.made += 1
        if Moody.made > 2:
            raise LookupError


def test_a_default_whose_class_raises() -> None:
    def work(one: Moody = Moody(1), two: int = 3) -> None: ...  # noqa: B008 - the subject

    properties = define(work)["parameters"]["properties"]
    assert properties == {"one": {"$ref": "#/$defs/Moody"}, "two": {"type": "integer"}}
    assert Moody.made > 2


def test_references_are_written_as_the_document_needs_them() -> None:
    def send(item: Item, plan: Plan) -> None: ...

    with Windlass("sqlite:///:memory:") as app:
        task = app.task(name="send")(send)
        schema = task_schema(task, "#/components/schemas/send.{name}")
        text = msgspec.json.encode(schema).decode()
        assert '"$ref":"#/components/schemas/send.Item"' in text
        assert '"$ref":"#/components/schemas/send.Part"' in text
        assert "#/$defs/" not in text


def test_the_schema_of_a_remote_task() -> None:
    item = {"type": "object", "properties": {"within": {"$ref": "#/$defs/item"}}}
    given: dict[str, Any] = {
        "type": "object",
        "properties": {"item": {"$ref": "#/$defs/item"}, "$ref": {"const": {"$ref": "data"}}},
        "$defs": {"item": item},
    }
    with Windlass("sqlite:///:memory:") as app:
        task = app.task_named("send", schema=given)
        schema = task_schema(task, "#/components/schemas/{name}")
        reference = {"$ref": "#/components/schemas/item"}
        assert schema["parameters"] == {
            "type": "object",
            "properties": {"item": reference, "$ref": {"const": {"$ref": "data"}}},
        }
        assert schema["$defs"] == {"item": {"type": "object", "properties": {"within": reference}}}
        assert (schema["positional"], schema["result"]) == ([], {})
        assert as_document(task_schema(task)) == given  # and the task's own schema is unchanged

        def typed(number: int) -> str:
            raise NotImplementedError

        assert task_schema(app.task_named("typed", typed))["result"] == {"type": "string"}

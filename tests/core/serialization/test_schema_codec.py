"""Calls that a JSON Schema checks: which schemas are accepted, and which calls fit them."""

from __future__ import annotations

import builtins
import socket
from typing import Any

import pytest

from windlass.core.serialization import schema_codec
from windlass.core.serialization.problems import MOST_PROBLEMS
from windlass.core.serialization.schema_codec import CallSchema, SchemaCodec
from windlass.errors import EncodeError, InvalidCall, InvalidTask

ADDRESS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.org/order",
    "title": "an order",
    "x-owner": "shop",
    "type": "object",
    "properties": {
        "month": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"},
        "pages": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "kind": {"enum": ["short", "long"]},
        "to": {"$ref": "#/$defs/address"},
    },
    "required": ["month"],
    "additionalProperties": False,
    "$defs": {"address": ADDRESS},
}


def keywords(**arguments: Any) -> Any: ...


def codec_of(schema: object) -> SchemaCodec:
    return SchemaCodec("reports.build", keywords, CallSchema("reports.build", schema))


def refusal_of(schema: object, *args: Any, **kwargs: Any) -> InvalidCall:
    with pytest.raises(InvalidCall) as refused:
        codec_of(schema).encode(args, kwargs)
    return refused.value


# ------------------------------------------------------------------------------------------- calls


def test_a_call_that_fits_is_stored_as_any_other() -> None:
    codec = codec_of(SCHEMA)
    encoded = codec.encode((), {"month": "2030-01", "to": {"city": "Basel"}, "pages": [2**70]})
    assert encoded == (
        b'{"kwargs":{"month":"2030-01","pages":[1180591620717411303424],"to":{"city":"Basel"}}}'
    )
    assert codec.decode(encoded) == (
        (),
        {"month": "2030-01", "pages": [2**70], "to": {"city": "Basel"}},
    )


@pytest.mark.parametrize(
    ("kwargs", "parameter", "path", "expected", "found"),
    [
        ({}, "month", "$", "an argument", "none"),
        ({"month": 7}, "month", "$", "string", "7"),
        ({"month": "May"}, "month", "$", 'pattern "^[0-9]{4}-[0-9]{2}$"', "str"),
        ({"month": "2030-01", "mnth": 1}, "mnth", "$", "no such argument", "an argument"),
        ({"month": "2030-01", "pages": [1, 0]}, "pages", "$[1]", "minimum 1", "0"),
        ({"month": "2030-01", "kind": "x"}, "kind", "$", 'one of ["short","long"]', "str"),
        ({"month": "2030-01", "to": {"zip": 1}}, "to", "$", "the field city", "none"),
        ({"month": "2030-01", "to": []}, "to", "$", "object", "array"),
        (
            {"month": "2030-01", "to": {"city": "Bern", "zip": None}},
            "to",
            "$.zip",
            "integer",
            "null",
        ),
        (
            {"month": "2030-01", "to": {"city": "Bern", "zp": 1}},
            "to",
            "$",
            "no other field",
            "the field zp",
        ),
    ],
)
def test_a_call_that_does_not_fit(
    kwargs: dict[str, Any], parameter: str, path: str, expected: str, found: str
) -> None:
    refused = refusal_of(SCHEMA, **kwargs)
    (problem,) = refused.problems
    assert (problem.parameter, problem.path) == (parameter, path)
    assert (problem.expected, problem.found) == (expected, found)
    assert str(refused) == problem.message
    assert problem.message.startswith("reports.build(")
    assert refused.task == "reports.build"


def test_all_problems_are_reported_at_once() -> None:
    refused = refusal_of(SCHEMA, pages=["x"], kind="y", colour="red")
    assert [problem.parameter for problem in refused.problems] == [
        "pages",
        "kind",
        "month",
        "colour",
    ]
    assert str(refused).count("; ") == 3


def test_a_misspelt_argument_is_asked_after() -> None:
    assert "'mnth'. Did you mean month?" in str(refusal_of(SCHEMA, month="2030-01", mnth=1))


UNIQUE = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}


@pytest.mark.parametrize(
    "tags",
    [[1, 2, 1], [1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], [[0], [-0.0]], [None, None]],
)
def test_an_item_that_is_there_twice_is_refused(tags: list[Any]) -> None:
    (problem,) = refusal_of(UNIQUE, tags=tags).problems
    assert (problem.parameter, problem.expected) == ("tags", "uniqueItems true")


@pytest.mark.parametrize("tags", [[], [1, True, "1", [1], {"a": 1}, None, 1.5], [0, False, ""]])
def test_items_that_differ_are_accepted(tags: list[Any]) -> None:
    codec_of(UNIQUE).encode((), {"tags": tags})


def test_a_schema_may_allow_repeated_items() -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": False}}}
    codec_of(schema).encode((), {"tags": [1, 1]})


def test_many_different_items_are_compared_in_time() -> None:
    """Each with every other one would take hours."""
    tags: list[Any] = [{"n": number} for number in range(50_000)]
    codec_of(UNIQUE).encode((), {"tags": tags})
    with pytest.raises(InvalidCall):
        codec_of(UNIQUE).encode((), {"tags": [*tags, {"n": 7}]})


def test_arguments_are_passed_by_keyword() -> None:
    told = str(refusal_of(SCHEMA, "2030-01"))
    assert "too many positional arguments; pass keyword arguments" in told


def test_values_do_not_reach_the_message() -> None:
    """Errors are logged, and text may be private."""
    secret = "4111 1111 1111 1111"
    refused = refusal_of(SCHEMA, month=secret, kind=secret, to={"city": 1, "zip": secret})
    assert len(refused.problems) == 4
    assert secret not in str(refused)


def test_many_problems_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def note(name: str, known: object) -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr(schema_codec, "nearest", note)
    refused = refusal_of(SCHEMA, month="2030-01", **{f"p{number}": 1 for number in range(1_000)})
    assert len(refused.problems) == len(compared) == MOST_PROBLEMS
    pages = refusal_of(SCHEMA, month="2030-01", pages=["x"] * 1_000)
    assert len(pages.problems) == MOST_PROBLEMS


def test_only_json_types_are_encoded() -> None:
    with pytest.raises(EncodeError, match="found set"):
        codec_of(SCHEMA).encode((), {"month": "2030-01", "pages": {1}})


def test_further_keywords_are_free_without_a_rule() -> None:
    open_schema = {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}}
    codec = codec_of(open_schema)
    assert codec.encode((), {"any": "value", "n_1": 2}) == b'{"kwargs":{"any":"value","n_1":2}}'
    assert refusal_of(open_schema, n_1="x").problems[0].parameter == "n_1"
    closed = {**open_schema, "additionalProperties": False}
    assert codec_of(closed).encode((), {"n_1": 2}) == b'{"kwargs":{"n_1":2}}'
    assert refusal_of(closed, m_1=2).problems[0].parameter == "m_1"


def test_a_schema_that_recurses_into_values() -> None:
    tree = {
        "type": "object",
        "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    codec = codec_of({**tree, "$defs": {"tree": tree}})
    codec.encode((), {"parts": [{"parts": [{"parts": []}]}]})
    refused = refusal_of({**tree, "$defs": {"tree": tree}}, parts=[{"parts": [{"parts": 1}]}])
    assert refused.problems[0].path == "$[0].parts[0].parts"


# ----------------------------------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "it must describe an object"),
        ({"properties": {}}, "it must describe an object"),
        (True, "it must describe an object"),
        ({"type": "array"}, "it must describe an object"),
        ({"type": "object", "default": {1, 2}.__class__}, "it is not JSON"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "dialect"),
        ({"type": "object", "$schema": 7}, "dialect"),
        ({"type": "object", "properties": []}, r"\[\] at \$\.properties is not valid there"),
        ({"type": "object", "properties": {"a": {"type": "integr"}}}, r"\$\.properties\.a\.type"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, r'"\(" at \$.properties'),
        ({"type": "object", "requried": ["a"]}, r"'requried'.*Did you mean required\?$"),
        ({"type": "object", "properties": {"a": {"minimun": 1}}}, r"\$\.properties\.a has the"),
        ({"type": "object", "$dynamicRef": "#x"}, "not supported"),
        ({"type": "object", "properties": {"a": {"$id": "b"}}}, "not supported"),
        ({"type": "object", "allOf": [{"$ref": "https://example.org/a"}]}, "only entries of its"),
        ({"type": "object", "allOf": [{"$ref": "#/$defs/a"}]}, "only entries of its own"),
        ({"type": "object", "not": {"$ref": "#"}}, "only entries of its own"),
        (
            {"type": "object", "$defs": {"a/b": {}}, "items": {"$ref": "#/$defs/a/b"}},
            "only entries",
        ),
        (
            {
                "type": "object",
                "allOf": [{"$ref": "#/$defs/a"}],
                "$defs": {"a": {"$ref": "#/$defs/a"}},
            },
            "refers to itself endlessly",
        ),
    ],
)
def test_a_schema_is_refused_where_it_is_declared(schema: object, why: str) -> None:
    with pytest.raises(InvalidTask, match=rf"(?s)^The schema of reports\.build cannot .*{why}"):
        CallSchema("reports.build", schema)


def test_a_schema_that_is_nested_too_deep() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"items": deep}
    with pytest.raises(InvalidTask, match="cannot be used"):
        CallSchema("reports.build", {"type": "object", **deep})


def test_data_in_a_schema_is_not_a_schema() -> None:
    data = {"$ref": "https://example.org/a", "unknown": 1}
    schema = {
        "type": "object",
        "properties": {"$ref": {"const": data}, "any": {"enum": [data], "default": data}},
        "examples": [data],
    }
    codec_of(schema).encode((), {"$ref": data, "any": data})


def test_a_loop_in_the_schema_that_only_a_value_meets() -> None:
    loop = {"$ref": "#/$defs/a"}
    schema = {"type": "object", "properties": {"x": loop}, "$defs": {"a": {"allOf": [loop]}}}
    assert "refers to itself endlessly" in str(refusal_of(schema, x=1))


def test_no_check_opens_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    codec_of(SCHEMA).encode((), {"month": "2030-01", "to": {"city": "Basel"}})
    with pytest.raises(InvalidTask):
        CallSchema("t", {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/a"}}})


def test_a_schema_is_a_copy() -> None:
    mutable: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    codec = codec_of(mutable)
    mutable["properties"]["a"]["type"] = "string"
    codec.encode((), {"a": 1})


def test_equal_schemas_have_the_same_canonical_form() -> None:
    one = CallSchema("t", {"type": "object", "minProperties": 1, "$id": "https://example.org"})
    other = CallSchema("t", {"minProperties": 1, "type": "object"})
    assert one.canonical == other.canonical
    assert one.canonical != CallSchema("t", {"type": "object", "minProperties": 2}).canonical


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = builtins.__import__

    def import_others(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("jsonschema", "referencing"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return find(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_others)
    with pytest.raises(InvalidTask, match=r"pip install 'windlass-queue\[server\]'"):
        CallSchema("reports.build", {"type": "object"})

"""Write the reference of the HTTP API: `python tools/make_http_reference.py`.

1. Routes, parameters, bodies, answers and problems come from the OpenAPI document, which is made
   from the route table.
2. What a field means comes from the comment next to it in the code.

A test compares the page with this tool.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

import windlass.http
from windlass.access_tokens import Role
from windlass.http.openapi import build_document
from windlass.http.problems import ProblemType
from windlass.http.routes import COMMON, EVERYONE, Route
from windlass.http.table import ROUTES

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "http.md"
_HEAD: Final = """# HTTP API

`tools/make_http_reference.py` writes this page from the route table, which also makes the OpenAPI
3.1 document at `/openapi.json`. [The guide](../guides/http.md) has examples.

Bodies and answers are JSON. Instants are texts as in RFC 3339, in UTC; durations are numbers of
seconds, in fields that end with `_s`. Unknown fields and parameters are refused. A field with a
default may be left out. Each route lists the roles that may call it.
"""
_PROBLEMS: Final = """## Problems

Every error is a problem document (RFC 9457, `application/problem+json`). Its `type` is
`urn:windlass:problem:` and the name in this table. `detail` says what failed, why, and how to fix
it; `fields` names the invalid parts. A status of 503 has a `Retry-After`, and so has 429.
"""
_TYPES: Final = """## Types
"""


def make() -> str:
    """The whole page."""
    document = build_document(ROUTES)
    parts = [_HEAD, *_routes(document), _PROBLEMS, _problem_table(), _TYPES, *_types(document)]
    return "\n".join(parts)


# ------------------------------------------------------------------------------------------ routes


def _routes(document: dict[str, Any]) -> Iterator[str]:
    for tag in dict.fromkeys(route.tag for route in ROUTES):
        yield f"## {tag.capitalize()}\n"
        for route in ROUTES:
            if route.tag == tag:
                operation = document["paths"][route.path][route.method.lower()]
                yield from _route(route, operation)


def _route(route: Route, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {route.summary}\n"
    roles = ", ".join(f"`{role}`" for role in Role if role in route.roles) or "everyone"
    yield f"`{route.method} {route.path}` for {roles}\n"
    if route.description:
        yield f"{route.description}\n"
    if operation["parameters"]:
        kinds = [kind for kind in (route.path_type, route.query_type) if kind is not None]
        meanings = {name: text for kind in kinds for name, text in _comments_of(kind).items()}
        yield "| parameter | in | type | default | meaning |"
        yield "| --- | --- | --- | --- | --- |"
        for parameter in operation["parameters"]:
            yield _parameter(parameter, meanings.get(parameter["name"], ""))
        yield ""
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"Body: {_type(body)}\n"
    yield f"Answer: {_answers(operation)}\n"
    problems = ", ".join(f"`{one.value[0]}`" for one in route.problems if one not in _usual(route))
    if problems:
        yield f"Problems: {problems}\n"


def _usual(route: Route) -> set[ProblemType]:
    """The problems that follow from the parts of a route, and need no mention."""
    usual = {*COMMON, ProblemType.INVALID, ProblemType.TOO_LARGE, ProblemType.TIMED_OUT}
    usual |= {ProblemType.UNSUPPORTED_MEDIA, ProblemType.METHOD_NOT_ALLOWED}
    if route.roles != EVERYONE:
        usual |= {ProblemType.UNAUTHENTICATED, ProblemType.FORBIDDEN}
    return usual


def _parameter(parameter: dict[str, Any], meaning: str) -> str:
    schema = parameter["schema"]
    default = "required" if parameter["required"] else _default(schema)
    meaning = meaning or parameter.get("description") or _description(schema)
    name, place = parameter["name"], parameter["in"]
    return f"| `{name}` | {place} | {_type(schema)} | {default} | {meaning} |"


def _answers(operation: dict[str, Any]) -> str:
    answers = []
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            continue
        content = response.get("content", {})
        if "text/event-stream" in content:
            answers.append(f"{status}, a stream of server-sent events")
        elif content and "application/json" not in content:
            answers.append(f"{status}, text: {', '.join(f'`{kind}`' for kind in content)}")
        elif content:
            answers.append(f"{status} {_type(content['application/json']['schema'])}")
        else:
            answers.append(f"{status}, empty")
    return "; ".join(answers)


def _problem_table() -> str:
    rows = ["| type | status | meaning |", "| --- | --- | --- |"]
    rows += [f"| `{one.value[0]}` | {one.status} | {one.title} |" for one in ProblemType]
    return "\n".join([*rows, ""])


# ------------------------------------------------------------------------------------------- types


def _types(document: dict[str, Any]) -> Iterator[str]:
    meanings = dict(_meanings())
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        if "description" in schema:
            yield f"{' '.join(schema['description'].split())}\n"
        if "enum" in schema:
            yield f"{_values(schema['enum'])}\n"
        if schema.get("properties"):
            yield from _fields(schema, meanings.get(name, {}))


def _fields(schema: dict[str, Any], meanings: dict[str, str]) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in schema["properties"].items():
        default = "" if name in schema.get("required", ()) else _default(field)
        meaning = meanings.get(name, "") or _description(field)
        yield f"| `{name}` | {_type(field)} | {default} | {meaning} |"
    yield ""


def _description(schema: dict[str, Any]) -> str:
    choices = [schema, *schema.get("anyOf", ())]
    found = next((one["description"] for one in choices if "description" in one), "")
    return str(found)


def _default(schema: dict[str, Any]) -> str:
    if schema.get("default") is None:
        return "none"
    return f"`{msgspec.json.encode(schema['default']).decode()}`"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return _values(schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}{_bounds(schema, 'Items')}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if kind == "string":
        text = "instant" if schema.get("format") == "date-time" else "text"
        return f"{text}{_bounds(schema, 'Length')}"
    names = {"integer": "whole number", "boolean": "true or false", None: "any JSON"}
    return f"{names.get(kind, kind)}{_range(schema)}"


def _values(values: list[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _bounds(schema: dict[str, Any], what: str) -> str:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if most is None:
        return ""
    return f", {least or 0} to {most:,}"


def _range(schema: dict[str, Any]) -> str:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None and most is None:
        return ""
    above = "above " if "exclusiveMinimum" in schema else "from "
    begin = "" if least is None else f", {above}{_number(least)}"
    return begin if most is None else f"{begin} to {_number(most)}"


def _number(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else str(number)


# ---------------------------------------------------------------------------------------- comments


def _meanings() -> Iterator[tuple[str, dict[str, str]]]:
    """The comments on the fields of all structs and enumerations, by class."""
    for module in _modules():
        for cls in vars(module).values():
            is_own = getattr(cls, "__module__", "") == module.__name__
            if is_own and isinstance(cls, type) and issubclass(cls, msgspec.Struct | Enum):
                yield cls.__name__, _comments_of(cls)


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(windlass.http.__path__, "windlass.http."):
        yield importlib.import_module(found.name)


def _comments_of(cls: type) -> dict[str, str]:
    """The comments of a class and its bases."""
    comments: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("windlass.http."):
            comments |= _own_comments(base)
    return comments


def _own_comments(cls: type) -> dict[str, str]:
    file = importlib.import_module(cls.__module__).__file__ or ""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    tree = ast.parse("\n".join(lines))
    body = next(
        node.body
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = _above(lines, node.lineno) or _beside(lines, node.end_lineno or node.lineno)
            found[node.target.id] = comment
    return found


def _above(lines: list[str], number: int) -> str:
    """The comment `#: ...` in the lines before a field."""
    texts: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("#: "):
            break
        texts.insert(0, line.strip().removeprefix("#: "))
    return " ".join(texts)


def _beside(lines: list[str], number: int) -> str:
    _, mark, comment = lines[number - 1].partition("  # ")
    return comment if mark else ""


if __name__ == "__main__":
    PAGE.write_text(make(), encoding="utf-8")

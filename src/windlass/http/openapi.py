"""The OpenAPI 3.1 document, made from the route table."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from windlass.core import installed_version
from windlass.http.problems import MEDIA_TYPE, ProblemDocument, ProblemType
from windlass.http.routes import Route

_REFERENCE: Final = "#/components/schemas/{name}"
_DESCRIPTION: Final = (
    "Enqueue jobs, look at them and change them, and run them in workers of any language. "
    "Errors are problem documents (RFC 9457); `type` names the kind."
)


def build_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Describe all routes."""
    types = _types_of(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    known = dict(zip(map(_key, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, known, components
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "windlass",
            "version": installed_version(),
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "."}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token, made by `windlass token create`.",
                }
            },
        },
    }


def _types_of(routes: Iterable[Route]) -> list[Any]:
    types: dict[Any, Any] = {_key(ProblemDocument): ProblemDocument}
    for route in routes:
        for kind in (route.body_type, route.answer_type, *route.other_answers.values()):
            if kind is not None and not _is_opaque(kind):
                types[_key(kind)] = kind
    return list(types.values())


def _key(kind: Any) -> Any:
    return repr(kind)


def _is_opaque(kind: Any) -> bool:
    """Whether an answer is made by the handler itself, such as a stream."""
    return not (inspect.isclass(kind) and issubclass(kind, msgspec.Struct))


def _operation(route: Route, known: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(route, components),
        "responses": _responses(route, known),
    }
    if route.description:
        operation["description"] = route.description
    if route.body_type is not None:
        schema = known[_key(route.body_type)]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    if route.roles:
        operation["x-roles"] = sorted(route.roles)
    else:
        operation["security"] = []
    return operation


def _parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place, kind in (("path", route.path_type), ("query", route.query_type)):
        if kind is None:
            continue
        for field in msgspec.structs.fields(kind):
            (schema,), more = msgspec.json.schema_components([field.type], ref_template=_REFERENCE)
            components.update(more)
            if place == "query":
                schema = _without_null(schema)
            if field.default is not msgspec.NODEFAULT and field.default is not None:
                schema = {**schema, "default": field.default}
            found.append(
                {
                    "name": field.encode_name,
                    "in": place,
                    "required": field.required,
                    "schema": schema,
                }
            )
    found += route_headers(route)
    return found


def route_headers(route: Route) -> list[dict[str, Any]]:
    """The request headers that a route reads."""
    if not route.takes_idempotency_key:
        return []
    return [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key with the same body has the effect once, for a day.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 128},
        }
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query parameter that is left out has no value null."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return choices[0] if len(choices) == 1 else schema


def _responses(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {str(route.status): _success(route, known)}
    for status, answer in route.other_answers.items():
        schema = known[_key(answer)]
        responses[str(status)] = {
            "description": "Done",
            "content": {"application/json": {"schema": schema}},
        }
    by_status: dict[int, list[ProblemType]] = {}
    for problem in route.problems:
        by_status.setdefault(problem.status, []).append(problem)
    for status, kinds in sorted(by_status.items()):
        responses[str(status)] = {
            "description": "; ".join(f"{kind.title} (`{kind.value[0]}`)" for kind in kinds),
            "content": {MEDIA_TYPE: {"schema": known[_key(ProblemDocument)]}},
        }
    return responses


def _success(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    if route.answer_type is None:
        return {"description": "Done"}
    if route.is_stream:
        return {
            "description": "A stream of server-sent events",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    if route.media_types:
        text = {"schema": {"type": "string"}}
        return {"description": "Done", "content": dict.fromkeys(route.media_types, text)}
    schema = known.get(_key(route.answer_type), {"type": "object"})
    return {"description": "Done", "content": {"application/json": {"schema": schema}}}

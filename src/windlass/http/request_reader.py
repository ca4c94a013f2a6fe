"""Read path, query and body of a request into the structs of its route.

1. A body is read only up to its limit and within its time.
2. A body with very many values is refused before it is decoded: a value of two bytes takes over
   sixty bytes of memory as an object, and lists are counted only after they are decoded.
3. Unknown query parameters and unknown fields are refused: nothing is accepted and ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from windlass.http.accepted_values import accepted_fields, accepted_values
from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.routes import MAX_VALUES, Route

_JSON: Final = re.compile(
    r"application/([\w.+-]+\+)?json\s*(;\s*charset=\"?utf-8\"?\s*)?", re.IGNORECASE
)
#: Bodies up to this many times the limit are read to their end before they are refused.
_DROPPED: Final = 2
#: A text of JSON, or a comma between two values. A text without its end reaches to the end of the
#: body, so that the search passes each byte once.
_TEXT_OR_COMMA: Final = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|,', re.DOTALL)
_COMMA: Final = ord(",")
#: A message of msgspec ends with the place of the error.
_PLACE: Final = re.compile(r" - at `\$?(.*)`$")
#: How a message of msgspec shows the end of a pattern that allows no line break there.
_END_OF_PATTERN: Final = r"$(?!\\n)'"


def read_path(route: Route, found: Mapping[str, Any]) -> Any:
    return _convert(dict(found), route.path_type, "path")


def read_query(route: Route, pairs: Sequence[tuple[str, str]]) -> Any:
    """Read the query. A name may be repeated only where a list is expected."""
    assert route.query_type is not None, "the caller asks only for a route with a query"
    fields = {field.encode_name: field for field in msgspec.structs.fields(route.query_type)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise invalid(f"query.{name}", f"there is no such parameter. Known ones: {known}")
        is_list = getattr(fields[name].type, "__origin__", None) is tuple
        if is_list:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise invalid(f"query.{name}", "the parameter was given twice")
        else:
            values[name] = value
    return _convert(values, route.query_type, "query", strict=False)


async def read_body(route: Route, request: Request, most: int, timeout_s: float) -> Any:
    """Read and decode the body."""
    kind = request.headers.get("content-type", "")
    if not _JSON.fullmatch(kind.strip()):
        raise Problem(
            ProblemType.UNSUPPORTED_MEDIA,
            f"Expected Content-Type: application/json, found {kind[:100] or 'none'}.",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(ProblemType.UNSUPPORTED_MEDIA, "Compressed bodies are not supported.")
    try:
        async with asyncio.timeout(timeout_s):
            data = await _read_bytes(request, most)
    except TimeoutError:
        raise Problem(
            ProblemType.TIMED_OUT,
            f"The body did not arrive within {timeout_s:g} s.",
            headers={"Connection": "close"},
        ) from None
    except ClientDisconnect:
        raise Problem(ProblemType.BAD_REQUEST, "The body was cut off.") from None
    if has_too_many_values(data):
        raise Problem(
            ProblemType.TOO_LARGE,
            f"The body may have at most {MAX_VALUES:,} values. Send several requests with a part "
            "of them each, or store the data elsewhere and pass a reference to it.",
        )
    return _decode(data, route.body_type)


async def _read_bytes(request: Request, most: int) -> bytes:
    """Read the body. A body that is too large is read on for a while and dropped: many clients see
    the answer only after they have sent everything."""
    length = request.headers.get("content-length", "")
    is_hopeless = length.isdecimal() and int(length) > _DROPPED * most
    if is_hopeless:
        raise too_large(most)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _DROPPED * most:
            break
        if size <= most:
            chunks.append(chunk)
    if size > most:
        raise too_large(most)
    return b"".join(chunks)


def has_too_many_values(data: bytes) -> bool:
    """Whether a body has more values than `MAX_VALUES`, counted by the commas between them. Commas
    inside of texts do not count. They are told apart only if there are very many commas."""
    if data.count(b",") <= MAX_VALUES:
        return False
    commas = 0
    for number, match in enumerate(_TEXT_OR_COMMA.finditer(data)):
        commas += data[match.start()] == _COMMA
        if commas > MAX_VALUES or number >= 4 * MAX_VALUES:
            return True
    return False


def too_large(most: int) -> Problem:
    return Problem(
        ProblemType.TOO_LARGE,
        f"The body may have at most {most} bytes.",
        headers={"Connection": "close"},
    )


def _decode(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _of_msgspec("body", error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(ProblemType.BAD_REQUEST, f"The body is not JSON: {error}.") from None


def _convert(found: Mapping[str, Any], kind: Any, part: str, *, strict: bool = True) -> Any:
    try:
        return msgspec.convert(found, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _of_msgspec(part, error, kind) from None


def _of_msgspec(part: str, error: msgspec.ValidationError, kind: Any) -> Problem:
    text = str(error)
    found = _PLACE.search(text)
    place = found[1] if found else ""
    detail = _PLACE.sub("", text).replace(_END_OF_PATTERN, "$'")
    return invalid(part + place, detail[:1].lower() + detail[1:] + _advice(detail, kind, place))


def _advice(detail: str, kind: Any, place: str) -> str:
    """What to send instead, where the message does not say so."""
    if "unknown field" in detail:
        known = accepted_fields(kind, place)
        return f". Known ones: {', '.join(known)}" if known else ""
    if detail.startswith(("Invalid enum value", "Invalid value")):
        known = accepted_values(kind, place)
        return f". Expected one of {', '.join(known)}" if known else ""
    if "datetime" in detail:
        return ". Expected an instant such as 2030-01-31T08:00:00Z"
    return ""

"""The wire formats: JSON and msgpack.

1. A `Wire` writes all supported values, makes decoders by annotation, and measures the nesting of
   untrusted bytes.
2. Types that msgspec does not support are converted to supported types, the same way in both
   formats: paths, pydantic models, and subclasses of built-in classes.
3. `too_deep` and `too_deep_msgpack` measure the nesting. The decoder recurses in C, so the depth is
   checked on the bytes. Every step is one call into C: a payload of a mebibyte takes milliseconds
   at worst, and a short or flat payload almost no time.
4. `as_json` converts a decoded value to JSON, so that comparisons (unique keys, idempotency) do not
   depend on the codec. `to_plain_json` does not need the annotation.

msgpack keeps bytes, and the types of dict keys. It writes a datetime as an instant, without its
offset; a datetime with an offset is therefore written as text, as in JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import msgspec

from windlass.core.serialization.annotations import is_model, is_path
from windlass.core.serialization.round_trip import find, with_leaves

#: The deepest nesting of lists and objects in an argument or a result.
MAX_DEPTH: Final = 64

_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_CONTAINERS: Final = (dict, list, tuple)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
#: In msgpack a map begins with 0x80 to 0x8f, 0xde or 0xdf, and an array with 0x90 to 0x9f, 0xdc or
#: 0xdd.
_NO_OPENINGS: Final = bytes(set(range(256)) - set(range(0x80, 0xA0)) - set(range(0xDC, 0xE0)))


class Wire(msgspec.Struct, frozen=True):
    """A wire format: encoder, decoders and depth check."""

    name: str  # as shown to users
    encode: Callable[[object], bytes]
    decoder: Callable[[Any], Callable[[Any], Any]]
    too_deep: Callable[..., bool]
    #: Whether NaN and infinity are written as null.
    drops_non_finite: bool


def too_deep(encoded: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether JSON is nested deeper than `limit`. Unclosed brackets count as too deep."""
    if len(encoded) <= 2 * limit or encoded.count(b"[") + encoded.count(b"{") <= limit:
        return False
    skeleton = _outside_strings(encoded).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(limit):
        # Each pass removes the innermost pairs, so the number of passes is the depth.
        peeled = skeleton.replace(b"[]", b"")
        if len(peeled) == len(skeleton):
            break
        skeleton = peeled
    return bool(skeleton)


def too_deep_msgpack(encoded: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether msgpack is nested deeper than `limit`. Counts the bytes that can start a container:
    there are at most this many containers. Only if there are more than `limit`, decodes the value.
    The decoder has its own depth limit."""
    if len(encoded) <= limit or len(encoded.translate(None, _NO_OPENINGS)) <= limit:
        return False
    try:
        level = [msgspec.msgpack.decode(encoded)]
    except RecursionError:
        return True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False  # the full decoder reports the error
    for _ in range(limit):
        level = [part for value in level for part in _parts(value) if isinstance(part, _CONTAINERS)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    return value if isinstance(value, _CONTAINERS) else ()


def _outside_strings(encoded: bytes) -> bytes:
    if b"\\" in encoded:
        encoded = _ESCAPE.sub(b"", encoded)
    return b"".join(encoded.split(b'"')[::2])


def _date(value: date) -> date:
    return date(value.year, value.month, value.day)


#: Converters from a subclass to its built-in class: Django's SafeString, numpy's float64, the
#: datetimes of pendulum and freezegun. datetime comes before date, its base class.
_PLAIN_FORMS: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes),
    (datetime, lambda value: datetime.combine(_date(value), value.timetz())),
    (date, _date),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
)


def _simplify(value: Any) -> object:
    """Convert a value that msgspec cannot write."""
    if is_model(type(value)):
        return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True).encode())
    return _simplify_plain(value)


def _simplify_for_msgpack(value: Any) -> object:
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    return _simplify_plain(value)


def _simplify_plain(value: Any) -> object:
    if is_path(type(value)):
        return str(value)
    for kind, plain in _PLAIN_FORMS:
        if isinstance(value, kind):
            return plain(value)
    raise NotImplementedError  # msgspec then raises its own error for the type


def _rebuild(kind: type, value: object) -> object:
    """Rebuild a value that msgspec cannot read."""
    if kind is object:
        return value
    if is_model(kind):
        # From JSON, not from objects: a strict model accepts text for a datetime only in JSON.
        model: Any = kind
        return model.model_validate_json(to_json(value))
    if not isinstance(value, str):
        raise ValueError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
    return kind(value)


def _json_decoder(annotation: Any) -> Callable[[Any], Any]:
    return msgspec.json.Decoder(annotation, dec_hook=_rebuild).decode


def _msgpack_decoder(annotation: Any) -> Callable[[Any], Any]:
    return msgspec.msgpack.Decoder(annotation, dec_hook=_rebuild).decode


to_json: Final = msgspec.json.Encoder(enc_hook=_simplify).encode

_to_msgpack: Final = msgspec.msgpack.Encoder(enc_hook=_simplify_for_msgpack).encode


def _to_msgpack_by_text(value: object) -> bytes:
    """Encode msgpack, with datetimes that have an offset other than UTC as text, as in JSON."""
    return _to_msgpack(with_leaves(value, _text_if_offset))


def _text_if_offset(value: object) -> object:
    if isinstance(value, datetime) and value.tzinfo is not None and value.utcoffset():
        return msgspec.json.decode(to_json(value))
    return value


JSON: Final = Wire("JSON", to_json, _json_decoder, too_deep, drops_non_finite=True)
MSGPACK: Final = Wire(
    "msgpack", _to_msgpack, _msgpack_decoder, too_deep_msgpack, drops_non_finite=False
)
#: The format for datetimes with an offset, which plain msgpack drops. Decoding is the same.
MSGPACK_BY_TEXT: Final = msgspec.structs.replace(MSGPACK, encode=_to_msgpack_by_text)


def _is_non_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def to_plain_json(encoded: bytes) -> bytes:
    """Convert msgpack to JSON, without an annotation."""
    return as_json(msgspec.msgpack.decode(encoded), encoded)


def as_json(value: object, encoded: bytes | msgspec.Raw) -> bytes:
    """Convert a decoded value to JSON. A value that only msgpack supports is represented by its
    encoded bytes."""
    try:
        written = to_json(value)
    except (TypeError, ValueError):  # keys that only msgpack supports
        return msgspec.json.encode({"msgpack": bytes(encoded)})
    if b"null" in written and find(value, _is_non_finite):
        return msgspec.json.encode({"msgpack": bytes(encoded)})
    return written

"""Encode and decode one annotated value.

A `ValueCodec` is made once per annotation. To encode a value the codec

1. writes the value in its wire format, by default JSON, with sets in a fixed order and dataclasses
   with all their fields;
2. refuses values that are nested too deep;
3. reads the value back with the decoder that the worker will use;
4. refuses a value that this changes (see `windlass.core.serialization.round_trip` for the rule).

So an unsupported value fails at the caller, not in a worker an hour later. Steps 2 to 4 are not
needed for a value of exactly one of the `exact_types`: its type proves that it comes back.

`normal` converts stored bytes to JSON that is the same for all forms of an equal value: an int for
a float, a UUID in capitals, omitted fields.

Decoding ignores unknown fields of a class, so that a newer producer may add fields, unless the
class forbids them (msgspec's `forbid_unknown_fields`, pydantic's `extra="forbid"`). A union is
refused if JSON cannot distinguish its members, such as `str | UUID`. If an object has a key twice,
the last one counts. A set inside a pydantic model is written in pydantic's order, which differs
between processes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cached_property
from threading import RLock
from typing import Any, Final

import msgspec

from windlass.core.serialization.annotations import describe, exact_types, traits_of
from windlass.core.serialization.round_trip import difference, equal, find, in_one_form
from windlass.core.serialization.wire import (
    JSON,
    MAX_DEPTH,
    MSGPACK_BY_TEXT,
    Wire,
    as_json,
    to_json,
)
from windlass.errors import AnnotationError

_FLATTER: Final = "pass a flatter value"
_FINITE: Final = "pass None or text instead"
_PLAIN_DATA: Final = "pass plain data, or an id"
#: Held while msgspec inspects a class on first use. The inspection runs Python code half way, and a
#: thread that uses the class at that moment gets a decoder that crashes the process.
_learning: Final = RLock()

_EXPECTED: Final = r"Expected `([^`]+)`, got `([^`]+)`"


class ValueRefused(Exception):
    """A value cannot be stored or rebuilt. The caller adds the name of the parameter."""

    def __init__(self, reason: str, path: str = "$", advice: str = "") -> None:
        super().__init__(reason, path, advice)
        self.reason = reason
        self.path = path
        self.advice = advice

    def __str__(self) -> str:
        place = "" if self.path == "$" else f" at {self.path}"
        return f"{self.reason}{place}; {self.advice}" if self.advice else f"{self.reason}{place}"


class ValueCodec:
    """Encodes and decodes values of one annotation.

    A lenient codec, for results, accepts the JSON form of a value where the annotation leaves the
    type open: a datetime there comes back as text.
    """

    def __init__(self, annotation: Any, *, lenient: bool = False, wire: Wire = JSON) -> None:
        self._annotation = annotation
        self._wire = wire
        self._encode, self._too_deep = wire.encode, wire.too_deep
        with _learning:
            self._decode = _decoder(annotation, wire)
            self._traits = traits_of(annotation)
            #: The types whose values need no check.
            self.exact_types = exact_types(annotation)
        self._has_forms = self._traits.has_forms
        self._compares = not (lenient and self._traits.is_open)

    def encode(self, value: object) -> bytes:
        """Encode a value. Raises `ValueRefused` if decoding would change the value."""
        encoded = self._write(value)
        if self._too_deep(encoded):
            raise ValueRefused(f"nested deeper than {MAX_DEPTH} levels", advice=_FLATTER)
        try:
            rebuilt = self._decode(encoded)
        except Exception as error:
            raise self._mismatch(value, error) from error
        if self._compares:
            self._compare(value, rebuilt)
        elif b"null" in encoded:
            self._refuse_non_finite(value)
        return encoded

    def decode(self, encoded: bytes | msgspec.Raw) -> object:
        """Rebuild a value by the annotation. Raises `ValueRefused` if the bytes do not fit. Other
        errors come from user code that rebuilds values: the bytes may be valid."""
        try:
            return self._decode(encoded)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise _unreadable(error) from error

    def normal(self, encoded: bytes | msgspec.Raw) -> bytes:
        """Convert an encoded value to JSON: the same for values that a task cannot distinguish,
        except that dicts keep the order of their keys."""
        value = self.decode(encoded)
        return as_json(in_one_form(value, to_json) if self._has_forms else value, encoded)

    def _write(self, value: object) -> bytes:
        try:
            if self._has_forms:
                value = in_one_form(value, to_json)
            return self._encode(value)
        except RecursionError as error:
            raise ValueRefused(
                f"nested deeper than {MAX_DEPTH} levels, or inside itself", advice=_FLATTER
            ) from error
        except Exception as error:
            raise _unwritable(value, error, self._wire) from error

    def _compare(self, value: object, rebuilt: object) -> None:
        if not self._traits.is_exact and equal(value, rebuilt):
            return
        found = difference(value, rebuilt, self._traits)
        if found is not None:
            self._refuse_non_finite(value)
            raise ValueRefused(found.reason, found.path, self._advice())

    def _mismatch(self, value: object, error: Exception) -> ValueRefused:
        self._refuse_non_finite(value)
        refused = _unreadable(error)
        return ValueRefused(refused.reason, refused.path, self._advice())

    def _refuse_non_finite(self, value: object) -> None:
        if not self._wire.drops_non_finite:
            return
        found = find(value, lambda part: isinstance(part, float) and not math.isfinite(part))
        if found is not None:
            path, number = found
            raise ValueRefused(f"found {number!r}, which JSON cannot hold", path, _FINITE)

    def _advice(self) -> str:
        if self._traits.is_open:
            return "annotate the parameter with its type, so that it can be rebuilt"
        return f"the annotation is {describe(self._annotation)}"


class OffsetCodec(ValueCodec):
    """Codec for a wire format that drops the offsets of datetimes. Encodes a value with an offset
    again, with datetimes as text."""

    def encode(self, value: object) -> bytes:
        try:
            return super().encode(value)
        except ValueRefused:
            if not self._traits.has_datetimes:
                raise
        return self._by_text.encode(value)

    @cached_property
    def _by_text(self) -> ValueCodec:
        return ValueCodec(self._annotation, lenient=not self._compares, wire=MSGPACK_BY_TEXT)


def read_plain(encoded: bytes, wire: Wire = JSON) -> Any:
    """Decode bytes to the types of the wire format. Raises `ValueRefused` if that fails."""
    if wire.too_deep(encoded):
        raise ValueRefused(f"nested deeper than {MAX_DEPTH} levels, or cut off")
    try:
        return wire.decoder(Any)(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(error) from error


def _decoder(annotation: Any, wire: Wire) -> Callable[[Any], Any]:
    try:
        return wire.decoder(annotation)
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise AnnotationError(
            f"values of {describe(annotation)} cannot be rebuilt from JSON: {error}. Annotate with "
            "one type with a distinct JSON form, for example a class with a field for each case."
        ) from error


def _unwritable(value: object, error: Exception, wire: Wire) -> ValueRefused:
    path, part = find(value, lambda part: _cannot_be_written(part, wire)) or ("$", None)
    if part is None or not isinstance(error, NotImplementedError | TypeError):
        return ValueRefused(f"cannot be stored as {wire.name} ({error})", path, _PLAIN_DATA)
    kind = type(part).__name__
    reason = f"found {kind}, which cannot be stored as {wire.name}"
    return ValueRefused(reason, path, _PLAIN_DATA)


def _cannot_be_written(value: object, wire: Wire) -> bool:
    try:
        wire.encode(value)
    except Exception:  # noqa: BLE001 - classes of the user write themselves and may raise anything
        return True
    return False


def _unreadable(error: Exception) -> ValueRefused:
    if isinstance(error, RecursionError):
        return ValueRefused("nested too deep")
    reason, _, place = str(error).partition(" - at ")
    reason = re.sub(_EXPECTED, r"expected \1, found \2", reason)
    return ValueRefused(reason[:1].lower() + reason[1:], place.replace("`", "") or "$")

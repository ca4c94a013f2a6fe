"""Check the calls of a task by a JSON Schema, for tasks whose code is in another language.

1. `CallSchema` reads a schema: an object whose properties are the keyword arguments. The schema is
   checked when it is declared, so that no call meets an invalid one.
2. `SchemaCodec` encodes a call as JSON, then checks the JSON by the schema.

The schema is JSON Schema 2020-12 without references to other documents: `$ref` may name only an
entry of the schema's own `$defs`, so that no check ever opens a connection. An unknown keyword is
refused, because the specification ignores it and a misspelt rule would never apply; names that
begin with `x-` are free. `format` is a comment, as the specification has it.

The package `jsonschema` checks calls. It is imported when a schema is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.core import install_command
from windlass.core.foreign_words import nearest
from windlass.core.serialization.codec import CallCodec
from windlass.core.serialization.problems import (
    MOST_PROBLEMS,
    ArgumentProblem,
    describe_found,
    invalid_call,
)
from windlass.core.serialization.signature import Signature
from windlass.errors import InvalidTask

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = re.compile(r"#/\$defs/([\w.-]+)", re.ASCII)
#: Keywords whose value is a schema, a list of schemas, or schemas by name.
_HOLDS_ONE: Final = (
    *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_HOLDS_LIST: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_HOLDS_NAMED: Final = ("$defs", "dependentSchemas", "patternProperties", "properties")
_RULES: Final = (
    *("$ref", "const", "dependentRequired", "enum", "exclusiveMaximum", "exclusiveMinimum"),
    *("maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains"),
    *("minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "required"),
    *("type", "uniqueItems"),
)
_COMMENTS: Final = (
    *("$comment", "contentEncoding", "contentMediaType", "contentSchema", "default"),
    *("deprecated", "description", "examples", "format", "readOnly", "title", "writeOnly"),
)
_KEYWORDS: Final = frozenset({*_HOLDS_ONE, *_HOLDS_LIST, *_HOLDS_NAMED, *_RULES, *_COMMENTS})
#: An error shows at most this many characters of a rule.
_MOST_SHOWN: Final = 100


class CallSchema:
    """The schema of the keyword arguments of one task. Raises `InvalidTask` for a schema that
    cannot be used."""

    def __init__(self, task: str, schema: object) -> None:
        self._task = task
        #: The schema, as plain JSON values of its own.
        self.plain: dict[str, Any] = self._read(schema)
        self._validator = self._make_validator()

    @property
    def canonical(self) -> bytes:
        """The same bytes for equal schemas."""
        return msgspec.json.encode(self.plain, order="deterministic")

    def problems(self, kwargs: Mapping[str, Any]) -> list[ArgumentProblem]:
        """Why these keyword arguments, as JSON values, do not fit."""
        try:
            errors = list(islice(self._validator.iter_errors(kwargs), MOST_PROBLEMS))
        except RecursionError:
            return [
                ArgumentProblem(message=f"{self._task}(): its schema refers to itself endlessly")
            ]
        found: dict[tuple[str, str, str], ArgumentProblem] = {}
        for error in errors:
            for problem in _problems_of(self._task, error):
                found.setdefault((problem.parameter, problem.path, problem.expected), problem)
        return list(found.values())

    # ---------------------------------------------------------------------------------- reading

    def _read(self, schema: object) -> dict[str, Any]:
        try:
            plain = msgspec.json.decode(msgspec.json.encode(schema))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise self._refused(f"it is not JSON ({error})") from error
        if not isinstance(plain, dict) or plain.get("type") != "object":
            raise self._refused(
                "it must describe an object, whose properties are the keyword arguments: write "
                '{"type": "object", "properties": {...}}'
            )
        if str(plain.pop("$schema", _DIALECT)).rstrip("#") != _DIALECT:
            raise self._refused(f"only the dialect {_DIALECT} is supported: remove $schema")
        plain.pop("$id", None)  # nothing refers to it
        return plain

    def _check_keywords(self, place: str, part: dict[str, Any], known: Collection[str]) -> None:
        for name in part:
            if name not in _KEYWORDS and not name.startswith("x-"):
                hint = nearest(name, _KEYWORDS)
                raise self._refused(
                    f"{place} has the keyword {name!r}, which is not supported.{hint}"
                )
        reference = part.get("$ref")
        if reference is not None and not _names_one_of(reference, known):
            raise self._refused(
                f"{place} refers to {reference!r}, and only entries of its own $defs can be "
                'referred to, as in "#/$defs/address"'
            )

    def _make_validator(self) -> Draft202012Validator:
        try:
            from jsonschema import Draft202012Validator, validators
            from jsonschema.exceptions import SchemaError
            from referencing import Registry
        except ImportError as error:
            raise self._refused(
                f"the package jsonschema cannot be imported ({error}). Install it with: "
                f"{install_command('server')}"
            ) from error
        extend: Callable[..., type[Draft202012Validator]] = validators.extend  # it has no types
        try:
            Draft202012Validator.check_schema(self.plain)
            for place, part in subschemas(self.plain):
                self._check_keywords(place, part, self.plain.get("$defs", {}))
            # Without documents: a reference that slipped through must not be downloaded.
            cls = extend(Draft202012Validator, {"uniqueItems": _find_repeated})
            validator = cls(self.plain, registry=Registry())
            list(validator.iter_errors({}))
        except SchemaError as error:
            refused = f"{_shown(error.instance)} at {error.json_path} is not valid there"
            raise self._refused(refused) from error
        except RecursionError as error:
            raise self._refused("it refers to itself endlessly, or is nested too deep") from error
        return validator

    def _refused(self, why: str) -> InvalidTask:
        end = "" if why.endswith("?") else "."
        return InvalidTask(f"The schema of {self._task} cannot be used: {why}{end}")


class SchemaCodec(CallCodec):
    """Encodes the calls of a task as JSON, with keyword arguments that its schema describes."""

    def __init__(self, name: str, function: Callable[..., object], schema: CallSchema) -> None:
        super().__init__(name, Signature(name, function, skip_first=False))
        self.schema = schema

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        problems = self._positional(len(args))
        if problems:
            raise invalid_call(self._name, problems)
        encoded = super().encode(args, kwargs)
        problems = self.schema.problems(msgspec.json.decode(encoded).get("kwargs", {}))
        if problems:
            raise invalid_call(self._name, problems)
        return encoded

    def misfits(self, count: int, keywords: Collection[str]) -> list[tuple[str, str]]:
        """Only positional arguments: the schema checks keywords, after they are encoded."""
        return [("", problem.message) for problem in self._positional(count)]

    def _positional(self, count: int) -> list[ArgumentProblem]:
        if not count:
            return []
        advice = "pass keyword arguments, because the schema of the task names them"
        return [ArgumentProblem(message=f"{self._name}(): too many positional arguments; {advice}")]


# ------------------------------------------------------------------------------------------ schemas


def subschemas(root: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema with its place, the outermost first. A part that is no schema is
    left to the check by the metaschema."""
    pending: list[tuple[str, object]] = [("$", root)]
    while pending:
        place, part = pending.pop()
        if not isinstance(part, dict):
            continue
        yield place, part
        for name, value in part.items():
            inner = f"{place}.{name}"
            if name in _HOLDS_ONE:
                pending.append((inner, value))
            elif name in _HOLDS_LIST and isinstance(value, list):
                pending += [(f"{inner}[{at}]", one) for at, one in enumerate(value)]
            elif name in _HOLDS_NAMED and isinstance(value, dict):
                pending += [(f"{inner}.{key}", one) for key, one in value.items()]


def _names_one_of(reference: object, known: Collection[str]) -> bool:
    named = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    return named is not None and named[1] in known


def _find_repeated(
    _validator: object, is_rule: object, instance: object, _schema: object
) -> Iterator[ValidationError]:
    """Check `uniqueItems` by the bytes of each item. The library compares every object with every
    other one, which takes a minute for a few thousand."""
    from jsonschema.exceptions import ValidationError

    if is_rule and isinstance(instance, list):
        known = {msgspec.json.encode(_normal(one), order="deterministic") for one in instance}
        if len(known) < len(instance):
            yield ValidationError("an item is there twice")


def _normal(value: Any) -> Any:
    """The same value with whole numbers as ints: to JSON Schema, 1.0 and 1 are equal."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normal(one) for one in value]
    if isinstance(value, dict):
        return {name: _normal(one) for name, one in value.items()}
    return value


# ----------------------------------------------------------------------------------------- problems


def _problems_of(task: str, error: ValidationError) -> Iterator[ArgumentProblem]:
    """The problems of one error. The texts are our own: those of the library repeat the value."""
    steps = list(error.absolute_path)
    rule, instance = str(error.validator), error.instance
    value: Any = error.validator_value
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    fields = instance if isinstance(instance, dict) else {}
    if rule == "required":
        for name in value:
            if name not in fields:
                yield _missing(task, steps, name)
    elif rule == "additionalProperties" and value is False:
        for name in islice(_additional(schema, fields), MOST_PROBLEMS):
            yield _unexpected(task, steps, name, schema.get("properties", {}))
    else:
        yield _misfit(task, steps, _expected(rule, value), describe_found(instance))


def _missing(task: str, steps: Sequence[str | int], name: str) -> ArgumentProblem:
    if steps:
        return _misfit(task, steps, f"the field {name}", "none")
    message = f"{task}(): missing a required argument: {name!r}"
    return ArgumentProblem(message=message, parameter=name, expected="an argument", found="none")


def _unexpected(
    task: str, steps: Sequence[str | int], name: str, known: Collection[str]
) -> ArgumentProblem:
    hint = nearest(name, known)
    if steps:
        return _misfit(task, steps, "no other field", f"the field {name}", hint)
    message = f"{task}(): got an unexpected keyword argument {name!r}"
    return ArgumentProblem(
        message=f"{message}.{hint}" if hint else message,
        parameter=name,
        expected="no such argument",
        found="an argument",
    )


def _misfit(
    task: str, steps: Sequence[str | int], expected: str, found: str, hint: str = ""
) -> ArgumentProblem:
    parameter = str(steps[0]) if steps else ""
    path = "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps[1:])
    place = f"{task}({parameter}=...)" if steps else f"{task}()"
    where = "" if path == "$" else f" at {path}"
    message = f"{place}: expected {expected}, found {found}{where}"
    return ArgumentProblem(
        message=f"{message}.{hint}" if hint else message,
        parameter=parameter,
        path=path,
        expected=expected,
        found=found,
    )


def _expected(rule: str, value: object) -> str:
    if rule == "type":
        return " or ".join(value) if isinstance(value, list) else str(value)
    if rule == "enum":
        return f"one of {_shown(value)}"
    if rule in _HOLDS_LIST:
        return f"a value that fits {rule}"
    return f"{rule} {_shown(value)}"


def _additional(schema: Mapping[str, Any], instance: Mapping[str, Any]) -> Iterator[str]:
    patterns = [re.compile(pattern) for pattern in schema.get("patternProperties", {})]
    for name in instance:
        is_free = any(pattern.search(name) for pattern in patterns)
        if not is_free and name not in schema.get("properties", {}):
            yield name


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."

"""Calls and results as JSON, for the command line and the HTTP API.

1. `read_call` rebuilds the arguments of a call by the annotations of its task, as a worker would.
   It reports every argument that does not fit. `read_plain_call` is for a task without code.
2. A value arrives as it was sent, or is refused: numbers that a float cannot hold, deep nesting and
   text that is not UTF-8 are never changed.
3. `unread_fields` finds fields in typed arguments that no class reads: probably typos. Dataclasses,
   structs and models ignore unknown fields, each in its own way, and may rename fields. So replace
   each value by nonsense: if the decoded argument stays the same, no class reads that field.
4. `call_as_json` and `result_as_json` show what is stored, or say why it cannot be shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from windlass.client.payloads import describe_unreadable, describe_unreadable_result
from windlass.core.serialization.codec import CallCodec, codec_without_code, decode_json
from windlass.core.serialization.envelope import unpack
from windlass.core.serialization.problems import ArgumentProblem, invalid_call
from windlass.core.serialization.wire import MAX_DEPTH, too_deep
from windlass.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.engine.contract import JobRecord
    from windlass.task import Task

#: The arguments of a call: positional, and by keyword.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

#: The most bytes of a call whose fields are tested. A larger call would take long.
MOST_TESTED: Final = 10_000
#: A value that no real call has.
_NONSENSE: Final = "\x00 not a real value"
#: JSON without such a part has only numbers that a float holds: fewer than 16 digits, no exponent.
_LONG_NUMBER: Final = re.compile(rb"(?:\d\.?){16}|\d[eE][-+]?\d")
_EXPECTED: Final = re.compile(r": expected (.+), found ([^;]+?)(?: at \$.*)?(?:;.*)?$", re.DOTALL)
_MISSING_FIELD: Final = re.compile(r": object missing required field `([^`]+)`")


# ------------------------------------------------------------------------------------ reading calls


def read_call(
    task: Task[..., Any],
    args: Sequence[msgspec.Raw],
    kwargs: Mapping[str, msgspec.Raw],
    *,
    allow_unread: bool = False,
) -> Arguments:
    """Rebuild the arguments of a call of this task, for `task.enqueue(*args, **kwargs)`.

    Raises `InvalidCall` with all problems. A field that no class reads is a problem unless
    `allow_unread`; calls of more than `MOST_TESTED` bytes are not tested for such fields."""
    codec = task.codecs["json"]
    positional, named = _read(task.name, codec, args, kwargs)
    try:
        task.codec.encode(positional, named)
    except EncodeError as error:
        raise invalid_call(task.name, [_problem_of(error, error.parameter)]) from error
    unread = [] if allow_unread else list(_find_unread(codec, args, kwargs))
    if unread:
        raise invalid_call(task.name, [_unread_problem(codec, *one) for one in unread])
    return positional, named


def read_plain_call(
    name: str, args: Sequence[msgspec.Raw], kwargs: Mapping[str, msgspec.Raw]
) -> Arguments:
    """The same for a task that is known by name alone: the arguments stay JSON types."""
    return _read(name, codec_without_code(name), args, kwargs)


def _read(
    name: str,
    codec: CallCodec,
    args: Sequence[msgspec.Raw],
    kwargs: Mapping[str, msgspec.Raw],
) -> Arguments:
    misfits = codec.misfits(len(args), kwargs)
    if misfits:
        raise invalid_call(
            name, [ArgumentProblem(parameter=one, message=text) for one, text in misfits]
        )
    values: dict[int | str, Any] = {}
    problems = []
    for given, raw in _given(args, kwargs):
        read = _read_argument(codec, given, bytes(raw))
        if isinstance(read, ArgumentProblem):
            problems.append(read)
        else:
            values[given] = read.value
    if problems:
        raise invalid_call(name, problems)
    return tuple(values[at] for at in range(len(args))), {one: values[one] for one in kwargs}


def _given(
    args: Sequence[msgspec.Raw], kwargs: Mapping[str, msgspec.Raw]
) -> Iterator[tuple[int | str, msgspec.Raw]]:
    yield from enumerate(args)
    yield from kwargs.items()


class _Read(msgspec.Struct, frozen=True):
    """An argument that fits."""

    value: Any


def _read_argument(codec: CallCodec, given: int | str, encoded: bytes) -> _Read | ArgumentProblem:
    slot, key = codec.slot_of(given)
    place, parameter = slot.place(key), _name_of(codec, given)
    if too_deep(encoded):
        expected = f"at most {MAX_DEPTH} levels of nesting"
        message = f"{place}: expected {expected}, found more"
        return ArgumentProblem(
            message=message, parameter=parameter, expected=expected, found="more"
        )
    try:
        value = slot.decode(encoded, key)
        inexact = _find_inexact(encoded, lambda: slot.encode(value, key))
    except (DecodeError, EncodeError) as error:
        return _problem_of(error, parameter)
    except Exception as error:  # noqa: BLE001 - classes of the user rebuild themselves and may raise anything
        message = f"{place}: {type(error).__name__}: {error}"
        return ArgumentProblem(message=message, parameter=parameter)
    if inexact is None:
        return _Read(value)
    expected = "a number that can be stored exactly"
    message = f"{place}: expected {expected}, found {inexact}; send it as text"
    return ArgumentProblem(message=message, parameter=parameter, expected=expected, found=inexact)


def _name_of(codec: CallCodec, given: int | str) -> str:
    """The parameter of an argument: a keyword itself, and `*numbers[3]` for one of many."""
    slot, key = codec.slot_of(given)
    return given if isinstance(given, str) else f"{slot.name}{key}"


def _problem_of(error: DecodeError | EncodeError, parameter: str) -> ArgumentProblem:
    text, path = str(error), error.path or "$"
    types = _EXPECTED.search(text)
    missing = _MISSING_FIELD.search(text)
    expected, found = types.groups() if types else ("", "")
    if missing:
        expected, found = f"the field {missing[1]}", "none"
    return ArgumentProblem(
        message=text, parameter=parameter, path=path, expected=expected, found=found
    )


# ------------------------------------------------------------------------------------ exact numbers


def _find_inexact(encoded: bytes, store: Callable[[], bytes]) -> str | None:
    """The first number in the JSON of an argument that the stored argument does not have, or None.
    A float holds about 16 digits: more digits, or a large int for a float, would be rounded."""
    if _LONG_NUMBER.search(encoded) is None:
        return None
    doubtful: list[str] = []

    def note(text: str) -> None:
        if Decimal(text) not in _floats(text):
            doubtful.append(text)

    json.loads(encoded.decode(), parse_float=note, parse_int=note)
    if not doubtful:
        return None
    stored = _numbers_in(store())
    lost = (text for text in doubtful if Decimal(text) not in stored)
    return next((_shorten(text) for text in lost), None)


def _floats(text: str) -> tuple[Decimal, Decimal]:
    """The values that a float of this text stands for: its shortest form, and its exact value."""
    number = float(text)
    return Decimal(repr(number)), Decimal(number)


def _numbers_in(stored: bytes) -> set[Decimal]:
    """All numbers in stored JSON, also those that are stored as text, as a Decimal is."""
    numbers: set[Decimal] = set()

    def note_float(text: str) -> None:
        numbers.update((Decimal(text), *_floats(text)))

    def note_int(text: str) -> None:
        numbers.add(Decimal(text))

    plain = json.loads(stored, parse_float=note_float, parse_int=note_int)
    for text in _texts_in(plain):
        try:
            number = Decimal(text)
        except InvalidOperation:
            continue
        if number.is_finite():
            numbers.add(number)
    return numbers


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts_in(part)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


# ------------------------------------------------------------------------------------ unread fields


def unread_fields(
    task: Task[..., Any], args: Sequence[msgspec.Raw], kwargs: Mapping[str, msgspec.Raw]
) -> list[str]:
    """The fields of a call that have no effect, without fields nested in them. The call fits: it
    was read by `read_call`."""
    found = _find_unread(task.codecs["json"], args, kwargs)
    return list(dict.fromkeys(name for _, name in found))


def _find_unread(
    codec: CallCodec, args: Sequence[msgspec.Raw], kwargs: Mapping[str, msgspec.Raw]
) -> Iterator[tuple[int | str, str]]:
    """The unread fields, each with the argument that it is in."""
    arguments = [(given, bytes(raw)) for given, raw in _given(args, kwargs)]
    if sum(len(encoded) for _, encoded in arguments) > MOST_TESTED:
        return
    for given, encoded in arguments:
        if b"{" in encoded:
            yield from ((given, name) for name in _unread_in(codec, given, encoded))


def _unread_in(codec: CallCodec, given: int | str, encoded: bytes) -> Iterator[str]:
    slot, key = codec.slot_of(given)
    value = msgspec.json.decode(encoded)

    def rebuild() -> bytes:
        return slot.encode(slot.decode(msgspec.json.encode(value), key), key)

    before = rebuild()

    def is_unread(holder: dict[str, Any], name: str) -> bool:
        kept, holder[name] = holder[name], _NONSENSE
        try:
            return rebuild() == before
        except Exception:  # noqa: BLE001 - a class reads the field, and refuses the nonsense by any error
            return False
        finally:
            holder[name] = kept

    yield from _search(value, msgspec.json.decode(before), is_unread)


def _search(
    value: object, stored: Any, is_unread: Callable[[dict[str, Any], str], bool]
) -> Iterator[str]:
    """Search a value for unread fields. A part that is stored as it is was read."""
    if value == stored:
        return
    if isinstance(value, list):
        is_aligned = isinstance(stored, list) and len(stored) == len(value)
        others = stored if is_aligned else [None] * len(value)  # a set has another order
        for part, other in zip(value, others, strict=True):
            yield from _search(part, other, is_unread)
    elif isinstance(value, dict):
        for name in list(value):
            other = stored.get(name) if isinstance(stored, dict) else None
            is_kept = other is not None and value[name] == other
            if not is_kept and is_unread(value, name):
                yield name
            else:
                yield from _search(value[name], other, is_unread)


def _unread_problem(codec: CallCodec, given: int | str, name: str) -> ArgumentProblem:
    slot, key = codec.slot_of(given)
    return ArgumentProblem(
        message=f"{slot.place(key)}: no class of this argument has a field {name!r}",
        parameter=_name_of(codec, given),
        expected="known fields",
        found=f"the field {name}",
    )


# ----------------------------------------------------------------------------------- stored values


class StoredJob(Protocol):
    """A job record, or a claim."""

    @property
    def task(self) -> str: ...

    @property
    def payload(self) -> bytes: ...


class ShownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A stored call as JSON. `problem` says why there are no arguments."""

    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}
    call: msgspec.Raw | None = None  # the call as one document
    problem: str = ""


class ShownResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stored result as JSON; None without a result, or with a `problem`."""

    result: msgspec.Raw | None = None
    problem: str = ""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


def call_as_json(app: Windlass, job: StoredJob) -> ShownCall:
    """The call of a stored job, as far as this app can read it. Never unpickles. Jobs of a list
    have no call: read them by id."""
    try:
        payload = app.packing.readable_call(job.payload, job.task)
        problem = describe_unreadable(payload, job.task)
        if problem:
            return ShownCall(problem=problem)
        call = unpack(payload, job.task).call
    except DecodeError as error:
        return ShownCall(problem=f"undecodable: {error}")
    try:
        parts = msgspec.json.decode(call, type=_Call)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ShownCall(call=call, problem="its arguments have no form in JSON")
    return ShownCall(args=parts.args, kwargs=parts.kwargs, call=call)


def result_as_json(app: Windlass, record: JobRecord) -> ShownResult:
    """The result of a stored job, as far as this app can read it. Never unpickles."""
    result = app.packing.readable_result(record)
    if result is None:
        return ShownResult()
    try:
        problem = describe_unreadable_result(result)
        if problem:
            return ShownResult(problem=problem)
        decode_json(result)
    except DecodeError as error:
        return ShownResult(problem=f"undecodable: {error}")
    return ShownResult(result=msgspec.Raw(result))

"""The parameters of a task's function, and whether a call fits them.

1. A `Slot` is a parameter or the result. It encodes and decodes values, and its errors have its
   name. A slot resolves its annotation on first use. So a function may use classes that its module
   defines further down, and a parameter that no call passes may have a type that cannot be stored.
2. `Signature` checks a call like Python does, but by a fast comparison of names and numbers. The
   slower binding of Python is used only for the text of an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cached_property
from inspect import Parameter
from typing import Any, Final

import msgspec

from windlass.core.failures import place_of
from windlass.core.foreign_words import unexpected_keyword
from windlass.core.serialization.annotations import resolve
from windlass.core.serialization.values import OffsetCodec, ValueCodec, ValueRefused
from windlass.core.serialization.wire import JSON, Wire
from windlass.errors import AnnotationError, DecodeError, EncodeError

_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
#: The options of `using`. Passed as arguments of a call they are a mistake.
OPTIONS: Final = (
    *("queue", "priority", "retry", "timeout", "expires", "result_ttl", "requires", "headers"),
    *("run_after", "idempotency_key", "connection"),
)
#: At most this many unknown keywords are reported: each is compared with all parameters.
_MOST_UNKNOWN: Final = 20
_BY_KEYWORD: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Slot:
    """A parameter, or the result, of a function."""

    def __init__(
        self,
        task: str,
        name: str,
        annotation: object,
        function: Callable[..., object],
        *,
        wire: Wire = JSON,
    ) -> None:
        self.task = task
        #: The parameter's name, with its stars; empty for the result.
        self.name = name
        self._annotation = annotation
        self._function = function
        self._wire = wire

    def encode(self, value: object, key: str = "") -> bytes:
        """Encode a value. `key` is the position or name within a starred parameter."""
        try:
            return self._codec.encode(value)
        except ValueRefused as refused:
            advised = refused if self.name else str(refused).replace("; pass ", "; return ")
            message = f"{self.place(key)}: {advised}"
            raise EncodeError(
                message, task=self.task, parameter=self.name, path=refused.path
            ) from origin_of(refused.__cause__)
        except AnnotationError as error:
            raise EncodeError(str(error), task=self.task, parameter=self.name) from error

    def proves(self, kind: object) -> bool:
        """Whether every value of exactly this type survives the round trip."""
        try:
            return kind in self._codec.exact_types
        except AnnotationError:  # a pickle does not need the annotation
            return False

    def decode(self, encoded: bytes | msgspec.Raw, key: str = "") -> object:
        """Rebuild a value by the annotation."""
        try:
            return self._codec.decode(encoded)
        except ValueRefused as refused:
            message = f"{self.place(key)}: {refused}"
            raise DecodeError(
                message, task=self.task, parameter=self.name, path=refused.path
            ) from origin_of(refused.__cause__)
        except AnnotationError as error:
            raise DecodeError(str(error), task=self.task, parameter=self.name) from error

    def normal(self, encoded: bytes | msgspec.Raw) -> msgspec.Raw:
        """Convert an encoded value to JSON, equal for values that a function cannot distinguish."""
        return msgspec.Raw(self._codec.normal(encoded))

    def resolve(self) -> None:
        """Resolve the annotation now, so that an `AnnotationError` is not raised on first use."""
        self._codec  # noqa: B018 - the property does the work, once

    @property
    def annotation(self) -> Any:
        """The type that the annotation names. Raises `AnnotationError`."""
        return resolve(self._annotation, self._function)

    @cached_property
    def _codec(self) -> ValueCodec:
        try:
            annotation = self.annotation
            # Lenient: a task that did its work should not fail for the form of its result.
            kind = ValueCodec if self._wire is JSON else OffsetCodec
            return kind(annotation, lenient=not self.name, wire=self._wire)
        except AnnotationError as error:
            raise AnnotationError(
                f"{self.place()}: {error}", task=self.task, parameter=self.name
            ) from error

    def place(self, key: str = "") -> str:
        """The parameter or the result, as errors name it."""
        return f"{self.task}({self.name}{key}=...)" if self.name else f"the result of {self.task}"


def origin_of(cause: BaseException | None) -> BaseException | None:
    """Return the cause if user code raised it, else None. Other causes add nothing to the message,
    and would add their tracebacks to every log and dead letter."""
    return cause if cause is not None and place_of(cause.__traceback__) else None


class Signature:
    """The parameters that a caller of the task passes."""

    def __init__(
        self,
        task: str,
        function: Callable[..., object],
        *,
        skip_first: bool,
        slot: Callable[..., Slot] = Slot,
    ) -> None:
        whole = inspect.signature(function)
        parameters = list(whole.parameters.values())
        if skip_first:
            _require_context(task, parameters)
            del parameters[0]
        self._task = task
        self._signature = whole.replace(parameters=parameters)
        self._parameters = parameters
        slots = {p.name: slot(task, _starred(p), p.annotation, function) for p in parameters}
        self.result = slot(task, "", whole.return_annotation, function)
        self.positional = [slots[p.name] for p in parameters if p.kind in _POSITIONAL]
        self.by_keyword = {p.name: slots[p.name] for p in parameters if p.kind in _BY_KEYWORD}
        self.extra_positional = self._slot_of(slots, Parameter.VAR_POSITIONAL)
        self.extra_keywords = self._slot_of(slots, Parameter.VAR_KEYWORD)
        self.required = [slots[p.name] for p in parameters if _is_required(p)]
        starred = (self.extra_positional, self.extra_keywords)
        self.names = [p.name for p in parameters if slots[p.name] not in starred]
        self.parameters = slots  # by name, without stars
        self._positions = {slot.name: index for index, slot in enumerate(self.positional)}
        self._needs = sum(_is_required(p) and p.kind in _POSITIONAL for p in parameters)
        self._takes_plain = all(slot in self.positional for slot in self.required)

    @cached_property
    def plain_defaults(self) -> dict[str, msgspec.Raw]:
        """The encoded defaults of parameters, without those that cannot be encoded."""
        plain = {}
        for parameter in self._parameters:
            if parameter.default is not Parameter.empty:
                slot = self.parameters[parameter.name]
                with suppress(EncodeError):
                    plain[parameter.name] = slot.normal(slot.encode(parameter.default))
        return plain

    def mismatch(self, count: int, keywords: Collection[str]) -> str:
        """Why a call with `count` positional arguments and these keywords does not fit, or ""."""
        if not keywords and self._takes_plain and self._needs <= count <= len(self.positional):
            return ""
        if self._fits(count, keywords):
            return ""
        unknown = self._unexpected(keywords)
        if unknown is not None:
            return f"{self._task}(): got an unexpected keyword argument {unknown!r}"
        try:
            self._signature.bind(*range(count), **dict.fromkeys(keywords))
        except TypeError as error:
            return f"{self._task}(): {error}"
        # Some versions of Python bind a keyword to a positional-only parameter of that name.
        return f"{self._task}(): the arguments do not fit {self._signature}"

    def misfits(self, count: int, keywords: Collection[str]) -> list[tuple[str, str]]:
        """Every parameter that such a call misses, passes twice or does not have, each with a
        message. A mismatch that no parameter stands for has an empty name."""
        mismatch = self.mismatch(count, keywords)
        if not mismatch:
            return []
        unknown = [] if self.extra_keywords is not None else self._unknown(keywords)
        found = [
            (name, f"got an unexpected keyword argument {name!r}{self.advice([name])}")
            for name in unknown[:_MOST_UNKNOWN]
        ]
        if count > len(self.positional) and self.extra_positional is None:
            found.append(("", "too many positional arguments"))
        twice = [name for name in keywords if self._is_passed_twice(name, count)]
        found += [(name, f"multiple values for argument {name!r}") for name in twice]
        missing = [] if unknown else self._missing(count, keywords)
        found += [(name, f"missing a required argument: {name!r}") for name in missing]
        if not found:
            return [("", mismatch)]
        return [(name, f"{self._task}(): {text}") for name, text in found]

    def advice(self, keywords: Collection[str]) -> str:
        """A hint for an unexpected keyword, or ""."""
        unknown = self._unexpected(keywords)
        return "" if unknown is None else unexpected_keyword(unknown, self.by_keyword, OPTIONS)

    def _unexpected(self, keywords: Collection[str]) -> str | None:
        """The first unexpected keyword, or None. Python would report a missing argument first,
        although the misspelt keyword is the cause."""
        if self.extra_keywords is not None:
            return None
        return next(iter(self._unknown(keywords)), None)

    def _unknown(self, keywords: Collection[str]) -> list[str]:
        known = (self.by_keyword, self._positions)
        return [name for name in keywords if all(name not in some for some in known)]

    def _missing(self, count: int, keywords: Collection[str]) -> list[str]:
        return [slot.name for slot in self.required if not self._is_passed(slot, count, keywords)]

    def _is_passed(self, slot: Slot, count: int, keywords: Collection[str]) -> bool:
        by_position = self._positions.get(slot.name, count) < count
        return by_position or (slot.name in keywords and slot.name in self.by_keyword)

    def _is_passed_twice(self, name: str, count: int) -> bool:
        return name in self.by_keyword and self._positions.get(name, count) < count

    def _fits(self, count: int, keywords: Collection[str]) -> bool:
        if count > len(self.positional) and self.extra_positional is None:
            return False
        for name in keywords:
            if name not in self.by_keyword:
                if self.extra_keywords is None:
                    return False
            elif self._is_passed_twice(name, count):
                return False
        return all(self._is_passed(slot, count, keywords) for slot in self.required)

    def _slot_of(self, slots: dict[str, Slot], kind: inspect._ParameterKind) -> Slot | None:
        return next((slots[p.name] for p in self._parameters if p.kind is kind), None)


def _is_required(parameter: Parameter) -> bool:
    starred = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not starred


def _starred(parameter: Parameter) -> str:
    return str(parameter.replace(annotation=Parameter.empty, default=Parameter.empty))


def _require_context(task: str, parameters: list[Parameter]) -> None:
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise TypeError(
            f"{task} takes the context, so its first parameter must be the context: "
            f"def {task.rpartition('.')[2]}(ctx: Context, ...)"
        )

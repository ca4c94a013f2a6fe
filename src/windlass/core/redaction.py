"""Redact sensitive values by their names, for people who may see a job but not its secrets.

1. `Redactor` replaces values in JSON-like data: dicts, lists, structs and dataclasses, at any depth
   up to `MAX_DEPTH`. It redacts a call by the names of its parameters.
2. `has_redacted` finds a replaced value, which an edit must not store.

A name matches if it contains a listed name as whole words, in any case and notation: `password`
matches `db_password`, `passwordHash`, `X-Password` and `passwords`. It also matches at the end of a
name without word boundaries: `userpassword`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter
from typing import Any, Final, NamedTuple

import msgspec

#: What replaces a value.
REDACTED: Final = "[redacted]"
#: The default names.
DEFAULT_NAMES: Final = (
    *("password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "cookie"),
    *("credit_card", "card_number", "cvv", "ssn", "private_key"),
)
#: Nested deeper than this, lists and objects are redacted as a whole. Calls are not nested deeper.
MAX_DEPTH: Final = 80
#: A shorter name matches whole words only: many words end in three letters.
_LEAST_ENDING: Final = 5
#: Remember whether this many names match.
_REMEMBERED: Final = 4096

_WORD_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")


class ParameterNames(NamedTuple):
    """The names of the positional parameters of a function, and of its starred parameter."""

    positional: tuple[str, ...] = ()
    starred: str = ""

    @classmethod
    def of(cls, function: Callable[..., object], skip_first: bool = False) -> ParameterNames:
        """Read the parameters of a function. `skip_first` skips the parameter for the context."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # written in C
            return cls()
        by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        names = tuple(one.name for one in parameters if one.kind in by_position)
        starred = (one.name for one in parameters if one.kind is Parameter.VAR_POSITIONAL)
        return cls(names[1:] if skip_first else names, next(starred, ""))

    def at(self, index: int) -> str:
        """The name of the parameter for the argument at a position; empty if it is unknown."""
        return self.positional[index] if index < len(self.positional) else self.starred


#: The parameters of a task whose code is not here.
UNKNOWN_PARAMETERS: Final = ParameterNames()


class Redactor:
    """Replaces the values of sensitive names."""

    def __init__(self, names: Sequence[str] = DEFAULT_NAMES) -> None:
        listed = [_words(name) for name in names]
        self._listed = tuple(words for words in listed if words)
        endings = ("".join(words) for words in self._listed)
        self._endings = tuple(one for one in endings if len(one) >= _LEAST_ENDING)
        #: Whether the value of this name is redacted.
        self.is_listed: Callable[[str], bool] = lru_cache(_REMEMBERED)(self._matches)

    def redact(self, value: Any, name: str = "") -> Any:
        """Return a value without what its name, or a name inside it, hides. Structs and dataclasses
        become dicts. None stays: it hides nothing."""
        return self._redact(value, name, MAX_DEPTH)

    def redact_call(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        parameters: ParameterNames = UNKNOWN_PARAMETERS,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call, redacted by the names of the parameters."""
        positional = [self.redact(one, parameters.at(index)) for index, one in enumerate(args)]
        return positional, {name: self.redact(one, name) for name, one in kwargs.items()}

    def _redact(self, value: Any, name: str, depth: int) -> Any:
        if value is None:
            return None
        if name and self.is_listed(name):
            return REDACTED
        fields = _fields(value)
        if fields is not None:
            if depth <= 0:
                return REDACTED
            return {key: self._redact(one, str(key), depth - 1) for key, one in fields.items()}
        if isinstance(value, list | tuple | set | frozenset):
            if depth <= 0:
                return REDACTED
            return [self._redact(one, "", depth - 1) for one in value]
        return value

    def _matches(self, name: str) -> bool:
        words = _words(name)
        if any(_contains(words, listed) for listed in self._listed):
            return True
        joined = "".join(words)
        return any(joined.endswith((ending, f"{ending}s")) for ending in self._endings)


def has_redacted(value: Any) -> bool:
    """Whether a value of JSON-like data is what a redactor put there. An edit with such a value
    would replace the secret by the mark."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str) and one == REDACTED:
            return True
        if isinstance(one, Mapping):
            rest += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            rest += one
    return False


def _words(name: str) -> list[str]:
    """The words of a name in lower case, without digits at their ends: `newPassword2` is new,
    password."""
    parts = _WORD_BREAK.split(name)
    return [word for part in parts if (word := part.lower().rstrip("0123456789"))]


def _contains(words: Sequence[str], listed: Sequence[str]) -> bool:
    """Whether the listed words follow each other in a name. The last one may be a plural."""
    number = len(listed)
    return any(
        words[at : at + number - 1] == listed[:-1]
        and words[at + number - 1] in (listed[-1], f"{listed[-1]}s")
        for at in range(len(words) - number + 1)
    )


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """The fields of an object by name; None for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    kind = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name, None) for name in kind.__dataclass_fields__}
    if hasattr(kind, "__attrs_attrs__"):
        return {one.name: getattr(value, one.name, None) for one in kind.__attrs_attrs__}
    if hasattr(kind, "model_fields"):  # pydantic
        return {name: getattr(value, name, None) for name in kind.model_fields}
    return None

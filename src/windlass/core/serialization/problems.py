"""Problems with the arguments of a call.

1. An `ArgumentProblem` says which argument does not fit its task, and why.
2. `invalid_call` makes the error that carries them.
3. `describe_found` names what was found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from windlass.errors import InvalidCall

#: At most this many problems are reported.
MOST_PROBLEMS: Final = 20
#: A message has at most this many characters: libraries repeat the value that they refuse.
_MOST_CHARACTERS: Final = 500
#: Larger numbers are named by their type: Python writes no int of more than 4300 digits.
_LONG_NUMBER: Final = 10**30
#: JSON types, as the messages of msgspec name them.
_NAMES: Final[dict[type, str]] = {str: "str", list: "array", dict: "object"}


class ArgumentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One argument, or a part of one, that does not fit its task."""

    message: str
    parameter: str = ""  # empty if the call as a whole does not fit
    path: str = "$"  # the place inside the argument; "$" is the whole argument
    expected: str = ""  # the expected type or rule, where one is known
    found: str = ""  # the type, or the number, that was found


def invalid_call(task: str, problems: Iterable[ArgumentProblem]) -> InvalidCall:
    """The error for these problems. There is at least one."""
    found = list(problems)
    kept = tuple(map(_shorten, found[:MOST_PROBLEMS]))
    others = len(found) - len(kept)
    texts = [problem.message for problem in kept]
    more = f"; and {others} more" if others else ""
    return InvalidCall(f"{'; '.join(texts)}{more}", task=task, problems=kept)


def _shorten(problem: ArgumentProblem) -> ArgumentProblem:
    if len(problem.message) <= _MOST_CHARACTERS:
        return problem
    message = f"{problem.message[:_MOST_CHARACTERS]}..."
    return msgspec.structs.replace(problem, message=message)


def describe_found(value: object) -> str:
    """The JSON type of a value, and short numbers as they are. Never text, which may be private:
    errors are logged."""
    if isinstance(value, bool) or value is None:
        return msgspec.json.encode(value).decode()
    if isinstance(value, int | float):
        return f"{value!r}" if abs(value) < _LONG_NUMBER else type(value).__name__
    return _NAMES.get(type(value), type(value).__name__)

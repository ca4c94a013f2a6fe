"""Read a call from the JSON of a command line, as a worker would read it.

1. `parse` reads the outermost level of `--args` and `--kwargs`; annotations decode the values.
2. `require_fit` compares the arguments with the parameters of the function.
3. `unread_fields` finds fields in typed arguments that no class reads: probably typos. Dataclasses,
   structs and models ignore unknown fields, each in its own way, and may rename fields. So replace
   each value by nonsense: if the decoded call stays the same, no class reads that field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

import click
import msgspec

from windlass.errors import EncodeError, WindlassError
from windlass.task import Task

T = TypeVar("T")

#: The most bytes of a call to test. A larger call was not typed by hand, and would take long.
MOST: Final = 10_000
#: A value that no real call has.
_NONSENSE: Final = "\x00 not a real value"


def parse(option: str, text: str, kind: type[T], *, shown: str, advice: str = "") -> T:
    """Decode the value of `--args` or `--kwargs`. An error shows the text as `shown`."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        shape = "a JSON array" if option == "--args" else "a JSON object"
        raise click.UsageError(
            f"{option} expects {shape}, found {shown!r}: {error}.{advice}"
        ) from error


def require_fit(task: Task[..., Any], count: int, kwargs: Collection[str]) -> None:
    """Raise Python's own TypeError if a parameter is missing, unknown or given twice.

    Checks only names and number of arguments: None stands for every value."""
    with suppress(EncodeError):
        task.codec.encode([None] * count, dict.fromkeys(kwargs))


def unread_fields(task: Task[..., Any], written: bytes) -> list[str]:
    """Return the fields of a JSON call that have no effect, without fields nested in them."""
    if len(written) > MOST:
        return []
    call = msgspec.json.decode(written)
    before = _rebuilt(task, call)

    def is_unread(holder: dict[str, Any], name: str) -> bool:
        value, holder[name] = holder[name], _NONSENSE
        try:
            return _rebuilt(task, call) == before
        except (WindlassError, TypeError, ValueError):
            return False  # a class reads the field, and refuses the nonsense
        finally:
            holder[name] = value

    values = [*call["args"], *call["kwargs"].values()]
    return list(dict.fromkeys(_find(values, is_unread)))


def _find(value: object, is_unread: Callable[[dict[str, Any], str], bool]) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _find(part, is_unread)
    elif isinstance(value, dict):
        for name in list(value):
            if is_unread(value, name):
                yield name
            else:
                yield from _find(value[name], is_unread)


def _rebuilt(task: Task[..., Any], call: object) -> bytes:
    codec = task.codecs["json"]
    return codec.encode(*codec.decode(msgspec.json.encode(call)))

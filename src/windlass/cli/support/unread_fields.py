"""Find fields in typed arguments that no class reads: probably typos.

Dataclasses, structs and models ignore unknown fields, each in its own way, and may rename fields.
So each field is tested: if the decoded call is the same with nonsense as its value, no class reads
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from windlass.errors import WindlassError
from windlass.task import Task

#: A larger call, in bytes, was not typed by hand, and would take long to test.
MOST: Final = 10_000
#: A value that no field accepts as its own.
_NONSENSE: Final = "\x00 not a real value"


def unread_fields(task: Task[..., Any], written: bytes) -> list[str]:
    """The fields without effect in a call in JSON, without fields nested in them."""
    if len(written) > MOST:
        return []
    call = msgspec.json.decode(written)
    before = _rebuilt(task, call)

    def is_unread(holder: dict[str, Any], name: str) -> bool:
        value, holder[name] = holder[name], _NONSENSE
        try:
            return _rebuilt(task, call) == before
        except (WindlassError, TypeError, ValueError):
            return False  # a class reads it, and refuses the nonsense
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

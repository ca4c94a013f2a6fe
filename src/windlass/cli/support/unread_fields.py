"""Fields in arguments typed by hand that no class reads: most likely a slip of the pen.

Dataclasses, structs and models pass over what they do not know, each in its own way, and names may
be changed on the way. So each field is put to the test: if the call comes out the same with
nonsense in its place, nobody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from windlass.errors import WindlassError
from windlass.task import Task

#: A call that takes more bytes than this was not typed by hand, and would take long to look at.
MOST: Final = 10_000
#: No value that a field would take for the one it has.
_NONSENSE: Final = "\x00 nobody reads this"


def unread_fields(task: Task[..., Any], written: bytes) -> list[str]:
    """The fields of a call, written as JSON, that have no effect; nothing of what is in them."""
    if len(written) > MOST:
        return []
    call = msgspec.json.decode(written)
    before = _rebuilt(task, call)

    def is_unread(holder: dict[str, Any], name: str) -> bool:
        value, holder[name] = holder[name], _NONSENSE
        try:
            return _rebuilt(task, call) == before
        except (WindlassError, TypeError, ValueError):
            return False  # somebody stumbled over it
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

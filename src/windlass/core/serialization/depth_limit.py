"""The depth limit of stored values.

The decoder recurses in C, so the depth of JSON is checked on the bytes. Every step below is one
call into C: a payload of a mebibyte takes milliseconds at worst, and a short or flat one almost no
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import msgspec

#: How deep lists and objects may be nested in an argument or a result.
MAX_DEPTH: Final = 64

_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_CONTAINERS: Final = (dict, list, tuple)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
#: In msgpack a map begins with 0x80 to 0x8f, 0xde or 0xdf, and an array with 0x90 to 0x9f, 0xdc or
#: 0xdd.
_NO_OPENINGS: Final = bytes(set(range(256)) - set(range(0x80, 0xA0)) - set(range(0xDC, 0xE0)))


def too_deep(encoded: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether brackets nest deeper than `limit`; unclosed brackets count as too deep."""
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
    """The same for msgpack. The bytes alone do not show where containers start, but there are at
    most as many as bytes that can start one. Only if these exceed the limit, the value is decoded;
    the decoder has its own depth limit."""
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

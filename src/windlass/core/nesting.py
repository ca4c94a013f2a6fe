"""How deep stored JSON may be nested, found out without building it.

The decoder recurses in C, so depth is checked on the bytes, and every step below is one call into
C: a payload of a mebibyte takes milliseconds at worst, and a short or flat one next to nothing.
"""

from __future__ import annotations

import re
from typing import Final

#: How many lists and objects may enclose one another in an argument or a result.
MAX_DEPTH: Final = 64

_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def too_deep(encoded: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether brackets nest deeper than `limit`; text that never closes them counts as too deep."""
    if len(encoded) <= 2 * limit or encoded.count(b"[") + encoded.count(b"{") <= limit:
        return False
    skeleton = _outside_strings(encoded).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(limit):
        # Each pass takes the innermost pairs away, so the passes needed are the depth.
        peeled = skeleton.replace(b"[]", b"")
        if len(peeled) == len(skeleton):
            break
        skeleton = peeled
    return bool(skeleton)


def _outside_strings(encoded: bytes) -> bytes:
    if b"\\" in encoded:
        encoded = _ESCAPE.sub(b"", encoded)
    return b"".join(encoded.split(b'"')[::2])

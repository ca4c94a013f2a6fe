"""Group similar failures: by the type of the error, the place in the code, and the message without
its values.

1. `place_of` finds the innermost function of a traceback outside of Python and windlass. It is a
   name and not a line number, so it survives changes above it.
2. `without_values` replaces values in a message: numbers, quoted text, identifiers.
3. `fingerprint` is a short digest of all three. The arguments of the job are not part of it.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Final

#: The part of a message that counts, in characters.
MAX_MESSAGE: Final = 500
#: The size of a fingerprint in bytes; shown as hexadecimal digits.
SIZE: Final = 6

_NOT_OURS: Final = sys.stdlib_module_names | {"windlass"}
#: Patterns and their replacements, in this order. `re` compiles and caches them at the first use.
_VALUES: Final = (
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "<id>"),
    (r"(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)\"[^\"\n]*\"(?!\w)", "<text>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<number>"),
    (r"\b(?=[A-Za-z_-]*[0-9])[0-9A-Za-z_-]{16,}\b", "<id>"),
    (r"-?[0-9]+([.,:][0-9]+)*", "<number>"),
)


def place_of(traceback: TracebackType | None) -> str:
    """`module.function` of the innermost frame outside of Python and windlass, or ""."""
    place = ""
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and module.partition(".")[0] not in _NOT_OURS:
            place = f"{module}.{frame.f_code.co_qualname}"
        traceback = traceback.tb_next
    return place


def without_values(message: str) -> str:
    """The beginning of a message, with a placeholder for each value."""
    text = message[:MAX_MESSAGE]
    for values, word in _VALUES:
        text = re.sub(values, word, text)
    return " ".join(text.split())


def fingerprint(kind: str, place: str, message: str) -> str:
    """Equal for similar failures, on every machine and in every process."""
    from hashlib import blake2s  # slow to import, and needed only to show failures

    parts = "\0".join((kind, place, without_values(message)))
    return blake2s(parts.encode("utf-8", "replace"), digest_size=SIZE).hexdigest()

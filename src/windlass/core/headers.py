"""Headers of a job: a small map of text, stored next to its arguments.

Headers hold metadata of a call: the id of a request, a trace, the user. Engines store headers in
plain text, so every reader of the job can read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: The largest number of headers of a job.
MAX_HEADERS: Final = 32
#: The largest size of all names and values together, in bytes.
MAX_HEADER_BYTES: Final = 8 * 1024
#: Names with this prefix, in any case, are reserved for windlass.
RESERVED: Final = "windlass"
#: The header of windlass that names the caller of the HTTP API who enqueued the job.
ACTOR: Final = "windlass-actor"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def read_headers(headers: object) -> dict[str, str]:
    """Check headers. Raises `TypeError` or `ValueError` if they cannot be stored."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a dict of text to text, found {headers!r}")
    for name, value in headers.items():
        _check_name(name)
        if not isinstance(value, str):
            raise TypeError(f"headers: {name} must be text, found {value!r}: write str(...)")
    check_bounds(headers)
    return dict(headers)


def check_bounds(headers: Mapping[str, str]) -> None:
    """Check the number and the total size of headers."""
    if len(headers) > MAX_HEADERS:
        raise ValueError(
            f"headers: found {len(headers)}, and a job can have {MAX_HEADERS}. Data belongs "
            "into the arguments."
        )
    size = sum(len(_encoded(text)) for pair in headers.items() for text in pair)
    if size > MAX_HEADER_BYTES:
        raise ValueError(
            f"headers: they take {size:,} bytes, and the limit is {MAX_HEADER_BYTES:,}. Data "
            "belongs into the arguments."
        )


def with_trace(headers: Mapping[str, str], trace: Mapping[str, str]) -> dict[str, str]:
    """Add the headers of a trace, all of them or none: none if one of them is there already, or if
    too little room is left."""
    joined = {**headers, **trace}
    if len(joined) < len(headers) + len(trace):
        return dict(headers)
    try:
        check_bounds(joined)
    except ValueError:
        return dict(headers)
    return joined


def is_reserved(name: str) -> bool:
    """Whether a header is one of windlass, which callers and middleware cannot set."""
    return name.lower().startswith(RESERVED)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            "headers: a name must be 1 to 64 characters out of letters, digits, '_', '.' and '-', "
            f"the first one a letter or a digit, found {name!r}"
        )
    if is_reserved(name):
        raise ValueError(
            f"headers: names that begin with {RESERVED!r} are reserved, found {name!r}: choose "
            "another one"
        )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"headers: expected text that UTF-8 can encode, found {text!r}") from None

"""Patterns of names, with `*` for any text: `billing.*`.

`match` runs when tasks are declared, not for every job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_PATTERN: Final = r"[^\s\x00-\x1f]{1,200}"


def check_pattern(pattern: object) -> str:
    if isinstance(pattern, str) and re.fullmatch(_PATTERN, pattern):
        return pattern
    raise ValueError(
        f"a pattern such as 'billing.*', of 1 to 200 characters without spaces, found {pattern!r}"
    )


def match(pattern: str, name: str) -> bool:
    return _compiled(pattern).fullmatch(name) is not None


def first_match(patterns: Iterable[str], name: str) -> str | None:
    return next((pattern for pattern in patterns if match(pattern, name)), None)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)

"""Split a file of named SQL statements: each begins with `-- name: insert_job`, then comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def split_statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each statement, and its text without comments."""
    _, *blocks = _NAME.split(text)
    for name, block in zip(blocks[::2], blocks[1::2], strict=True):
        lines = [line for line in block.splitlines() if not line.startswith("--")]
        yield name, "\n".join(lines).strip()

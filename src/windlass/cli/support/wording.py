"""Words that every command uses alike: ages, counts, names of errors, and how it was called."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from windlass.core.durations import describe_ms
from windlass.core.failures import FailureText
from windlass.core.plurals import count as count

#: Of jobs: an empty place looks like the right one, unless it is said that it was never used.
NEVER_STORED: Final = (
    "none was ever stored here: if there should be some, look at the url, and on Redis at its "
    "database and namespace"
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def age(instant: datetime | None, now: datetime | None = None) -> str:
    """How long ago, or how far ahead; ages that are compared are given the same `now`."""
    if instant is None:
        return ""
    distance_ms = int(((now or datetime.now(UTC)) - instant).total_seconds() * 1000)
    return f"in {span(-distance_ms)}" if distance_ms < 0 else f"{span(distance_ms)} ago"


def span(ms: int) -> str:
    """A duration in its two largest units; milliseconds only where there is nothing larger."""
    for unit_ms, smaller_ms in pairwise(_UNITS_MS):
        if ms >= unit_ms:
            return describe_ms(ms // smaller_ms * smaller_ms)
    return describe_ms(ms // 1_000 * 1_000 if ms >= 1_000 else ms)


def sentence(text: object) -> str:
    """With a mark at its end, if it has none."""
    return str(text) if str(text).endswith((".", "?", "!")) else f"{text}."


def more_than(limit: int) -> str:
    these = "this one" if limit == 1 else f"these {limit:,}"
    return f"There are more than {these}: give a larger --limit to see them."


def summary_of(error: FailureText) -> str:
    """The kind of an error and the first line of its message."""
    kind = error.name
    first, *others = error.message.splitlines() or [""]
    return ": ".join(part for part in (kind, first) if part) + (" ..." if others else "")


def program() -> str:
    """This command as it was typed, so that a hint can be copied: its bare name only where the
    shell finds this one by it."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{_typed(Path(sys.executable))} -m windlass"
    return _typed(script)


def _typed(executable: Path) -> str:
    path = os.path.abspath(executable)
    found = shutil.which(executable.name)
    if found is not None and os.path.abspath(found) == path:
        return executable.name
    if Path(path).is_relative_to(Path.cwd()):
        relative = os.path.relpath(path)
        path = relative if os.sep in relative else os.path.join(".", relative)
    return shlex.quote(path)

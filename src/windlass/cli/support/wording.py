"""Texts that commands share: ages, times, rates, counts, and the name of the program."""

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
from windlass.core.quantities import count as count
from windlass.engine.contract import Stats

#: Totals that only grow where jobs are stored. Copied jobs do not count as enqueued.
_STORED: Final = ("enqueued", "succeeded", "dead", "cancelled")
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def age(instant: datetime | None, now: datetime | None = None) -> str:
    """Describe how far an instant is from now. Ages that are compared need the same `now`."""
    if instant is None:
        return ""
    distance_ms = int(((now or datetime.now(UTC)) - instant).total_seconds() * 1000)
    return f"in {span(-distance_ms)}" if distance_ms < 0 else f"{span(distance_ms)} ago"


def span(ms: int) -> str:
    """Describe a duration in its two largest units, with milliseconds only if short."""
    for unit_ms, smaller_ms in pairwise(_UNITS_MS):
        if ms >= unit_ms:
            return describe_ms(ms // smaller_ms * smaller_ms)
    return describe_ms(ms // 1_000 * 1_000 if ms >= 1_000 else ms)


def seconds(value_s: float | None) -> str:
    """Describe a measured time: three digits below a minute; nothing if it is not known."""
    if value_s is None:
        return ""
    if value_s < 1:
        return f"{value_s * 1000:.3g}ms"
    return f"{value_s:.3g}s" if value_s < 60 else span(int(value_s * 1000))


def rate(per_second: float) -> str:
    """Describe a rate per second: three digits if it is small, whole numbers if it is large."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def share(value: float | None) -> str:
    """Describe a share in per cent; nothing if it is not known."""
    return "" if value is None else f"{value * 100:.3g}%"


def never_stored(location: str) -> str:
    """A hint for an engine that was never used, because the url may be wrong."""
    is_file = location.startswith("sqlite")
    parts = "the path in the url" if is_file else "the url: host, database, schema or namespace"
    return f"none was ever stored here: if there should be some, check {parts}"


def has_stored(stats: Stats) -> bool:
    """Whether a job was ever stored: enqueued there, or copied from another engine."""
    return bool(stats.queues) or any(stats.totals.get(name) for name in _STORED)


def sentence(text: object) -> str:
    """Add a full stop, unless the text ends with a punctuation mark."""
    return str(text) if str(text).endswith((".", "?", "!")) else f"{text}."


def clock(at: datetime) -> str:
    return at.astimezone().isoformat(sep=" ", timespec="milliseconds")


def program() -> str:
    """Return this command as it was typed, so that a hint can be copied. The bare name is used only
    if the shell finds this program by it."""
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

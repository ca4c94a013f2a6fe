"""The figures of `make bench` that are promised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.measures import MEASURES

#: figure -> (at least, at most)
PROMISED: Final[dict[str, tuple[float, float]]] = {
    "drain, one child, sync, full": (10_000, float("inf")),
    "drain, one child, async, full": (10_000, float("inf")),
    "pick-up p50": (0, 10),
    "idle CPU of a whole worker": (0, 1),
    "import windlass": (0, 80),
}
RUN: Final = ("drain-sync-full", "drain-async-full", "pick-up", "idle", "import")


def prove(_folder: Path) -> Iterator[str]:
    broken = []
    for figure in (figure for name in RUN for figure in MEASURES[name]()):
        least, most = PROMISED.get(figure.name, (0, float("inf")))
        yield f"{figure.name}: {figure.value:,.2f} {figure.unit}"
        if not least <= figure.value <= most:
            broken.append(figure.name)
    assert not broken, f"not as promised: {', '.join(broken)}"

"""The guaranteed figures of `make bench`, one proof per setting. The guarantee is for the median
of several runs, as in the README: a single run depends too much on the load of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.measures import MEASURES, NO_ENGINE
from benchmarks.page import shown
from benchmarks.repeating import repeat

#: figure and setting -> (at least, at most). A drain has one child with ten slots.
PROMISED: Final[dict[tuple[str, str], tuple[float, float]]] = {
    ("drain, one child, sync", "sqlite full"): (10_000, float("inf")),
    ("drain, one child, async", "sqlite full"): (10_000, float("inf")),
    ("drain, one child, sync", "redis everysec"): (20_000, float("inf")),
    ("drain, one child, sync", "postgres fsync"): (10_000, float("inf")),
    ("pick-up p50", "sqlite full"): (0, 10),
    ("pick-up p50", "redis everysec"): (0, 1),
    ("pick-up p50", "postgres fsync"): (0, 10),
    ("idle CPU of a whole worker", "sqlite full"): (0, 1),
    ("idle CPU of a whole worker", "redis everysec"): (0, 1),
    ("idle CPU of a whole worker", "postgres fsync"): (0, 1),
    ("import windlass", NO_ENGINE): (0, 80),
}
RUNS: Final = 3
RUN: Final = ("drain-sync", "drain-async", "pick-up", "idle", "import")


def prove_sqlite(_folder: Path) -> Iterator[str]:
    return _prove("sqlite full")


def prove_redis(_folder: Path) -> Iterator[str]:
    return _prove("redis everysec")


def prove_postgres(_folder: Path) -> Iterator[str]:
    return _prove("postgres fsync")


def prove_import(_folder: Path) -> Iterator[str]:
    return _prove(NO_ENGINE)


def _prove(setting: str) -> Iterator[str]:
    broken = []
    for name in (name for name in RUN if setting in MEASURES[name].settings):
        for figure in repeat(name, setting, RUNS):
            about = f"{figure.name}, {setting}".rstrip(", ")
            least, most = PROMISED.get((figure.name, setting), (0, float("inf")))
            spread = f"{shown(figure.least)} .. {shown(figure.most)}"
            yield f"{about}: {shown(figure.value)} {figure.unit} ({spread})"
            if not least <= figure.value <= most:
                broken.append(about)
    assert not broken, f"not as promised: {', '.join(broken)}"

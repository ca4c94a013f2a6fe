"""Repeat a benchmark: a shared machine is slower in some minutes."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

from benchmarks.measures import MEASURES, Taken
from benchmarks.page import Figure


def repeat(name: str, setting: str, runs: int) -> Iterator[Figure]:
    """The median and range of every figure of a benchmark over `runs` runs."""
    taken: dict[str, list[Taken]] = {}
    for run in range(runs):
        print(f"{name} {setting}, run {run + 1} of {runs} ...", file=sys.stderr)
        for figure in MEASURES[name].take(setting):
            taken.setdefault(figure.name, []).append(figure)
    for figures in taken.values():
        values = [figure.value for figure in figures]
        median = statistics.median(values)
        yield Figure(figures[0].name, setting, median, min(values), max(values), figures[0].unit)

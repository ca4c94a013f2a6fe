"""Compare two sets of measurements: medians, spreads and ratios.

A ratio below 1 means worse, for rates and for costs alike: it is new by old for jobs a second, and
old by new for milliseconds, microseconds and bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from benchmarks.page import shown

#: The only unit in which a larger value is better.
_RATE: Final = "jobs/s"


class Samples(msgspec.Struct, frozen=True):
    """All values of one figure, in the order in which they were taken."""

    name: str
    setting: str
    unit: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The distance between the least and the most, as a part of the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


class Comparison(msgspec.Struct, frozen=True):
    old: Samples
    new: Samples
    ratio: float


def compare(
    old: Iterable[Samples], new: Iterable[Samples], *, is_paired: bool = False
) -> list[Comparison]:
    """Compare the figures that both sides have. Runs that took turns are compared in pairs, so that
    a machine that becomes slower meanwhile changes no ratio."""
    known = {(samples.name, samples.setting): samples for samples in old}
    pairs = [(known.get((samples.name, samples.setting)), samples) for samples in new]
    return [
        Comparison(before, after, _ratio(before, after, is_paired=is_paired))
        for before, after in pairs
        if before is not None
    ]


def _ratio(old: Samples, new: Samples, *, is_paired: bool) -> float:
    if is_paired:
        pairs = zip(old.values, new.values, strict=True)
        return statistics.median(_gain(before, after, new.unit) for before, after in pairs)
    return _gain(old.median, new.median, new.unit)


def _gain(old: float, new: float, unit: str) -> float:
    better, worse = (new, old) if unit == _RATE else (old, new)
    return better / worse if worse else 1.0


def worse_than(comparisons: Sequence[Comparison], least: float) -> list[Comparison]:
    return [one for one in comparisons if one.ratio < least]


def table(comparisons: Sequence[Comparison]) -> str:
    rows = [("figure", "old", "new", "unit", "spread", "ratio")]
    for one in comparisons:
        spread = f"{one.old.spread:.0%} {one.new.spread:.0%}"
        name = f"{one.new.name}, {one.new.setting}"
        values = (shown(one.old.median), shown(one.new.median))
        rows.append((name, *values, one.new.unit, spread, f"{one.ratio:.2f}"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
    return "  ".join(cells)

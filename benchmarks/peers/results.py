"""The results of a run: all values of all rounds, and the machine and systems."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec


class Series(msgspec.Struct):
    """The values of one measure of one system, a value per round."""

    system: str
    measure: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)


class Measured(msgspec.Struct, frozen=True):
    """A system that took part, as it was installed."""

    name: str
    title: str
    versions: dict[str, str]
    settings: str
    store: str
    language: str
    is_ours: bool


class MissingSystem(msgspec.Struct, frozen=True):
    """A system, or one workload of it, without figures."""

    name: str
    reason: str


class PeerResults(msgspec.Struct):
    """All values of a run, as they are stored."""

    machine: dict[str, str]
    runs: int
    is_quick: bool
    minutes: float
    recovery_s: float  # how long a second worker had after a kill
    systems: list[Measured]
    series: list[Series]
    left_out: list[MissingSystem]

    def find(self, system: str, measure: str) -> Series | None:
        for series in self.series:
            if (series.system, series.measure) == (system, measure):
                return series
        return None

    def median(self, system: str, measure: str) -> float | None:
        series = self.find(system, measure)
        return series.median if series else None

    def add(self, system: str, taken: dict[str, float]) -> None:
        for measure, value in taken.items():
            series = self.find(system, measure)
            if series is None:
                series = Series(system, measure, [])
                self.series.append(series)
            series.values.append(value)


def merge(parts: Sequence[PeerResults]) -> PeerResults:
    """Join runs on one machine: later ones add rounds to the first, of some or all workloads."""
    merged, *others = parts
    for other in others:
        merged.minutes += other.minutes
        merged.left_out += [one for one in other.left_out if one not in merged.left_out]
        for series in other.series:
            for value in series.values:
                merged.add(series.system, {series.measure: value})
    merged.runs = max((len(series.values) for series in merged.series), default=merged.runs)
    return merged


def read_results(path: Path) -> PeerResults:
    return msgspec.json.decode(path.read_bytes(), type=PeerResults)


def write_results(path: Path, results: PeerResults) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")

"""The measured points, as JSON: read by the page and the charts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from benchmarks.page import ROOT, Machine

RESULTS: Final = ROOT / "benchmarks" / "scale-results.json"


class EngineTimes(msgspec.Struct, frozen=True):
    """What one engine did at one size."""

    put_rate: float  # jobs a second, in batches of 500
    drain_rate: float  # jobs a second, in turns of 50
    drain_cpu_us: float  # CPU time of this process and the server for each drained job
    claim_p50_ms: float  # turns that end one job and claim one
    claim_p99_ms: float


class Point(msgspec.Struct, frozen=True):
    """One size, and a small engine of the same kind that took turns with it."""

    engine: str
    case: str  # ready, scheduled, finished, mixed, queues
    size: int
    large: EngineTimes
    small: EngineTimes
    check_s: float | None = None
    checked_jobs: int = 0  # all records: the backlog, and what was drained to measure

    @property
    def drain_ratio(self) -> float:
        return self.large.drain_rate / self.small.drain_rate

    @property
    def cpu_ratio(self) -> float:
        """The most reliable figure on a machine that does other work meanwhile."""
        return self.large.drain_cpu_us / self.small.drain_cpu_us

    @property
    def p99_ratio(self) -> float:
        return self.large.claim_p99_ms / self.small.claim_p99_ms

    @property
    def check_s_per_million(self) -> float | None:
        return None if self.check_s is None else self.check_s / self.checked_jobs * 1e6


class Effort(msgspec.Struct, frozen=True):
    """How much was measured at each size."""

    jobs: int  # put and drained in each round
    claims: int
    rounds: int


class ScaleResults(msgspec.Struct, frozen=True):
    machine: Machine
    effort: Effort
    points: list[Point]


def read_results(path: Path = RESULTS) -> ScaleResults:
    return msgspec.json.decode(path.read_bytes(), type=ScaleResults)


def write_results(results: ScaleResults, path: Path = RESULTS) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")

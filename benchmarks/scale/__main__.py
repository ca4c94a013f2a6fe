"""`python -m benchmarks.scale`: measure engines with growing backlogs; write JSON, page and charts.

The whole run takes hours, mostly to fill ten million jobs; `--quick` takes some minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from benchmarks.scale.loaded_engine import LoadedEngine, measure, open_loaded_engine, show
from benchmarks.scale.page import write_page
from benchmarks.scale.results import RESULTS, Effort, Point, ScaleResults, write_results
from benchmarks.stage import can_measure

#: Without a sync per commit: the speed of the disk would hide what grows.
ENGINES: Final = {"sqlite": "sqlite normal", "redis": "redis everysec"}
CASES: Final = ("ready", "scheduled", "finished", "mixed", "queues")
SIZES: Final = (1_000, 100_000, 1_000_000, 10_000_000)
QUICK_SIZES: Final = (1_000, 10_000, 100_000)
QUEUES: Final = (1, 100, 1_000, 10_000)
#: The backlog of the small engine.
SMALL: Final = 1_000
_JOBS_PER_QUEUE: Final = 5


def main() -> None:
    arguments = _arguments()
    points: list[Point] = []
    for engine in arguments.on or filter(can_measure, ENGINES):
        for case in arguments.case or CASES:
            for point in _measure_case(engine, case, arguments):
                points.append(point)
                # After each point: a long run may be ended early.
                write_results(ScaleResults(machine(), _effort(arguments), points), arguments.json)
                show(_line(point))
    if arguments.page:
        write_page(ScaleResults(machine(), _effort(arguments), points))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--on", action="append", choices=ENGINES, help="engine; all by default")
    parser.add_argument("--case", action="append", choices=CASES, help="backlog; all by default")
    parser.add_argument("--size", action="append", type=int, help="jobs; several are possible")
    parser.add_argument("--quick", action="store_true", help=f"sizes {QUICK_SIZES}, fewer jobs")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks/scale.md")
    return parser.parse_args()


def _measure_case(engine: str, case: str, arguments: argparse.Namespace) -> Iterator[Point]:
    sizes = sorted(arguments.size or (QUICK_SIZES if arguments.quick else SIZES))
    if case == "queues":
        for number in sorted(size for size in QUEUES if size <= max(sizes)):
            yield _of_queues(engine, number, arguments)
        return
    if case == "mixed":
        sizes = sizes[-1:]
    with open_loaded_engine(ENGINES[engine]) as large:
        filled = 0
        for size in sizes:
            for part in ("ready", "scheduled") if case == "mixed" else (case,):
                large.fill(part, size - filled, f"{engine}, {case}")
            filled = size
            yield _compare(engine, case, size, large, arguments)


def _of_queues(engine: str, number: int, arguments: argparse.Namespace) -> Point:
    with open_loaded_engine(ENGINES[engine], queues=number) as large:
        large.fill("ready", max(SMALL, number * _JOBS_PER_QUEUE), f"{engine}, {number} queues")
        return _compare(engine, "queues", number, large, arguments)


def _compare(
    engine: str, case: str, size: int, large: LoadedEngine, arguments: argparse.Namespace
) -> Point:
    """Let the large engine take turns with a new small one."""
    with open_loaded_engine(ENGINES[engine]) as small:
        small.fill("ready", SMALL, f"{engine}, small")
        found = measure([small, large], _effort(arguments))
    if case == "queues":
        return Point(engine, case, size, found[1], found[0])
    return Point(engine, case, size, found[1], found[0], _check_s(large), _records(large))


def _effort(arguments: argparse.Namespace) -> Effort:
    return Effort(2_000, 300, 3) if arguments.quick else Effort(10_000, 1_000, 5)


def _records(large: LoadedEngine) -> int:
    return sum(sum(states.values()) for states in large.engine.stats().queues.values())


def _check_s(large: LoadedEngine) -> float:
    started = time.perf_counter()
    problems: Sequence[str] = large.engine.check()
    if problems:
        raise AssertionError(f"check found {problems[:3]}")
    return time.perf_counter() - started


def _line(point: Point) -> str:
    return (
        f"{point.engine}, {point.size:,} {point.case}: drain {point.large.drain_rate:,.0f}/s "
        f"(x{point.drain_ratio:.2f}), CPU {point.large.drain_cpu_us:.1f} us/job "
        f"(x{point.cpu_ratio:.2f}), claim p99 {point.large.claim_p99_ms:.2f} ms "
        f"(x{point.p99_ratio:.2f})"
    )


if __name__ == "__main__":
    main()

"""`python -m benchmarks`: measure, print a table, and keep the figures as JSON if asked to."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from pathlib import Path

import apsw
import msgspec

from benchmarks.measures import MEASURES, Figure
from benchmarks.page import Machine, Results, shown, write_results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument("--runs", type=int, default=1, help="repeat, and give the median")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--publish", action="store_true", help="renew the figures in the README")
    arguments = parser.parse_args()
    unknown = set(arguments.measures) - set(MEASURES)
    if unknown:
        parser.error(f"expected some of {', '.join(MEASURES)}, found {', '.join(unknown)}")
    if arguments.publish and arguments.measures:
        parser.error("--publish takes all measures: leave out their names")
    names = arguments.measures or list(MEASURES)
    figures = [figure for name in names for figure in repeat(name, arguments.runs)]
    results = Results(machine(), arguments.runs, figures)
    print_table(figures)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    if arguments.publish:
        write_results(results)


def repeat(name: str, runs: int) -> list[Figure]:
    """The median of every figure of a measure over so many runs."""
    taken: dict[str, list[Figure]] = {}
    for run in range(runs):
        print(f"{name}, run {run + 1} of {runs} ...", file=sys.stderr)
        for figure in MEASURES[name]():
            taken.setdefault(figure.name, []).append(figure)
    return [
        Figure(name, statistics.median(figure.value for figure in figures), figures[0].unit)
        for name, figures in taken.items()
    ]


def print_table(figures: list[Figure]) -> None:
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        print(f"{figure.name.ljust(width)}  {shown(figure.value).rjust(10)}  {figure.unit}")


def machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        system=platform.system(),
        sqlite=apsw.sqlite_lib_version(),
    )


main()

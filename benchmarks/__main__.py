"""`python -m benchmarks [--json FILE] [--runs N] [MEASURE ...]`: run, print a table, keep JSON."""

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument("--runs", type=int, default=1, help="repeat, and give the median")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    unknown = set(arguments.measures) - set(MEASURES)
    if unknown:
        parser.error(f"expected some of {', '.join(MEASURES)}, found {', '.join(unknown)}")
    figures = [
        figure for name in arguments.measures or MEASURES for figure in repeat(name, arguments.runs)
    ]
    print_table(figures)
    if arguments.json:
        document = {"machine": machine(), "runs": arguments.runs, "figures": figures}
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


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
        value = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:,.2f}"
        print(f"{figure.name.ljust(width)}  {value.rjust(10)}  {figure.unit}")


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "sqlite": apsw.sqlite_lib_version(),
    }


main()

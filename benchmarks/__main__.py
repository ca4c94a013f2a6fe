"""`python -m benchmarks`: measure, print a table, and keep the figures as JSON if asked to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.measures import MEASURES, NO_ENGINE
from benchmarks.page import Figure, Results, encode, shown, write_results
from benchmarks.repeating import repeat
from benchmarks.stage import SETTINGS, can_measure, compile_sources


def main() -> None:
    arguments = _arguments()
    compile_sources()
    settings = [*(arguments.on or _possible_settings()), NO_ENGINE]
    names = arguments.measures or list(MEASURES)
    figures = [figure for name in names for figure in measure(name, settings, arguments.runs)]
    results = Results(machine(), arguments.runs, figures)
    print_table(figures)
    if arguments.json:
        arguments.json.write_bytes(encode(results))
    if arguments.publish:
        write_results(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument(
        "--on", action="append", choices=SETTINGS, metavar="SETTING", help=", ".join(SETTINGS)
    )
    parser.add_argument("--runs", type=int, default=1, help="repeat, and give the median")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--publish", action="store_true", help="renew the figures in the README")
    arguments = parser.parse_args()
    unknown = set(arguments.measures) - set(MEASURES)
    if unknown:
        parser.error(f"expected some of {', '.join(MEASURES)}, found {', '.join(unknown)}")
    is_whole = not arguments.measures and not arguments.on
    if arguments.publish and not (is_whole and all(map(can_measure, SETTINGS))):
        parser.error(
            "--publish takes all measures on all settings: it needs a redis-server and PostgreSQL"
        )
    return arguments


def _possible_settings() -> list[str]:
    left_out = [setting for setting in SETTINGS if not can_measure(setting)]
    if left_out:
        print(f"Left out, because there is no server here: {', '.join(left_out)}", file=sys.stderr)
    return [setting for setting in SETTINGS if setting not in left_out]


def measure(name: str, settings: Sequence[str], runs: int) -> Iterator[Figure]:
    for setting in MEASURES[name].settings:
        if setting in settings:
            yield from repeat(name, setting, runs)


def print_table(figures: Sequence[Figure]) -> None:
    """A line for each: the median, then the least and the most."""
    names = [f"{figure.name}, {figure.setting}".rstrip(", ") for figure in figures]
    width = max(map(len, names))
    for name, figure in zip(names, figures, strict=True):
        spread = f"({shown(figure.least)} .. {shown(figure.most)})"
        print(f"{name.ljust(width)}  {shown(figure.value).rjust(9)} {figure.unit}  {spread}")


main()

"""`python -m benchmarks.peers`: measure windlass next to other task queues.

python -m benchmarks.peers --json build/peers.json   measure, and keep the values
python -m benchmarks.peers --page build/peers.json   write the page, its charts and the README
python -m benchmarks.peers --store postgres          measure only systems on PostgreSQL
                           --store postgres-snapshot the same while an old snapshot is open
                           --store postgres-finished windlass with ten million finished jobs
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.page import shown
from benchmarks.peers.environments import ROOT
from benchmarks.peers.measures import MEASURES
from benchmarks.peers.page import write_all
from benchmarks.peers.processes import kill_all
from benchmarks.peers.reference import earlier, is_suspect
from benchmarks.peers.results import PeerResults, merge, read_results
from benchmarks.peers.session import PeerRun
from benchmarks.peers.stores import STORES, close_stores
from benchmarks.peers.subjects import QUICK, Sizes
from benchmarks.peers.systems import SYSTEMS, USUAL, System
from benchmarks.peers.workloads import WORKLOADS
from benchmarks.stage import compile_sources

#: Of the table in a file or a pipe.
WIDTH: Final = 120


def main() -> None:
    arguments = _arguments()
    if arguments.page:
        for file in write_all(merge([read_results(file) for file in arguments.page])):
            print(f"wrote {file.relative_to(ROOT)}")
    else:
        print_table(measure(arguments))


def measure(arguments: argparse.Namespace) -> PeerResults:
    compile_sources()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sizes = QUICK if arguments.quick else Sizes()
    session = PeerRun(arguments.runs, sizes, is_quick=arguments.quick)
    try:
        subjects = session.install(chosen(arguments.only, arguments.store))
        session.measure(subjects, arguments.workload or list(WORKLOADS), arguments.json)
    finally:
        close_stores()
        kill_all()
    return session.results


def chosen(names: Sequence[str] | None, stores: Sequence[str] | None) -> list[System]:
    """The systems with these names, or on these stores; else all without a burden."""
    if stores is None:
        return [SYSTEMS[name] for name in names or USUAL]
    return [SYSTEMS[name] for name in names or SYSTEMS if SYSTEMS[name].store in stores]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", choices=SYSTEMS, metavar="SYSTEM", help=", ".join(SYSTEMS)
    )
    parser.add_argument(
        "--store", nargs="+", choices=STORES, metavar="STORE", help=", ".join(STORES)
    )
    parser.add_argument(
        "--workload", nargs="+", choices=WORKLOADS, metavar="NAME", help=", ".join(WORKLOADS)
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds; the median is shown")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file")
    parser.add_argument(
        "--page",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="measure nothing; write the page from a file, or from several with more rounds",
    )
    return parser.parse_args()


def print_table(results: PeerResults) -> None:
    """The median and the range of every figure, and a flag at suspect ones."""
    table = Table("system", "measure", "median", "range", "unit", "")
    for series in sorted(results.series, key=lambda one: list(MEASURES).index(one.measure)):
        spread = f"{shown(series.least)} .. {shown(series.most)}"
        unit = MEASURES[series.measure].unit
        table.add_row(
            series.system,
            series.measure,
            shown(series.median),
            spread,
            unit,
            _flag(series.system, series.measure, series.median),
        )
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def _flag(system: str, measure: str, value: float) -> str:
    if not is_suspect(system, measure, value):
        return ""
    return f"[red]suspect: was {shown(earlier(system, measure) or 0)}[/red]"


if __name__ == "__main__":
    main()

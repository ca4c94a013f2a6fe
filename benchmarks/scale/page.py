"""Write the page docs/benchmarks/scale.md and its charts from the stored results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.page import ROOT, shown
from benchmarks.scale.chart import draw, short
from benchmarks.scale.results import Point, ScaleResults

FOLDER: Final = ROOT / "docs" / "benchmarks"
#: file -> title, unit, and the value of a point
CHARTS: Final[dict[str, tuple[str, str, Callable[[Point], float]]]] = {
    "scale-drain.svg": ("Drain by backlog", "jobs/s by jobs", lambda one: one.large.drain_rate),
    "scale-claim.svg": ("Claim p99 by backlog", "ms by jobs", lambda one: one.large.claim_p99_ms),
    "scale-queues.svg": (
        "Claim p99 by queues",
        "ms by queues",
        lambda one: one.large.claim_p99_ms,
    ),
}
_INTRODUCTION: Final = """\
`make bench-scale` writes this page. Each line is an engine with a backlog, which takes turns with a
small engine of the same kind with 1,000 ready jobs; `x` is large by small. The engine is called in
one process without a worker. A drain ends and claims 50 jobs per call, a claim one. CPU is that of
this process and of the server in a drain: other work on the machine changes it least."""
_CASES: Final = {
    "ready": "ready jobs",
    "scheduled": "scheduled jobs",
    "finished": "finished jobs",
    "mixed": "ready, and as many scheduled",
    "queues": "queues, 5 jobs each",
}


def write_page(results: ScaleResults, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale.md").write_text(page(results), encoding="utf-8")
    for file, (title, unit, value_of) in CHARTS.items():
        series = _series(results, value_of, of_queues=file == "scale-queues.svg")
        if series:
            (folder / file).write_text(draw(title, unit, series), encoding="utf-8")


def _series(
    results: ScaleResults, value_of: Callable[[Point], float], *, of_queues: bool
) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for point in results.points:
        if (point.case == "queues") == of_queues and point.case != "mixed":
            name = f"{point.engine}, {point.case}"
            series.setdefault(name, []).append((point.size, value_of(point)))
    return series


def page(results: ScaleResults) -> str:
    machine = results.machine
    return "\n".join(
        [
            "# Scaling",
            "",
            _INTRODUCTION,
            "",
            "![Drain by backlog](scale-drain.svg)",
            "",
            "![Claim p99 by backlog](scale-claim.svg)",
            "",
            "![Claim p99 by queues](scale-queues.svg)",
            "",
            "| engine | backlog | of | put, jobs/s | drain, jobs/s | x | CPU, us/job | x "
            "| claim p99, ms | x | check, s per million |",
            "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *_rows(results),
            "",
            f"Medians of {results.effort.rounds} rounds, each with {results.effort.jobs:,} drained "
            f"jobs and {results.effort.claims:,} claims. With 1,000 ready jobs both engines are "
            "equal: the distance of those lines from 1 is the noise of the run.",
            "",
            f"{machine.cores} cores, {machine.system}, Python {machine.python}, SQLite "
            f"{machine.sqlite} (*normal*), Redis {machine.redis} (*everysec*).",
            "",
        ]
    )


def _rows(results: ScaleResults) -> Iterator[str]:
    for one in results.points:
        check = "" if one.check_s_per_million is None else shown(one.check_s_per_million)
        cells = (
            one.engine,
            short(one.size),
            _CASES[one.case],
            shown(one.large.put_rate),
            shown(one.large.drain_rate),
            f"{one.drain_ratio:.2f}",
            shown(one.large.drain_cpu_us),
            f"{one.cpu_ratio:.2f}",
            shown(one.large.claim_p99_ms),
            f"{one.p99_ratio:.2f}",
            check,
        )
        yield f"| {' | '.join(cells)} |"

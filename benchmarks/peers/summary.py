"""The short comparison in the README, between its markers. No other module edits it."""

from __future__ import annotations

from typing import Final

from benchmarks.page import README, shown
from benchmarks.peers.results import PeerResults
from benchmarks.peers.targets import best

BEGIN: Final = "<!-- peers:begin -->\n"
END: Final = "<!-- peers:end -->"
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "enqueue, jobs/s": ("enqueue",),
    "bulk, jobs/s": ("bulk",),
    "drain, one process, jobs/s": ("drain-sync-1", "drain-async-1"),
    "CPU, us/job": ("cpu-sync-1", "cpu-async-1"),
    "pick-up p50, ms": ("pick-up-p50",),
    "bytes per job": ("stored",),
    "unfinished after kill -9, of 20": ("unfinished",),
}


def write_readme(results: PeerResults) -> None:
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + summary(results) + END + after, encoding="utf-8")


def summary(results: PeerResults) -> str:
    lines = [f"| system | {' | '.join(_COLUMNS)} |", f"| --- |{' ---: |' * len(_COLUMNS)}"]
    for system in results.systems:
        cells = [_cell(results, system.name, measures) for measures in _COLUMNS.values()]
        name = f"**{system.title}**" if system.is_ours else system.title
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = (
        f"Medians of up to {results.runs} rounds on {results.machine['cores']} cores, by "
        "`make bench-peers`. [All figures](docs/benchmarks/README.md), with ranges, settings and "
        "where windlass is behind, also [on PostgreSQL](docs/benchmarks/postgres.md)."
    )
    return "\n".join([*lines, "", note, ""])


def _cell(results: PeerResults, system: str, measures: tuple[str, ...]) -> str:
    found = best(results, (system,), measures)
    if found is None:
        return ""
    return f"{found[1]:,.0f}" if measures == ("unfinished",) else shown(found[1])

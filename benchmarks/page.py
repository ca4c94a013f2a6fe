"""The figures in the README: made of the stored results by this module, and by nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measures import Figure

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results.json"
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- figures:begin -->\n"
END: Final = "<!-- figures:end -->"


class Machine(msgspec.Struct, frozen=True):
    cores: int
    python: str
    system: str
    sqlite: str


class Results(msgspec.Struct, frozen=True):
    """What a run of the benchmarks found."""

    machine: Machine
    runs: int
    figures: list[Figure]


def read_results() -> Results:
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results)


def write_results(results: Results) -> None:
    """Keep the results, and put them into the README."""
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + table(results) + END + after, encoding="utf-8")


def table(results: Results) -> str:
    rows = [
        f"| {figure.name} | {shown(figure.value)} | {figure.unit} |" for figure in results.figures
    ]
    machine = results.machine
    note = (
        f"{_runs(results.runs)} on {machine.cores} cores, {machine.system}, "
        f"Python {machine.python}, SQLite {machine.sqlite}. A job is a no-op with one argument. "
        "Pick-up is counted from the call of `enqueue`, its commit included. *full* and *normal* "
        "are the durability of the database."
    )
    return "\n".join(["| what | figure | unit |", "| --- | ---: | --- |", *rows, "", note, ""])


def _runs(number: int) -> str:
    return "One run" if number == 1 else f"Medians of {number} runs"


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"

"""Write the stored results into the README. No other module edits the figures there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measures import NO_ENGINE
from benchmarks.stage import SETTINGS

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results.json"
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- figures:begin -->\n"
END: Final = "<!-- figures:end -->"
_ENGINES: Final = {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL"}


class Machine(msgspec.Struct, frozen=True):
    cores: int
    python: str
    system: str
    sqlite: str
    redis: str
    postgres: str = ""


class Figure(msgspec.Struct, frozen=True):
    """One measured number: the median of all runs, and their range."""

    name: str
    setting: str
    value: float
    least: float
    most: float
    unit: str


class Results(msgspec.Struct, frozen=True):
    """The results of one benchmark run."""

    machine: Machine
    runs: int
    figures: list[Figure]


def read_results() -> Results:
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results)


def write_results(results: Results) -> None:
    """Store the results, and write them into the README."""
    RESULTS.write_bytes(encode(results))
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + table(results) + END + after, encoding="utf-8")


def encode(results: Results) -> bytes:
    return msgspec.json.format(msgspec.json.encode(results)) + b"\n"


def table(results: Results) -> str:
    measured = {figure.setting for figure in results.figures}
    settings = [setting for setting in SETTINGS if setting in measured]
    heads = [_head(setting) for setting in settings]
    lines = [
        f"| what | unit | {' | '.join(heads)} |",
        f"| --- | --- |{' ---: |' * len(heads)}",
        *_rows(results.figures, settings),
    ]
    return "\n".join([*lines, "", _note(results), ""])


def _rows(figures: list[Figure], settings: Sequence[str]) -> Iterator[str]:
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        if figure.setting != NO_ENGINE:
            rows.setdefault((figure.name, figure.unit), {})[figure.setting] = figure
    for (name, unit), taken in rows.items():
        cells = [shown(taken[setting].value) if setting in taken else "" for setting in settings]
        yield f"| {name} | {unit} | {' | '.join(cells)} |"


def _head(setting: str) -> str:
    engine, care = setting.split()
    return f"{_ENGINES[engine]} *{care}*"


def _note(results: Results) -> str:
    machine = results.machine
    alone = [
        f"`{figure.name}` takes {shown(figure.value)} {figure.unit}."
        for figure in results.figures
        if figure.setting == NO_ENGINE
    ]
    sentences = [
        f"{_runs(results.runs)} on {machine.cores} cores, {machine.system}, Python "
        f"{machine.python}, SQLite {machine.sqlite}, Redis {machine.redis}"
        f"{machine.postgres and f', PostgreSQL {machine.postgres}'}; server, worker and producer "
        "share the cores.",
        "A job is a no-op with one argument, a drain has one child with ten slots, and pick-up is "
        "counted from the call of `enqueue`, its commit included.",
        "*full*, *always* and *fsync* sync to the disk before they confirm, *normal* and "
        "*everysec* later.",
        *alone,
    ]
    return " ".join(sentences)


def _runs(number: int) -> str:
    return "One run" if number == 1 else f"Medians of {number} runs"


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"

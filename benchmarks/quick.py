"""`python -m benchmarks.quick`: windlass alone, on all engines, in about four minutes, as ratios.

1. Without options, compare with the baseline of this machine in build/bench-baseline.json. The
   first run stores the baseline; `--save` replaces it.
2. With `--baseline REV`, build that revision in a git worktree with its own environment, and let
   old and new take turns: the check for regressions.
3. With `--fail-under`, exit with 1 if a ratio is lower.

Each measurement is a separate process, with the interpreter of its side and the benchmarks of this
tree.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.comparison import Samples, compare, table, worse_than
from benchmarks.measures import MEASURES, Taken
from benchmarks.page import ROOT
from benchmarks.stage import can_measure, compile_sources

BASELINE: Final = ROOT / "build" / "bench-baseline.json"
REVISIONS: Final = ROOT / "build" / "revisions"
MEASURED: Final = (
    "enqueue-single",
    "enqueue-bulk",
    "enqueue-keyed",
    "drain-sync",
    "drain-queues",
    "pick-up",
    "stored",
)
SETTINGS: Final = ("sqlite full", "redis everysec", "postgres fsync")
#: Figures of these measures that say too little in a short run.
_LEFT_OUT: Final = ("pick-up p99",)

_decode_taken: Final = msgspec.json.Decoder(list[tuple[str, float, str]]).decode


class Baseline(msgspec.Struct, frozen=True):
    revision: str
    samples: list[Samples]


def main() -> None:
    arguments = _arguments()
    if arguments.one:
        _take_one(*arguments.one)
        return
    compile_sources()
    if arguments.baseline:
        old, new = _alternate(_build(arguments.baseline), _steps(arguments))
    else:
        new = _collect(Path(sys.executable), _steps(arguments))
        old = _against_baseline(new, is_replaced=arguments.save)
    comparisons = compare(old, new, is_paired=bool(arguments.baseline))
    print(table(comparisons))
    worse = worse_than(comparisons, arguments.fail_under)
    for one in worse:
        print(f"worse than {arguments.fail_under}: {one.new.name}, {one.new.setting}")
    sys.exit(bool(worse))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    parser.add_argument("--baseline", metavar="REV", help="take turns with this revision")
    parser.add_argument("--save", action="store_true", help="replace the baseline of this machine")
    parser.add_argument("--runs", type=int, default=3, help="repeat, and take medians")
    parser.add_argument("--fail-under", type=float, default=0.0, metavar="RATIO")
    parser.add_argument("--only", action="append", choices=MEASURED, metavar="MEASURE")
    parser.add_argument("--on", action="append", choices=SETTINGS, metavar="SETTING")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


# ------------------------------------------------------------------------------------- measuring


def _take_one(name: str, setting: str) -> None:
    """The inner process: measure once, and print JSON."""
    taken = [tuple(figure) for figure in MEASURES[name].take(setting)]
    print(msgspec.json.encode(taken).decode())


def _ask(python: Path, name: str, setting: str) -> list[Taken]:
    command = [str(python), "-m", "benchmarks.quick", "--one", name, setting]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    taken = [Taken(*figure) for figure in _decode_taken(done.stdout.splitlines()[-1])]
    return [figure for figure in taken if figure.name not in _LEFT_OUT]


def _steps(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    settings = [setting for setting in SETTINGS if can_measure(setting)]
    for run in range(arguments.runs):
        for setting in arguments.on or settings:
            for name in arguments.only or MEASURED:
                print(f"run {run + 1} of {arguments.runs}: {name}, {setting}", file=sys.stderr)
                yield name, setting


def _collect(python: Path, steps: Iterable[tuple[str, str]]) -> list[Samples]:
    found: dict[tuple[str, str], Samples] = {}
    for name, setting in steps:
        add(found, setting, _ask(python, name, setting))
    return [*found.values()]


def _alternate(old: Path, steps: Iterable[tuple[str, str]]) -> tuple[list[Samples], list[Samples]]:
    """Let both sides take turns; every other step begins with the new one."""
    sides: list[dict[tuple[str, str], Samples]] = [{}, {}]
    for at, (name, setting) in enumerate(steps):
        for side in (0, 1) if at % 2 else (1, 0):
            python = Path(sys.executable) if side else old
            add(sides[side], setting, _ask(python, name, setting))
    return [*sides[0].values()], [*sides[1].values()]


def add(found: dict[tuple[str, str], Samples], setting: str, taken: Sequence[Taken]) -> None:
    for figure in taken:
        key = (figure.name, setting)
        found.setdefault(key, Samples(figure.name, setting, figure.unit, []))
        found[key].values.append(figure.value)


# -------------------------------------------------------------------------------------- revisions


def _build(revision: str) -> Path:
    """Bring a revision into a worktree with its own environment; return its interpreter."""
    commit = _revision(revision)
    folder = REVISIONS / commit
    if not folder.exists():
        _run("git", "worktree", "prune")
        _run("git", "worktree", "add", "--detach", str(folder), commit)
    _run("make", "-C", str(folder), "install")
    python = folder / ".venv" / "bin" / "python"
    _run(str(python), "-m", "compileall", "-q", str(folder / "src"))
    return python


def _revision(name: str) -> str:
    command = ["git", "rev-parse", "--short", f"{name}^{{commit}}"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=True)


# --------------------------------------------------------------------------------------- baselines


def _against_baseline(new: list[Samples], *, is_replaced: bool) -> list[Samples]:
    """Return the figures to compare with; store the new ones if there are none, or if asked to."""
    stored = read_baselines()
    found = stored.get(machine_key())
    if found is None or is_replaced:
        write_baselines({**stored, machine_key(): Baseline(_revision("HEAD"), new)})
        print(f"stored as the baseline of this machine in {BASELINE.relative_to(ROOT)}")
    if found is None:
        return new
    print(f"old: {found.revision}")
    return found.samples


def machine_key() -> str:
    """Identify this machine and interpreter: figures of another one are not compared."""
    parts = (platform.node(), str(os.cpu_count()), platform.machine(), platform.python_version())
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def read_baselines(path: Path = BASELINE) -> dict[str, Baseline]:
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Baseline])


def write_baselines(baselines: dict[str, Baseline], path: Path = BASELINE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(baselines)) + b"\n")


if __name__ == "__main__":
    main()

"""One run of the comparison: install the systems, then measure them round by round.

In a round, each workload visits all systems in turn before the next workload starts, and every
round begins with another system. So the figures of one workload come from the same few minutes, and
a change in the load of a shared machine reaches all systems.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks.peers.environments import NotInstalled, installed
from benchmarks.peers.machine import machine
from benchmarks.peers.processes import kill_all
from benchmarks.peers.results import Measured, MissingSystem, PeerResults, write_results
from benchmarks.peers.stores import postgres_cluster
from benchmarks.peers.subjects import InstalledSystem, PeerWorkload, Sizes, Taken
from benchmarks.peers.systems import System
from benchmarks.peers.workloads import WORKLOADS


class PlannedWorkload(NamedTuple):
    """One workload of one round, on one or several systems."""

    round: int
    workload: str
    subjects: list[InstalledSystem]


class PeerRun:
    """Installs and measures systems, and collects the results."""

    def __init__(self, runs: int, sizes: Sizes, *, is_quick: bool) -> None:
        self._console = Console(stderr=True)
        self._sizes = sizes
        self._began = time.monotonic()
        self.results = PeerResults(machine(), runs, is_quick, 0.0, sizes.recovery_s, [], [], [])

    def install(self, systems: Iterable[System]) -> list[InstalledSystem]:
        subjects = []
        for system in systems:
            self._console.print(f"installing {system.title}", style="dim")
            try:
                subjects.append(self._installed(system))
            except NotInstalled as error:
                self._leave_out(system.title, str(error))
        return subjects

    def _installed(self, system: System) -> InstalledSystem:
        installation = installed(system)
        if system.is_on_postgres:
            postgres_cluster()
        self.results.systems.append(
            Measured(
                name=system.name,
                title=system.title,
                versions=installation.versions,
                settings=system.settings,
                store=system.store,
                language=system.language,
                is_ours=system.is_ours,
            )
        )
        return InstalledSystem(system, installation, self._sizes)

    def measure(
        self, subjects: Sequence[InstalledSystem], names: Sequence[str], to: Path | None
    ) -> None:
        """Take all workloads in all rounds. The file has what was measured until now."""
        steps = list(plan(subjects, names, self.results.runs))
        with self._progress() as progress:
            bar = progress.add_task("", total=len(steps))
            for step in steps:
                self._announce(progress, bar, step)
                self._take(step)
                progress.advance(bar)
                self._store(to)

    def _announce(self, progress: Progress, bar: TaskID, step: PlannedWorkload) -> None:
        titles = ", ".join(subject.system.title for subject in step.subjects)
        text = f"round {step.round + 1}: {step.workload}, {titles}"[:70]
        progress.update(bar, description=text)
        if not self._console.is_terminal:
            self._console.print(text, markup=False)

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description:70}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )

    def _take(self, step: PlannedWorkload) -> None:
        """An interrupt ends the processes first, so that no thread waits for them."""
        take = WORKLOADS[step.workload].take
        if len(step.subjects) == 1:
            self._add(step, step.subjects[0], partial(take, step.subjects[0]))
            return
        with ThreadPoolExecutor(len(step.subjects)) as threads:
            asked = [(subject, threads.submit(take, subject)) for subject in step.subjects]
            try:
                wait([answer for _, answer in asked])
            except BaseException:
                kill_all()
                raise
        for subject, answer in asked:
            self._add(step, subject, answer.result)

    def _add(
        self, step: PlannedWorkload, subject: InstalledSystem, take: Callable[[], Taken]
    ) -> None:
        """A workload that fails leaves a gap, and the run continues."""
        try:
            self.results.add(subject.system.name, take())
        except Exception as error:  # noqa: BLE001 - the page names every failure
            self._leave_out(f"{subject.system.title}, {step.workload}", _reason(error))

    def _leave_out(self, name: str, reason: str) -> None:
        self._console.print(f"left out {name}: {reason}", style="yellow", markup=False)
        self.results.left_out.append(MissingSystem(name, reason))

    def _store(self, to: Path | None) -> None:
        self.results.minutes = (time.monotonic() - self._began) / 60
        if to:
            write_results(to, self.results)


def plan(
    subjects: Sequence[InstalledSystem], names: Sequence[str], runs: int
) -> Iterator[PlannedWorkload]:
    for number in range(runs):
        for name in names:
            workload = WORKLOADS[name]
            if number < workload.most_rounds:
                yield from _steps(number, name, workload, subjects)


def _steps(
    number: int, name: str, workload: PeerWorkload, subjects: Sequence[InstalledSystem]
) -> Iterator[PlannedWorkload]:
    able = [subject for subject in subjects if workload.applies(subject.system)]
    turn = number % len(able) if able else 0
    ordered = able[turn:] + able[:turn]
    if workload.is_parallel and ordered:
        yield PlannedWorkload(number, name, ordered)
    else:
        yield from (PlannedWorkload(number, name, [subject]) for subject in ordered)


def _reason(error: BaseException) -> str:
    """What failed, without the folders of this machine."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    text = f"{type(error).__name__}: {error} {notes}".strip()
    return re.sub(r"(/[\w.+-]+)+/", "", text)

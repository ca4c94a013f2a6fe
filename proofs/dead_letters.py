"""10,000 failing jobs become exactly 10,000 dead letters with their complete history, in one group;
and `windlass dead retry --task charge --rate 500/s` runs each of them once more, at that rate."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from proofs.everywhere import on_every_engine
from windlass import DeadLetter, State, Windlass

JOBS: Final = 10_000
RATE: Final = 500
#: The allowed deviation of the rate, as a share.
TOLERANCE: Final = 0.03
ROOT: Final = Path(__file__).parent.parent


class Run(NamedTuple):
    number: int
    at_s: float
    is_fixed: bool


@on_every_engine
def prove(folder: Path, url: str) -> Iterator[str]:
    environment = {**os.environ, "WINDLASS_URL": url, "PROOF_FOLDER": str(folder)}
    with Windlass(url) as app, (folder / "worker.log").open("w") as log:
        task = app.task(name="charge")(_charge)
        task.enqueue_many((number,) for number in range(JOBS))
        command = [sys.executable, "-m", "windlass", "worker", "proofs.failing:app", "-p", "1"]
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            _await(lambda: _counted(app, State.DEAD) == JOBS, "all dead", seconds=180)
            yield _prove_letters(app)
            (folder / "fixed").touch()
            printed = _retry(environment)
            _await(lambda: _counted(app, State.SUCCEEDED) == JOBS, "all run", seconds=60)
        finally:
            worker.terminate()
            worker.wait(30)
        yield f"{printed} {_prove_runs(folder)}"
        alerts = (folder / "worker.log").read_text().count("alert firing")
        hooks = sorted(path.name for path in folder.glob("alert.*"))
        yield (
            f"{alerts} alerts on the way up, {len(hooks)} passed on to the app, "
            f"{app.dead.count()} dead letters left"
        )
        assert 1 <= len(hooks) == alerts
        assert app.dead.count() == 0
        assert app.engine.check() == []


def _charge(number: int) -> None:
    """Stands for the task when the proof enqueues; workers run the one of `proofs.failing`."""


def _counted(app: Windlass, state: State) -> int:
    return sum(states.get(state, 0) for states in app.engine.stats().queues.values())


def _prove_letters(app: Windlass) -> str:
    begin = time.monotonic()
    letters = {letter.id: letter for letter in app.dead.list()}
    taken_s = time.monotonic() - begin
    whole = sum(map(_is_whole, letters.values()))
    calls = {letter.call for letter in letters.values()}
    groups = app.dead.groups(task="charge")
    assert (len(letters), whole, len(calls)) == (JOBS, JOBS, JOBS)
    assert [group.count for group in groups] == [JOBS]
    return (
        f"{JOBS:,} jobs failed: {len(letters):,} dead letters, {whole:,} with their whole history, "
        f"{len(groups)} group; all read in {taken_s:.1f} s"
    )


def _is_whole(letter: DeadLetter) -> bool:
    """Two attempts, each with its times, its worker, and its error with a traceback."""
    return [attempt.event for attempt in letter.history] == ["retry", "bury"] and all(
        attempt.started_at is not None
        and letter.enqueued_at <= attempt.started_at <= attempt.ended_at
        and attempt.worker is not None
        and attempt.error is not None
        and attempt.error.type == "ValueError"
        and "no such order" in attempt.error.traceback
        for attempt in letter.history
    )


def _retry(environment: dict[str, str]) -> str:
    asked = ["dead", "retry", "--task", "charge", "--rate", f"{RATE}/s"]
    command = [sys.executable, "-m", "windlass", *asked]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def _prove_runs(folder: Path) -> str:
    runs = [run for run in _ledger(folder) if run.is_fixed]
    times = Counter(run.number for run in runs)
    instants = sorted(run.at_s for run in runs)
    rate = (len(instants) - 1) / (instants[-1] - instants[0])
    assert (len(times), set(times.values())) == (JOBS, {1})
    assert abs(rate / RATE - 1) <= TOLERANCE, f"{rate:.1f}/s"
    return f"{len(times):,} run again, each once, at {rate:.1f}/s of {RATE}/s"


def _ledger(folder: Path) -> Iterator[Run]:
    for ledger in folder.glob("ledger.*"):
        for line in ledger.read_text().splitlines():
            number, at_s, is_fixed = line.split()
            yield Run(int(number), float(at_s), is_fixed == "1")


def _await(is_so: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} within {seconds} s")
        time.sleep(0.05)

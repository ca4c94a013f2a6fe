"""A worker of the past hour: claims jobs, runs their tasks at once, and notes how long they took.

The code of a real worker runs each job, so outcomes, errors and results are those of a worker. Only
the time is not real: the task asks its pace for time, and the pace notes it instead of waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from random import Random

import msgspec

from windlass.app import Windlass
from windlass.core import installed_version
from windlass.core.history import Tally
from windlass.core.ids import new_nonce, new_session, random_digits
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import queue_of
from windlass.engine.contract import (
    Beat,
    Claim,
    Measure,
    Outcome,
    Plan,
    Progressed,
    Unroutable,
)
from windlass.testing.stages import HereStage, complete
from windlass.worker.run.measures import POSITIONS
from windlass.worker.run.pipeline import Execution, unknown_task

#: The slots of each worker.
SLOTS = 8


class NotedPace:
    """A pace that does not wait: it adds up how long the work of a task takes."""

    def __init__(self, release: str, random: Random) -> None:
        self.release = release
        self.spent_s = 0.0
        self._random = random

    def work(self, least_s: float, most_s: float) -> None:
        self.spent_s += self._random.uniform(least_s, most_s)

    async def wait(self, least_s: float, most_s: float) -> None:
        self.work(least_s, most_s)


class PastRun(msgspec.Struct, frozen=True):
    """A run of a job: what the worker reports in the end, and how long the run takes."""

    worker: PastWorker
    claim: Claim
    outcomes: tuple[Outcome, ...]
    seconds: float


class PastWorker:
    """A worker with one child."""

    def __init__(
        self, app: Windlass, host: str, pid: int, release: str, started_ms: int, random: Random
    ) -> None:
        self.host = host
        self._app = app
        self._pid = pid
        self._release = release
        self._started_ms = started_ms
        self._children = count(1)
        self._pace = NotedPace(release, random)
        self._progress: bytes | None = None
        self._execution = Execution(
            app.settings,
            self._note_progress,
            lambda task: None,
            state=self._pace,
            packing=app.packing,
            steps=app.engine,
        )
        self._reporter = random_digits(16)
        self._reports = count(1)
        self._tallies: dict[tuple[str, str], Tally] = {}
        self.start_child()

    def start_child(self) -> None:
        """Begin a session, as each new child does."""
        self._child = self._pid + next(self._children)
        self.session = new_session(self.host, self._child, self._release)
        self._claims = count(1)

    def beat(self) -> Beat:
        return Beat(session=self.session, info=self.introduce().pack())

    def introduce(self) -> Introduction:
        return Introduction(
            host=self.host,
            worker=self._pid,
            child=self._child,
            machine=f"demo-{self.host}",
            app="shop.tasks:app",
            slots=SLOTS,
            started_ms=self._started_ms,
            version=installed_version(),
            lease_ms=self._app.settings.lease_ms,
        )

    def claim(self, limit: int, plan: Plan | None = None) -> Sequence[Claim]:
        nonce = new_nonce(next(self._claims))
        turn = self._app.engine.turn(self.session, (), nonce, plan or Plan(), limit)
        return turn.batch.claims

    def run(self, claim: Claim, stage: HereStage) -> PastRun:
        """Run a job: in no time, but the result says how long it takes."""
        task = self._app.known_tasks.get(claim.task)
        if task is None:
            return PastRun(self, claim, (unknown_task(claim, f"worker {self.host}"),), 0.0)
        self._pace.spent_s, self._progress = 0.0, None
        outcome = complete(stage.run(self._execution, claim, task))
        outcomes = (*self._reported(claim), outcome)
        return PastRun(self, claim, outcomes, self._pace.spent_s)

    def _note_progress(self, _claim: Claim, progress: bytes) -> None:
        self._progress = progress

    def _reported(self, claim: Claim) -> Sequence[Outcome]:
        """The last progress and log lines of the run."""
        if self._progress is None:
            return ()
        return (Progressed(id=claim.id, token=claim.token, progress=self._progress),)

    def count(self, run: PastRun) -> None:
        """Count a run that ended."""
        *_, outcome = run.outcomes
        if isinstance(outcome, Unroutable):
            return
        pair = queue_of(run.claim.queue), run.claim.task
        tally = self._tallies.setdefault(pair, Tally())
        tally.add(POSITIONS[type(outcome)], run.claim.waited_ms / 1000, run.seconds)

    def record(self) -> None:
        """Add the runs of this minute to the history."""
        measures = [
            Measure(queue=queue, task=task, counts=tuple(tally.counts))
            for (queue, task), tally in self._tallies.items()
        ]
        self._tallies.clear()
        if measures:
            self._app.engine.record(self._reporter, next(self._reports), measures)

"""Drain: run all due jobs in a test, one at a time, like a worker.

1. Enter the lifespan of the app, as every child of a worker does.
2. Declare the schedules of the app, if the test asked for schedules, and run maintenance.
3. Fire schedules, claim one job, run it, report it, until no job is due.
4. Leave the lifespan and close the session.

A drain uses the code of a worker for execution, time-outs, lifespan and schedules. A drain has no
processes, slots, heartbeats or prefetching. So `cancel` interrupts nothing, and a job of a task
with `run_in="process"` runs like any other job.
"""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections.abc import Iterable
from itertools import count
from typing import Final, NamedTuple

from windlass.app import Windlass
from windlass.core.failures import FailureText
from windlass.core.ids import new_nonce, new_session
from windlass.core.queues.labels import labels_of
from windlass.core.signals import Interrupted, Interruption
from windlass.core.states import Reason
from windlass.engine.contract import (
    Batch,
    Buried,
    Claim,
    Engine,
    Outcome,
    Plan,
    Progressed,
    Released,
    Retried,
)
from windlass.errors import EndlessDrain, JobFailed, TimedOut
from windlass.testing.stages import Stage
from windlass.worker.child.lifespan import HeldLifespan
from windlass.worker.fetch.round_trip import Adoption
from windlass.worker.maintenance.schedules import ON_S, Scheduler, declarations
from windlass.worker.run.hooks import HookCall, HookNotes, call_hook, log_hook_failure
from windlass.worker.run.pipeline import Execution, Run, unknown_task

#: The largest number of repeats of an empty claim while the engine has more maintenance to do.
MAX_LOOKS: Final = 1_000
#: Exceptions that a job may raise, in addition to any `Exception`, without ending the drain.
_OF_JOBS: Final = (Exception, Interrupted, CancelledError, SystemExit, GeneratorExit)


class DrainEnded(NamedTuple):
    """One finished run of a job in a drain."""

    claim: Claim
    outcome: Outcome
    error: BaseException | None  # the error of the job, if it raised one
    text: FailureText | None  # the stored text of the error, or why the job did not run

    def failure(self) -> BaseException | None:
        """The exception to raise in the test: the error of the job, or `JobFailed` with its stored
        text. None if the job did not fail."""
        if self.text is None:
            return None
        reason = self.outcome.reason if isinstance(self.outcome, Buried) else Reason.EXHAUSTED
        claim, text = self.claim, self.text
        error = self.error or JobFailed(
            claim.id, claim.task, str(reason), text.type, text.message, text.traceback
        )
        error.add_note(
            f"Raised by job {claim.id} of task {claim.task} in attempt {claim.counters.attempt}. "
            "With drain(raise_errors=False) only the job shows it."
        )
        return error


class _Observed(Execution):
    """Execution that keeps the latest error as an exception. The outcome has only its text."""

    error: BaseException | None = None

    def text_of(self, claim: Claim, outcome: Outcome) -> FailureText | None:
        """The text of the failure in an outcome."""
        if not isinstance(outcome, Retried | Buried):
            return None
        text = FailureText.unpack(outcome.error)
        return self._packing.open_failure(text, claim.task, claim.id)

    def _conclude_failure(self, run: Run, error: BaseException) -> Outcome:
        outcome = super()._conclude_failure(run, error)
        self.error = error
        is_over = run.context.interruption is Interruption.TIMED_OUT
        if is_over and isinstance(error, Interrupted | CancelledError):
            text = self.text_of(run.claim, outcome)
            assert text is not None
            self.error = TimedOut(text.message, timeout_ms=run.timeout_ms)
            self.error.__cause__ = error
        return outcome


class Drain:
    """One drain. Run each object only once."""

    def __init__(
        self, app: Windlass, engine: Engine, stage: Stage, limit: int, has_schedules: bool
    ) -> None:
        self._app = app
        self._engine = engine
        self._stage = stage
        self._limit = limit
        self._adoption = Adoption(engine, app.known_tasks)
        self._scheduler = Scheduler(engine, declarations(app)) if has_schedules else None
        self._begin_session()
        self._hook_notes = HookNotes(app)
        self._is_over = False
        self.ended: list[DrainEnded] = []

    async def run(self) -> None:
        lifespan = HeldLifespan(self._app.lifespan, on_loss=self._stop)
        state = await self._stage.call(lifespan.enter())
        try:
            await self._work(state)
        finally:
            self._engine.close(self._session, (), "the end of the drain")
            await self._stage.call(lifespan.end())

    def _stop(self) -> None:
        self._is_over = True

    def _begin_session(self) -> None:
        self._session = new_session("sandbox", os.getpid(), self._app.settings.release)
        self._numbers = count(1)

    # --------------------------------------------------------------------------------- the loop

    async def _work(self, state: object) -> None:
        if self._scheduler is not None:
            self._scheduler.declare()
        self._adoption.ask()
        while self._engine.tend().more:
            pass
        execution = _Observed(
            self._app.settings,
            self._report_progress,
            self._adoption.leave,
            self._app.middleware,
            state,
            self._app.packing,
            self._hook_notes,
            steps=self._engine,
        )
        while not self._is_over and (claim := self._claim()) is not None:
            self._check_limit(claim)
            await self._run(execution, claim)

    async def _run(self, execution: _Observed, claim: Claim) -> None:
        task = self._app.known_tasks.get(claim.task)
        if task is None:
            self._engine.finish([unknown_task(claim, "this test")])
            return
        execution.error = None
        outcome = await self._stage.run(execution, claim, task)
        verdicts = self._engine.finish([outcome])
        self.ended.append(
            DrainEnded(claim, outcome, execution.error, execution.text_of(claim, outcome))
        )
        await self._call_hooks(self._hook_notes.accept([outcome], verdicts))
        if execution.error is not None and not isinstance(execution.error, _OF_JOBS):
            raise execution.error  # the test is interrupted, for example by Ctrl-C

    async def _call_hooks(self, calls: Iterable[HookCall]) -> None:
        """Call hooks right after their job. As in a worker, their errors are logged only."""
        for call in calls:
            hooks, event = call.prepare()
            for hook in hooks:
                try:
                    coroutine = call_hook(hook, event)
                    if coroutine is not None:
                        await self._stage.call(coroutine)
                except _OF_JOBS as error:
                    log_hook_failure(hook, event, error)

    def _report_progress(self, claim: Claim, progress: bytes) -> None:
        self._engine.finish([Progressed(id=claim.id, token=claim.token, progress=progress)])

    def _check_limit(self, claim: Claim) -> None:
        if len(self.ended) >= self._limit:
            self._engine.finish([Released(id=claim.id, token=claim.token, started=False)])
            raise EndlessDrain(claim.task, self._limit)

    # --------------------------------------------------------------------------------- claiming

    def _claim(self) -> Claim | None:
        """Claim the next job. None when no job is due."""
        for _ in range(MAX_LOOKS):
            is_more = self._scheduler is not None and self._scheduler.look() <= ON_S
            batch = self._ask(Plan(labels=self._labels()))
            if batch.suspects and not batch.claims:
                batch = self._ask(Plan(labels=self._labels(), suspects=True))
            if batch.claims:
                return batch.claims[0]
            if batch.next_in_ms != 0 and not is_more:
                return None
        return None

    def _ask(self, plan: Plan) -> Batch:
        nonce = new_nonce(next(self._numbers))
        batch = self._engine.turn(self._session, (), nonce, plan, 1).batch
        if batch.gone:  # a job moved the clock by more than a lease
            self._begin_session()
            return self._ask(plan)
        return batch

    def _labels(self) -> tuple[str, ...]:
        """All labels that jobs require, because a drain runs jobs with any labels."""
        lines = self._engine.stats().queues
        return tuple(sorted({label for line in lines for label in labels_of(line)}))


def raise_first(ended: Iterable[DrainEnded]) -> None:
    """Raise the first failure, if there is one, with a note about further failures."""
    errors = [error for one in ended if (error := one.failure()) is not None]
    if not errors:
        return
    first, *others = errors
    if others:
        kinds = ", ".join(sorted({type(error).__name__ for error in others}))
        first.add_note(f"{len(others)} more runs failed: {kinds}.")
    raise first

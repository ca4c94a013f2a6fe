"""Steps in the reference model: a dict for each job, which only its holder changes."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.contract import (
    MAX_ALL_STEPS_BYTES,
    MAX_STEPS,
    NewStep,
    Step,
    StepCode,
    check_steps,
)
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_state import ModelState


class StepModel(ModelState):
    def put_steps(self, steps: Sequence[NewStep]) -> list[StepCode]:
        check_steps([new.step for new in steps])
        return [self._put_step(new) for new in steps]

    def _put_step(self, new: NewStep) -> StepCode:
        job = self._held_job(new.id, new.token)
        if job is None:
            self.totals["stale"] += 1
            return StepCode.STALE
        if new.step.name in job.steps:
            return StepCode.KNOWN
        size = sum(map(len, job.steps.values())) + len(new.step.value)
        if len(job.steps) >= MAX_STEPS or size > MAX_ALL_STEPS_BYTES:
            return StepCode.FULL
        job.steps[new.step.name] = new.step.value
        return StepCode.STORED

    def read_steps(self, id: str, token: str) -> tuple[Step, ...] | None:
        job = self._held_job(id, token)
        return None if job is None else list_steps(job)

    def _held_job(self, id: str, token: str) -> ModelJob | None:
        job = self.jobs.get(id)
        return job if job is not None and job.token == token else None


def list_steps(job: ModelJob) -> tuple[Step, ...]:
    return tuple(Step(*one) for one in sorted(job.steps.items(), key=lambda one: one[0].encode()))

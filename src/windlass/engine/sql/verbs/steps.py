"""Steps of jobs: store them under the token of the holder, and read them."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.contract import (
    MAX_ALL_STEPS_BYTES,
    MAX_STEPS,
    NewStep,
    Step,
    StepCode,
)
from windlass.engine.sql.statements import Statements
from windlass.engine.sql.transaction import SqlTransaction


def put(tx: SqlTransaction, steps: Sequence[NewStep]) -> list[StepCode]:
    return [_put(tx, new) for new in steps]


def _put(tx: SqlTransaction, new: NewStep) -> StepCode:
    job, step = tx.job(new.id), new.step
    if job is None or job.token != new.token:
        tx.totals["stale"] += 1
        return StepCode.STALE
    number, size, is_known = tx.rows("measure_steps", job.row, step.name)[0]
    if is_known:
        return StepCode.KNOWN
    if number >= MAX_STEPS or size + len(step.value) > MAX_ALL_STEPS_BYTES:
        return StepCode.FULL
    tx.run("add_step", job.row, step.name, step.value)
    return StepCode.STORED


def read(db: Statements, job_id: str, token: str) -> tuple[Step, ...] | None:
    row = db.first("find_held_row", job_id, token)
    return None if row is None else tuple(Step(*found) for found in db.rows("list_steps", row))

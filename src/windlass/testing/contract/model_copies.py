"""Copies in the reference model: whole jobs and keys, to and from other engines."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from windlass.core.states import State
from windlass.core.unique import Until
from windlass.engine.contract import (
    CopyCode,
    HolderPage,
    JobCopy,
    KeyCopy,
    KeyPage,
    LinePlace,
)
from windlass.testing.contract import model_unique
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_state import ModelKey, ModelState
from windlass.testing.contract.model_steps import list_steps


class CopyModel(ModelState):
    def read_copies(self, ids: Sequence[str]) -> list[JobCopy | None]:
        return [self._read_copy(self.jobs[id]) if id in self.jobs else None for id in ids]

    def _read_copy(self, job: ModelJob) -> JobCopy:
        record = job.record
        line = None
        if record.state is State.READY:
            own = self._settings_of(record.queue).aged(self.now_ms)
            line = LinePlace(ready_ms=job.ready_ms, age=job.age, queue_age=own.age)
        return JobCopy(
            record=replace(record, result=None, has_result=False),
            line=line,
            keep_until_ms=job.visit_ms if record.state.is_final else None,
            until=None if record.unique_key is None else job.unique_until,
            period_until_ms=job.period_until_ms,
            steps=list_steps(job),
        )

    def put_copies(self, copied: Sequence[JobCopy]) -> list[CopyCode]:
        return [self._put_copy(copy) for copy in copied]

    def _put_copy(self, copy: JobCopy) -> CopyCode:
        record, line = copy.record, copy.line
        if record.id in self.jobs:
            return CopyCode.KNOWN
        if record.unique_key is not None and copy.holds_key(self.now_ms):
            if model_unique.find_holder(self, record.task, record.unique_key) is not None:
                return CopyCode.HELD
            self.last_stored[record.task, record.unique_key] = record.id
        self.sequence += 1
        job = ModelJob(record, row=self.sequence, place=self.sequence, ready_ms=record.created_ms)
        if line is not None:
            own = self._settings_of(record.queue).aged(self.now_ms)
            job.ready_ms = line.ready_ms
            job.age = max(0, own.age - (line.queue_age - line.age))
        if copy.keep_until_ms is not None:
            job.keep_until_ms = job.visit_ms = copy.keep_until_ms
        job.unique_until, job.period_until_ms = copy.until or Until.END, copy.period_until_ms
        job.steps = {step.name: step.value for step in copy.steps}
        self.jobs[record.id] = job
        return CopyCode.STORED

    def list_keys(self, cursor: str | None = None) -> KeyPage:
        """List all keys at once. Engines need several calls for this."""
        found = [
            KeyCopy(
                task=task,
                key=name,
                id=key.id,
                fingerprint=key.fingerprint,
                expires_ms=key.until_ms,
            )
            for (task, name), key in self.keys.items()
            if key.until_ms > self.now_ms
        ]
        return KeyPage(tuple(sorted(found, key=lambda key: (key.task, key.key))), None)

    def put_keys(self, keys: Sequence[KeyCopy]) -> list[CopyCode]:
        return [self._put_key(key) for key in keys]

    def _put_key(self, key: KeyCopy) -> CopyCode:
        known = self.keys.get((key.task, key.key))
        if known is not None and self.now_ms < known.until_ms:
            return CopyCode.KNOWN if known.id == key.id else CopyCode.HELD
        self.keys[key.task, key.key] = ModelKey(key.id, key.fingerprint, key.expires_ms)
        return CopyCode.STORED

    def list_holders(self, cursor: str | None = None) -> HolderPage:
        """List all holders at once. Engines need several calls for this."""
        holders = (model_unique.find_holder(self, task, name) for task, name in self.last_stored)
        ids = {
            job.record.id
            for job in holders
            if job is not None and job.record.state in (State.SUCCEEDED, State.CANCELLED)
        }
        return HolderPage(tuple(sorted(ids)), None)

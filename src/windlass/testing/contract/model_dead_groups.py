"""Groups of dead jobs in the reference model: computed from the jobs, at each call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from windlass.core.ids import release_of
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.contract import (
    MAX_DEAD_TALLIES,
    ChangeCode,
    DeadLabel,
    DeadTallies,
    DeadTally,
    JobRecord,
    to_tallies,
)
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_state import ModelState


class DeadGroupModel(ModelState):
    def dead_tallies(
        self, fingerprints: Sequence[str] | None = None, limit: int = MAX_DEAD_TALLIES
    ) -> DeadTallies:
        return count_groups(self.jobs.values(), fingerprints, limit)

    def label_dead(self, labels: Sequence[DeadLabel]) -> list[ChangeCode]:
        return [self._label(label) for label in labels]

    def _label(self, label: DeadLabel) -> ChangeCode:
        job = self.jobs.get(label.id)
        if job is None:
            return ChangeCode.UNKNOWN
        record = job.record
        if record.state is not State.DEAD or record.finished_ms != label.finished_ms:
            return ChangeCode.REFUSED
        job.record = replace(record, fingerprint=label.fingerprint)
        return ChangeCode.DONE


def count_groups(
    jobs: Iterable[ModelJob], fingerprints: Sequence[str] | None, limit: int
) -> DeadTallies:
    """Count dead jobs by group. Of jobs that died at the same instant, any is the example."""
    groups: dict[tuple[str, ...], list[JobRecord]] = {}
    for record in (job.record for job in jobs):
        is_wanted = fingerprints is None or record.fingerprint in fingerprints
        if record.state is State.DEAD and is_wanted:
            groups.setdefault(_names(record), []).append(record)
    tallies = [_to_tally(names, records) for names, records in groups.items()]
    return to_tallies(tallies, limit, more=False)


def _names(record: JobRecord) -> tuple[str, ...]:
    release = release_of(record.session) or ""
    return record.fingerprint, release, queue_of(record.queue), record.task


def _to_tally(names: tuple[str, ...], records: Sequence[JobRecord]) -> DeadTally:
    fingerprint, release, queue, task = names
    died_ms = [record.finished_ms or 0 for record in records]
    return DeadTally(
        fingerprint=fingerprint,
        release=release,
        queue=queue,
        task=task,
        number=len(records),
        first_ms=min(died_ms),
        last_ms=max(died_ms),
        example=next(one.id for one in records if one.finished_ms == max(died_ms)),
    )

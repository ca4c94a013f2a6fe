"""The mapping of jobs to partitions.

An id that windlass made carries its partition. Any other id, or an id that was made for more
partitions than exist, maps by a checksum of its text, which never changes either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from zlib import crc32

from windlass.core.ids import derived_id, moved_id, partition_of
from windlass.engine.contract import JobCopy, NewJob
from windlass.errors import EngineError

T = TypeVar("T")

#: The partition of all that belongs to no job: documents, and the audit trail.
SHARED: Final = 0


def any_of(number: int) -> int:
    """Choose the first partition of a producer at random. If all producers started with the first
    partition, producers that live for one job would leave the others empty. The random number comes
    from the operating system, because programs may seed Python's shared generator."""
    return int.from_bytes(os.urandom(4)) % number


class Partitions:
    """The partitions of one namespace."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._next: int | None = None  # chosen at first use, so that forked children differ

    def of_id(self, job_id: str) -> int:
        if self.number == 1:
            return 0
        try:
            carried = partition_of(job_id)
        except ValueError:
            return self._spread(job_id)
        return carried if carried < self.number else self._spread(job_id)

    def of_key(self, task: str, key: str) -> int:
        """Return the partition of all jobs that could share a key."""
        return self._spread(f"{task}\0{key}")

    def of_session(self, session: str) -> int:
        """Return the partition that a session asks first."""
        return self._spread(session)

    def of_reporter(self, reporter: str) -> int:
        """Return the partition of all reports of a reporter."""
        return self._spread(f"reporter\0{reporter}")

    def of_claim(self, session: str, nonce: str) -> int:
        """Return the partition that a claim asks first if other engine objects may make it too."""
        return self._spread(f"{session}\0{nonce}")

    def of_schedule(self, name: str) -> int:
        """Return the partition of a schedule and its jobs."""
        return self._spread(f"schedule\0{name}")

    def check_schedule(self, name: str, ids: Iterable[str]) -> None:
        """Refuse jobs outside the partition of their schedule: a change is one atomic step."""
        strays = [id for id in ids if self.of_id(id) != self.of_schedule(name)]
        if strays:
            raise EngineError(
                f"The job {strays[0]} is not in the partition of its schedule {name}. Make the id "
                "with the partition that Engine.schedule_partition gives."
            )

    def home(self, number: int) -> Callable[[str], bool]:
        """Return a function that tells whether a session asks this partition first."""
        return lambda session: self.of_session(session) == number

    def next_free(self) -> int:
        """Return the partition for a job without a key. The partition stays the same until a put,
        so that a batch goes to one partition."""
        if self._next is None:
            self._next = any_of(self.number)
        return self._next % self.number

    def advance(self) -> None:
        if self._next is not None:
            self._next += 1

    def from_on(self, first: int) -> list[int]:
        """List all partitions in turn, starting with `first`."""
        return [(first + step) % self.number for step in range(self.number)]

    def group(self, items: Sequence[T], place: Callable[[T], int]) -> dict[int, list[int]]:
        """Group items by partition: partition -> the positions of its items, in order."""
        if self.number == 1:
            return {0: list(range(len(items)))} if items else {}
        groups: dict[int, list[int]] = {}
        for position, item in enumerate(items):
            groups.setdefault(place(item), []).append(position)
        return groups

    def split_ids(self, ids: Sequence[str] | None) -> dict[int, list[str]] | None:
        """Split ids by partition, in order; None if there is no list."""
        if ids is None:
            return None
        groups = self.group(ids, self.of_id)
        return {number: [ids[at] for at in positions] for number, positions in groups.items()}

    def copied_id(
        self, job_id: str, task: str, unique_key: str | None, schedule: str | None
    ) -> str:
        """Return the id of a copied job, with the partition in which its key or schedule is."""
        place = self.of_id(job_id)
        if unique_key is not None:
            place = self.of_key(task, unique_key)
        elif schedule is not None:
            place = self.of_schedule(schedule)
        if place == self.of_id(job_id):
            return job_id
        try:
            return moved_id(job_id, place)
        except ValueError:  # an id that windlass did not make
            return derived_id(0, f"copy:{job_id}", place)

    def of_stored_key(self, task: str, key: str) -> int:
        """Return the partition of an idempotency key in its stored form, which begins with the
        unique key of the job if it has one."""
        return self.of_key(task, key.partition("\0")[0])

    def check_copy(self, copy: JobCopy) -> None:
        """Refuse a copied job in a partition where its unique key is not looked up."""
        record = copy.record
        if self.copied_id(record.id, record.task, record.unique_key, None) != record.id:
            raise EngineError(
                f"The id {record.id} of the copied job of task {record.task} is not in the "
                "partition of its unique key. Use the id that Engine.copied_id returns."
            )

    def check_key(self, job: NewJob) -> None:
        """Refuse a job in a partition where its key is not looked up. The unique key decides the
        partition; without a unique key, the idempotency key does."""
        key = job.idempotency_key if job.unique is None else job.unique.key
        if self.number == 1 or key is None or self.of_id(job.id) == self.of_key(job.task, key):
            return
        kind = "idempotency" if job.unique is None else "unique"
        raise EngineError(
            f"The id {job.id} of the job of task {job.task} is not in the partition of its {kind} "
            "key. Make the id with Engine.new_id, and pass it the key."
        )

    def _spread(self, text: str) -> int:
        return crc32(text.encode()) % self.number

"""The engine contract for copies: whole jobs and keys, read from one engine and stored in another.

A copy has all data that decides what happens to a job next, in values that mean the same in every
engine: instants, counters, completed steps, and how far its queue has aged since the job took its
place. A copy has no result and no claim: succeeded jobs need no copy, and running jobs have none.

1. `JobCopy` and `LinePlace`: a job that waits, or has ended.
2. `KeyCopy`: an idempotency key, which may outlive its job.
3. `CopyCode`: what happened to a copy.
4. `open_transactions`: what a walk over all jobs cannot see yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.core.states import State
from windlass.core.unique import Until, is_held
from windlass.engine.contract.jobs import JobRecord
from windlass.engine.contract.steps import Step, check_steps
from windlass.errors import EngineError

#: One call of `list_keys` and of `list_holders` reads at most about this many keys.
MAX_KEYS: Final = 500
#: Jobs in these states have a claim, or wait for something that is not in a copy.
_NOT_STORED: Final = frozenset({State.RUNNING, State.WAITING})


class LinePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The age of a ready job, which decides its order together with its priority."""

    ready_ms: int  # when it took its place in line
    age: int  # the age of its queue at that time
    queue_age: int  # the age of its queue now


class JobCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A job as another engine can store it. `record` is what `get` returns, without a result."""

    record: JobRecord
    line: LinePlace | None = None  # of a ready job, also while it is held
    #: Of an ended job: when the purge visits its record. Of a succeeded job, some engines give when
    #: the result expires.
    keep_until_ms: int | None = None
    until: Until | None = None  # of a job with a unique key: when it releases the key
    period_until_ms: int = 0  # the key is held at least until this instant
    steps: tuple[Step, ...] = ()  # completed parts of the job, sorted by name

    def holds_key(self, now_ms: int) -> bool:
        """Return whether the job holds its unique key, if it has one."""
        return self.until is not None and is_held(
            self.until, self.record.state, self.period_until_ms, now_ms
        )

    @property
    def size(self) -> int:
        """The number of bytes that travel with this copy."""
        record = self.record
        apart = len(record.progress or b"") + len(record.held_because or b"")
        parts = [one.error for one in record.failures] + [step.value for step in self.steps]
        return len(record.payload) + apart + sum(map(len, parts))


class KeyCopy(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key. `key` has its stored form, as `NewJob.scoped_key`."""

    task: str
    key: str
    id: str  # the job that an enqueue with this key returns; it may be gone
    fingerprint: str
    expires_ms: int


class CopyCode(StrEnum):
    """The result of `put_copies` or `put_keys` for one copy."""

    STORED = "stored"
    KNOWN = "known"  # there is a job with this id, or a key of this job: nothing was changed
    HELD = "held"  # another job holds the key: nothing was stored


class KeyPage(msgspec.Struct, frozen=True):
    """One bounded batch of `list_keys`, and the next cursor, None at the end."""

    keys: tuple[KeyCopy, ...]
    cursor: str | None


class HolderPage(msgspec.Struct, frozen=True):
    """One bounded batch of `list_holders`, and the next cursor, None at the end."""

    ids: tuple[str, ...]
    cursor: str | None


def check_copies(copied: Sequence[JobCopy]) -> None:
    """Refuse copies that no engine stores. Every engine calls this function."""
    for copy in copied:
        if copy.record.state in _NOT_STORED:
            raise EngineError(
                f"Expected a copy of a job that waits or has ended, found job {copy.record.id} in "
                f"state {copy.record.state}. Wait until the job has ended, and read it again."
            )
        check_steps(copy.steps)


class CopyVerbs(Protocol):
    """Read jobs and keys completely, and store those of another engine."""

    def copied_id(
        self, job_id: str, task: str, unique_key: str | None, schedule: str | None = None
    ) -> str:
        """Return the id that a copied job gets here: its own, unless its unique key or its schedule
        decides for another partition than its id. The same arguments give the same id. `schedule`
        names the schedule that watches the job. Makes no request."""

    def read_copies(self, ids: Sequence[str]) -> list[JobCopy | None]:
        """Read jobs completely, in any state; None for an unknown id. The copy of a running job
        cannot be stored."""

    def put_copies(self, copied: Sequence[JobCopy]) -> list[CopyCode]:
        """Store copies in turn, each at the end of its line and otherwise exactly as it is: state,
        hold, counters, instants, history, steps, unique key. A known id changes nothing. A copy
        whose unique key is held by another job is not stored. Limits of queues do not apply, and
        copies are not counted as enqueued.

        A ready job is as much older than new jobs of its queue as it was before, at most by the
        whole age of the queue: raise that first by `QueueChange.least_age`. Within a partition all
        copies are stored or, when the call raises, none. Pass at most `BATCH` copies with
        `BATCH_BYTES`."""

    def list_keys(self, cursor: str | None = None) -> KeyPage:
        """List idempotency keys that are remembered, one bounded batch. Call again with the
        returned cursor, also after an empty batch. A key that is remembered during all calls is
        listed at least once."""

    def put_keys(self, keys: Sequence[KeyCopy]) -> list[CopyCode]:
        """Remember idempotency keys, whether or not their jobs are here. A key that another job has
        is not stored. When a job is removed, its key is freed, even if this call has stored the key
        since. So put keys again, which returns KNOWN, once their jobs are stored."""

    def list_holders(self, cursor: str | None = None) -> HolderPage:
        """List succeeded and cancelled jobs that hold a unique key for a period, one bounded batch.
        Call again with the returned cursor, also after an empty batch."""

    def open_transactions(self) -> frozenset[str]:
        """Return the names of open transactions that may change jobs. What they do is not visible
        yet, and may carry an earlier instant than now. A name is used once: when it is not listed
        any more, its transaction has ended. Empty where calls take effect in turn."""

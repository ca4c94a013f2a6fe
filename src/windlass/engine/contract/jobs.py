"""Jobs in the words of the engine contract: how one is put and what became of that, what can be
seen of it, and what became of a change.

Whoever imports windlass loads these values and no others of the contract: whoever enqueues, or asks
about a job, needs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from windlass.core.durations import LATEST_MS, LATEST_YEAR, MAX_DURATION_MS, describe_ms
from windlass.core.states import Counters, Hold, Reason, State
from windlass.core.unique import OnConflict, Until
from windlass.errors import EngineError

T = TypeVar("T")

#: At most this many items, and about this many bytes of them, go into one step of an engine. A
#: single item may have more.
BATCH: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024


def batches(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Cut items into batches of at most `BATCH`, and at most `BATCH_BYTES` unless one alone has
    more."""
    begin = size = 0
    for at, item in enumerate(items):
        size += (item_size := size_of(item))
        if at > begin and (size > BATCH_BYTES or at - begin >= BATCH):
            yield items[begin:at]
            begin, size = at, item_size
    if begin < len(items):
        yield items[begin:]


class UniqueKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that one job of a task holds at a time, as `core.unique.is_held` says. At most 200
    characters, none of them a zero."""

    key: str  # scoped to the task
    until: Until = Until.END
    period_ms: int = 0  # held for at least so long after the put
    on_conflict: OnConflict = OnConflict.RETURN


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a producer hands it over. The id is made by the producer: repeating is harmless."""

    id: str
    task: str
    queue: str  # or, with labels that its worker must have, a line of it: see core/queues/labels.py
    payload: bytes
    priority: int = 0  # -100 ... 100, higher first
    run_after_ms: int | None = None  # not before this instant
    run_in_ms: int = 0  # not before this much later
    expires_ms: int | None = None  # not to be started after this instant
    expires_in_ms: int | None = None  # not to be started after this much later
    idempotency_key: str | None = None  # scoped to the task, and to the unique key if it has one
    fingerprint: str = ""  # of the arguments, compared when the key is repeated
    unique: UniqueKey | None = None

    @property
    def scoped_key(self) -> str | None:
        """The idempotency key as it is stored. Where a unique key decides on the partition, the
        other key can only be looked for there."""
        if self.unique is None or self.idempotency_key is None:
            return self.idempotency_key
        return f"{self.unique.key}\0{self.idempotency_key}"

    @property
    def has_times(self) -> bool:
        """Whether there is anything for `check_times` to look at; most jobs have nothing."""
        return (
            self.run_in_ms != 0
            or self.run_after_ms is not None
            or self.expires_ms is not None
            or self.expires_in_ms is not None
            or self.unique is not None
        )

    def due_ms(self, now_ms: int) -> int:
        """The later of the two instants before which it must not start."""
        return max(self.run_after_ms or 0, now_ms + self.run_in_ms)

    def expiry_ms(self, now_ms: int) -> int | None:
        """The earlier of the two instants after which it must not start."""
        if self.expires_in_ms is None:
            return self.expires_ms
        relative_ms = now_ms + self.expires_in_ms
        return relative_ms if self.expires_ms is None else min(self.expires_ms, relative_ms)


def check_times(job: NewJob) -> None:
    """Refuse times that not every engine can store. Every engine asks this before it stores a
    job."""
    period_ms = 0 if job.unique is None else job.unique.period_ms
    for name, milliseconds, most_ms in (
        ("run_after_ms", job.run_after_ms, LATEST_MS),
        ("expires_ms", job.expires_ms, LATEST_MS),
        ("run_in_ms", job.run_in_ms, MAX_DURATION_MS),
        ("expires_in_ms", job.expires_in_ms, MAX_DURATION_MS),
        ("period_ms", period_ms, MAX_DURATION_MS),
    ):
        if milliseconds is not None and milliseconds > most_ms:
            raise EngineError(
                f"Expected {name} of job {job.id} to be at most {most_ms}, found {milliseconds}. "
                f"No instant may lie after the year {LATEST_YEAR - 1}, and no distance may be "
                f"longer than {describe_ms(MAX_DURATION_MS)}."
            )


class PutCode(StrEnum):
    CREATED = "created"  # stored now, or by an earlier call with the same id
    EXISTING = "existing"  # the idempotency or unique key belongs to another job: its id is given
    CONFLICT = "conflict"  # the idempotency key does, and that job has other arguments
    REPLACED = "replaced"  # the job that holds the unique key, whose id is given, has this call now
    DUPLICATE = "duplicate"  # the unique key is held by the job whose id is given: refused
    FULL = "full"  # as many wait in its queue as may; nothing was stored


class Placed(msgspec.Struct, frozen=True):
    """The verdict on one job of a `put`."""

    id: str
    code: PutCode


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a job's history: an error that the worker wrote, or a cause found outside."""

    at_ms: int
    event: str
    attempt: int
    session: str | None = None
    started_ms: int | None = None  # when the claim began that came to this end
    error: bytes = b""  # of a revival with another payload: the payload that it had before


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a job at one instant."""

    id: str
    task: str
    queue: str
    priority: int
    state: State
    hold: Hold
    reason: Reason | None
    counters: Counters
    created_ms: int
    due_ms: int | None = None
    expires_ms: int | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    session: str | None = None  # who runs it, or ran it last
    cancel_requested: bool = False
    suspect: bool = False
    progress: bytes | None = None
    result: bytes | None = None
    has_result: bool = False  # a result is still stored
    payload: bytes = b""
    failures: tuple[Failure, ...] = ()
    unique_key: str | None = None


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job has come and, once it has ended, what came of it: what a caller that waits for
    it needs, and never its payload."""

    id: str
    task: str
    state: State
    reason: Reason | None = None
    finished_ms: int | None = None
    result: bytes | None = None  # of one that succeeded, while it is stored
    failure: Failure | None = None  # of one that is dead: the newest entry of its history


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list. Every given part must hold."""

    state: State | None = None
    queue: str | None = None
    task: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Records without payloads, results and history; `cursor` is None on the last page."""

    records: tuple[JobRecord, ...]
    cursor: str | None


class CancelCode(StrEnum):
    CANCELLED = "cancelled"
    REQUESTED = "requested"  # it runs; its worker will be told
    FINAL = "final"  # it has ended already
    UNKNOWN = "unknown"


class ChangeCode(StrEnum):
    """The verdict on one job of a `retry`, a `revive` or a `discard`."""

    DONE = "done"
    REFUSED = "refused"  # its state does not allow it, or it has ended once more since
    DUPLICATE = "duplicate"  # another job holds its unique key
    UNKNOWN = "unknown"


class Revival(msgspec.Struct, frozen=True, kw_only=True):
    """A dead or cancelled job to be made ready again."""

    id: str
    finished_ms: int | None = None  # only if it ended at this instant: what somebody has looked at
    payload: bytes | None = None  # what to run from now on; the old one goes into the history

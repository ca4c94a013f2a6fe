"""The engine contract for jobs: new jobs, results of `put`, job records, results of changes, and
the operations on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

from windlass.core.durations import LATEST_MS, LATEST_YEAR, MAX_DURATION_MS, describe_ms
from windlass.core.ids import release_of
from windlass.core.queues.labels import queue_of
from windlass.core.states import Counters, Hold, Reason, State
from windlass.core.unique import OnConflict, Until
from windlass.errors import EngineError

T = TypeVar("T")

#: Limits of one step of an engine: this many items, with about this many bytes in total. A single
#: item may have more bytes.
BATCH: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
#: An engine keeps a finished record at least this long, to recognise a repeated finish.
MIN_RECORD_MS: Final = 10 * 60 * 1000
#: An idempotency key is remembered this long, unless the options of the engine say otherwise.
IDEMPOTENCY_MS: Final = 24 * 60 * 60 * 1000
#: An engine remembers a `watch` this long; a waiting caller renews it.
WATCH_MS: Final = 10_000
#: A job keeps at most this many failures, the newest ones.
MAX_FAILURES: Final = 50


def batches(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Split items into batches of at most `BATCH` items and `BATCH_BYTES`. A single larger item
    gets its own batch."""
    begin = size = 0
    for at, item in enumerate(items):
        size += (item_size := size_of(item))
        if at > begin and (size > BATCH_BYTES or at - begin >= BATCH):
            yield items[begin:at]
            begin, size = at, item_size
    if begin < len(items):
        yield items[begin:]


class UniqueKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that only one job of a task holds at a time; `core.unique.is_held` defines how long. At
    most 200 characters, no NUL."""

    key: str  # scoped to the task
    until: Until = Until.END
    period_ms: int = 0  # held for at least this long after the put
    on_conflict: OnConflict = OnConflict.RETURN


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to enqueue. The producer makes the id, so that a repeated put is harmless."""

    id: str
    task: str
    queue: str  # or a line of the queue, for jobs that require labels: see core/queues/labels.py
    payload: bytes
    priority: int = 0  # -100 ... 100, higher first
    run_after_ms: int | None = None  # do not start before this instant
    run_in_ms: int = 0  # do not start before this much later
    expires_ms: int | None = None  # do not start after this instant
    expires_in_ms: int | None = None  # do not start after this much later
    idempotency_key: str | None = None  # unique per task, and per unique key if the job has one
    fingerprint: str = ""  # hash of the arguments, compared when the key is repeated
    unique: UniqueKey | None = None

    @property
    def scoped_key(self) -> str | None:
        """Return the idempotency key in its stored form. If the job has a unique key, that key
        decides the partition, and the idempotency key is looked up only there."""
        if self.unique is None or self.idempotency_key is None:
            return self.idempotency_key
        return f"{self.unique.key}\0{self.idempotency_key}"

    @property
    def has_times(self) -> bool:
        """Return whether `check_times` has anything to check; most jobs have no times."""
        return (
            self.run_in_ms != 0
            or self.run_after_ms is not None
            or self.expires_ms is not None
            or self.expires_in_ms is not None
            or self.unique is not None
        )

    def due_ms(self, now_ms: int) -> int:
        """Return the later of the two instants before which the job must not start."""
        return max(self.run_after_ms or 0, now_ms + self.run_in_ms)

    def expiry_ms(self, now_ms: int) -> int | None:
        """Return the earlier of the two instants after which the job must not start."""
        if self.expires_in_ms is None:
            return self.expires_ms
        relative_ms = now_ms + self.expires_in_ms
        return relative_ms if self.expires_ms is None else min(self.expires_ms, relative_ms)


def check_times(job: NewJob) -> None:
    """Refuse times that some engine cannot store. Every engine calls this function before it stores
    a job."""
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
    CREATED = "created"  # this call, or an earlier one with the same id, stored the job
    EXISTING = "existing"  # another job has the idempotency or unique key; its id is returned
    CONFLICT = "conflict"  # another job has the idempotency key, with other arguments
    REPLACED = "replaced"  # the holder of the unique key took over this call; its id is returned
    DUPLICATE = "duplicate"  # refused: another job holds the unique key; its id is returned
    FULL = "full"  # the queue has reached max_waiting; nothing was stored


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The result of `put` for one job."""

    id: str
    code: PutCode


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a job's history: an error from the worker, or a cause that the engine found."""

    at_ms: int
    event: str
    attempt: int
    session: str | None = None
    started_ms: int | None = None  # when the failed claim began
    error: bytes = b""  # after a revival with a new payload: the old payload


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All data of a job at one instant."""

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
    session: str | None = None  # the session that runs the job, or ran it last
    cancel_requested: bool = False
    suspect: bool = False
    progress: bytes | None = None
    result: bytes | None = None
    has_result: bool = False  # a result is still stored
    payload: bytes = b""
    failures: tuple[Failure, ...] = ()
    unique_key: str | None = None
    #: Why a worker held the job as unroutable, until the next claim or revival.
    held_because: bytes | None = None
    fingerprint: str = ""  # of a dead job, unless it died without one; pages do not have it

    @property
    def revision(self) -> str:
        """A text that differs after the job was started, moved or given another due time: see
        `JobChange.seen`. It does not cover the payload, so that records of a page have it too."""
        had = self.counters
        return revision_of(self.state, had.starts, had.strays, self.due_ms, self.queue)


def revision_of(state: str, starts: int, strays: int, due_ms: int | None, queue: str) -> str:
    """The revision of a job with these fields."""
    return f"{state} {starts} {strays} {-1 if due_ms is None else due_ms} {queue}"


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job and, once it has ended, its outcome. Serves waiting callers, without the
    payload."""

    id: str
    task: str
    state: State
    reason: Reason | None = None
    finished_ms: int | None = None
    result: bytes | None = None  # result of a succeeded job, while the result is stored
    failure: Failure | None = None  # newest history entry of a dead job


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for listing jobs. All given conditions must hold."""

    state: State | None = None
    hold: Hold | None = None  # only ready jobs that are held for this reason
    suspects: bool = False  # only ready jobs that must run alone and are not held
    queue: str | None = None
    task: str | None = None
    since_ms: int | None = None  # created at this instant or later
    until_ms: int | None = None  # created before this instant
    fingerprint: str | None = None  # only dead jobs with this fingerprint
    release: str | None = None  # only dead jobs of this release; see `DeadTally`

    def includes_instant(self, created_ms: int) -> bool:
        """Whether a job that was created at this instant may be listed."""
        return (self.since_ms is None or created_ms >= self.since_ms) and (
            self.until_ms is None or created_ms < self.until_ms
        )


def is_chosen(record: JobRecord, filter: Filter) -> bool:
    """Whether a job matches a filter. Its fingerprint must be known if the filter has one."""
    is_dead = record.state is State.DEAD
    return (
        filter.includes_instant(record.created_ms)
        and filter.state in (None, record.state)
        and filter.hold in (None, record.hold)
        and filter.task in (None, record.task)
        and filter.queue in (None, queue_of(record.queue))
        and (filter.fingerprint is None or (is_dead and filter.fingerprint == record.fingerprint))
        and (
            filter.release is None
            or (is_dead and filter.release == (release_of(record.session) or ""))
        )
    )


class Page(msgspec.Struct, frozen=True):
    """One page of records without payloads, results and histories. `cursor` is None at the end, and
    opaque otherwise."""

    records: tuple[JobRecord, ...]
    cursor: str | None


class CancelCode(StrEnum):
    CANCELLED = "cancelled"
    REQUESTED = "requested"  # the job runs; its worker will be notified
    FINAL = "final"  # the job has already ended
    UNKNOWN = "unknown"


class ChangeCode(StrEnum):
    """The result of `change_jobs`, `revive` or `discard` for one job."""

    DONE = "done"
    REFUSED = "refused"  # the state does not allow it, or the job is not as the caller saw it
    DUPLICATE = "duplicate"  # another job holds its unique key
    UNKNOWN = "unknown"


class Revival(msgspec.Struct, frozen=True, kw_only=True):
    """A dead or cancelled job to make ready again."""

    id: str
    finished_ms: int | None = None  # revive only if the job ended at this instant
    payload: bytes | None = None  # the new payload; the old one goes into the history


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a job that waits. None keeps what is stored."""

    id: str
    seen: str | None = None  # only if `JobRecord.revision` is still this one
    seen_payload: bytes | None = None  # only if the payload is still this one
    payload: bytes | None = None  # the payload from now on; the old one goes into the history
    queue: str | None = None  # or a line of it, as in `NewJob`
    run_in_ms: int | None = None  # due this much later; 0: now

    @property
    def size(self) -> int:
        """The number of bytes that travel with this change."""
        return len(self.payload or b"") + len(self.seen_payload or b"")


class JobVerbs(Protocol):
    """Store, read and change jobs."""

    def new_id(
        self, task: str, queue: str, idempotency_key: str | None, unique_key: str | None = None
    ) -> str:
        """Make an id for a new job. The id contains the partition of the job. Makes no request.
        `put` accepts other ids too, but not with an idempotency key or a unique key."""

    def new_ids(self, number: int, task: str, queue: str) -> list[str]:
        """Make ids for jobs without a key that are put together, all in one partition. Makes no
        request."""

    def elsewhere(self, job_id: str) -> list[str]:
        """List the ids that a job without a key would have in each other partition, in turn; empty
        if there is only one partition. Makes no request."""

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        """Store jobs: within a partition all jobs or, when `put` raises, none. A known id changes
        nothing. Pass at most `BATCH` jobs with `BATCH_BYTES` of payload: an engine may store more
        in several steps, and in halves when the connection breaks repeatedly.

        The idempotency key decides first, then the unique key. A job that is not stored takes
        neither key. A waiting job that is replaced gets the queue, priority, times, payload and
        unique key of the new job and fresh budgets, and keeps its place in line if it stays ready.
        A holder of the key that is past its `expires` is cancelled first, as in a claim.

        When the queue has a limit and that number of jobs wait in the line (ready, scheduled or
        retrying), the job is not stored. Jobs that come back and jobs that are replaced are never
        refused. If a line is spread over partitions, each has a part of the limit.

        Times that `jobs.check_times` refuses raise `EngineError`, and nothing is stored."""

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]: ...

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        """Read the state of jobs and, for jobs that have ended, the outcome. Reads no payloads."""

    def watch(self, ids: Sequence[str], on_end: Callable[[str], None]) -> list[JobEnd | None]:
        """Run `ends`, and atomically subscribe for `WATCH_MS`: the engine calls `on_end` with the
        id of each job that ends or is removed, in any process. Every watching caller is notified,
        at most once per `watch`. A notification is a hint: it can get lost, and can come for a job
        that has not ended. So read again, and also poll from time to time. `on_end` runs in a
        thread of the engine and must not block; pass the same function each time."""

    def find(self, filter: Filter, cursor: str | None = None, limit: int = 100) -> Page:
        """Read one page of jobs, state by state:

        1. running jobs, by session and claim
        2. ready jobs, queue by queue in the order in which they start. The lines of a queue follow
           each other. Jobs that must run alone come after the others, then those that are held as
           unroutable or because their task is paused, by task
        3. scheduled and retrying jobs, the soonest first
        4. dead, then cancelled, then succeeded jobs: first the one that the purge visits last. That
           is the latest end among jobs of one state that are kept for the same time

        With a fingerprint, only the dead jobs that have it are read, the latest death first, by
        their own index: a page reads its jobs, and some records for each group of them.

        `pages.JobIndex` lists the indexes of this order; with a state, only its own are read. Jobs
        of several partitions are merged. A job that does not change between two pages is listed
        exactly once; one that changes its state or its place meanwhile may be listed twice, or be
        missed. The cursor is a URL-safe text, for the same filter only; another one raises
        `EngineError`. A page reads at most about `pages.SCAN_BUDGET` records. So it may be short,
        or empty, and still have a cursor."""

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        """Find the jobs that hold unique keys; return their ids. A key is (task, key)."""

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]: ...

    def change_jobs(self, changes: Sequence[JobChange]) -> list[ChangeCode]:
        """Change jobs that wait: ready, scheduled and retrying jobs, also while they are held.
        Payload, queue and due time of one job change in one step. REFUSED means that the job does
        not wait, or differs from `seen` or `seen_payload`. Limits of queues do not apply.

        The place in line:

        - A ready job keeps its place, also in another queue, unless it gets a due time.
        - A held job keeps its hold, unless `run_in_ms` is given. With 0 it returns to its place.
        - A scheduled or retrying job with `run_in_ms` 0 goes to the end of the line. The next claim
          holds a job of a paused task again.

        Unique and idempotency keys stay. A repeated call returns REFUSED if the first call changed
        what `seen` or `seen_payload` name. Otherwise the repeat has the same effect once more: a
        new payload adds another entry to the history, and a due time counts from the repeat."""

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        """Make dead or cancelled jobs ready again, with fresh budgets, if they are still as the
        caller saw them. A job stays unchanged when another job holds its unique key. Payload and
        state change together: the job is dead with its old payload, or ready with the new payload.
        A repeated call returns REFUSED and, with `finished_ms`, does not revive a job that has died
        again."""

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        """Remove dead or cancelled jobs and free their idempotency and unique keys. A repeated call
        returns UNKNOWN. A job in `seen` is refused unless it ended at that instant: otherwise the
        caller saw an earlier end."""

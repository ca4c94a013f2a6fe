"""The engine contract: the operations that every engine implements.

An engine is synchronous and safe to call from many threads and processes. Every operation takes
several items and is atomic within a partition. An operation with a stale token changes nothing and
reports it. An operation that is repeated after a lost reply changes nothing and succeeds.

Times are milliseconds. `_ms` is an instant of the engine's own clock. `_in_ms` and `_after_ms` are
distances that the engine resolves, so that no client clock decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.engine.contract.claims import (
    Batch,
    Beat,
    Closed,
    Outcome,
    Plan,
    Pulse,
    Turn,
    Verdict,
    Waiter,
    WakeUp,
)
from windlass.engine.contract.jobs import (
    CancelCode,
    ChangeCode,
    Filter,
    JobEnd,
    JobRecord,
    NewJob,
    Page,
    Placed,
    Revival,
)
from windlass.engine.contract.records import (
    DueSchedules,
    Emptied,
    Finding,
    Introductions,
    QueueChange,
    QueueRecord,
    Repaired,
    ScheduleChange,
    ScheduleRecord,
    SessionRecord,
    Stats,
    Tended,
)

#: A finished record is kept at least this long, so that a repeated finish is recognised.
MIN_RECORD_MS: Final = 10 * 60 * 1000
#: An idempotency key is remembered this long.
IDEMPOTENCY_MS: Final = 24 * 60 * 60 * 1000
#: Claims under a nonce that their child does not know are released when older than this.
UNKNOWN_NONCE_MS: Final = 10_000
#: The engine remembers a `watch` this long; a waiting caller renews it.
WATCH_MS: Final = 10_000
#: One call promotes, reaps, expires, adopts or purges at most this many jobs per partition.
BITE: Final = 200
#: One call of `tend` reports doomed jobs with at most this many bytes in total, or a single larger
#: job: the caller reads them before they are removed, perhaps over a slow link.
SWEEP_BYTES: Final = 4 * 1024 * 1024
#: The engine remembers a dead session this long, so that it can answer its late heartbeats.
GONE_SESSION_MS: Final = 60 * 60 * 1000
#: A session record names at most this many of the jobs that the session holds.
MAX_HELD: Final = 100
#: A job keeps at most this many failures, the newest ones.
MAX_FAILURES: Final = 50


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an engine object, in addition to its URL."""

    lease_ms: int = 30_000
    dead_ttl_ms: int = 14 * 24 * 60 * 60 * 1000
    timeout_ms: int = 5_000  # how long a call may take before it fails as unavailable
    #: Use a connection pool that no other engine object of the process shares.
    has_own_connections: bool = False
    #: The most concurrent calls to one server, each on its own connection. The first engine object
    #: that is opened for a server decides for all that share its pool.
    most_calls: int = 3


class Capability(StrEnum):
    """An optional feature of an engine. Contract tests skip only by these."""

    STRICT_ORDER = "strict_order"  # priority and order are exact across the whole queue
    MANY_PROCESSES = "many_processes"  # other processes can open the same jobs
    HANDOFF = "handoff"  # `put` may lease its job to a session that waits under a nonce
    DURABLE = "durable"  # stored jobs survive the end of the process


class Engine(Protocol):
    """The storage of jobs. A failing operation raises `EngineUnavailable`; its effect is unknown
    and the caller repeats the same call, which is harmless. After a broken connection an engine may
    repeat a call by itself and returns the result of the repeat, which differs for some operations:
    `retry` returns REFUSED, and `release` returns 0.

    A payload or result that is larger than the place can ever store raises `PayloadTooLarge`, and
    the call changes nothing in its partition. A repeat does not help."""

    @property
    def location(self) -> str:
        """The place of the jobs, as messages show it; never a secret."""

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    #: Added to the engine's clock. Tests move time with it; otherwise 0.
    clock_offset_ms: int

    def new_id(
        self, task: str, queue: str, idempotency_key: str | None, unique_key: str | None = None
    ) -> str:
        """Make an id for a new job; the id carries the partition of the job. Makes no request.
        `put` accepts other ids too, but not with an idempotency key or a unique key."""

    def elsewhere(self, job_id: str) -> list[str]:
        """List what this id of a job without a key would be in each other partition, in turn; empty
        if there is only one. Makes no request."""

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        """Store jobs, per partition all or, when it raises, none. A known id stays as it is. Pass
        at most `BATCH` jobs with `BATCH_BYTES` of payload: an engine may store more in several
        steps. When the connection breaks repeatedly, the engine may store them in halves.

        The idempotency key decides first, then the unique key. A job that is not stored takes
        neither. A waiting job that is replaced gets the queue, priority, times, payload and unique
        key of the new job and fresh budgets. It keeps its place in line if it stays ready. A job
        that holds the key and is past its `expires` is cancelled first, as in `claim`.

        When the queue has a limit and that number of jobs wait in the line (ready, scheduled or
        retrying), the job is not stored. Jobs that come back and jobs that are replaced are never
        refused. A line that is spread over partitions has a part of the limit in each.

        Times that `jobs.check_times` refuses raise `EngineError`, and nothing is stored."""

    def claim(
        self, session: str, nonce: str, plan: Plan, limit: int, *, is_last: bool = False
    ) -> Batch:
        """Promote due jobs, take back lost jobs, then lease up to `limit` jobs to `session` under
        `nonce`. The nonces of a session sort as text in the order of their use. A nonce that is not
        later than all earlier ones leases nothing new: a repeated or late claim returns the jobs of
        the first call that are still held.

        The payloads of a batch have about `plan.most_bytes` in total; the first job is leased at
        any size. A batch that this limit cuts short has `next_in_ms` 0: there is more now.

        Pass `is_last` for a nonce that was passed to `wait`: the claim then uses up the nonce even
        when it finds no job, and no `put` leases a job under it later."""

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """End or change claims, each fenced by its token. Instants are capped at
        `durations.LATEST_MS`."""

    def turn(
        self,
        session: str,
        outcomes: Sequence[Outcome],
        nonce: str,
        plan: Plan,
        limit: int,
        *,
        is_last: bool = False,
    ) -> Turn:
        """Run `finish`, then `claim`, in one round trip and one commit."""

    def release(self, session: str, nonce: str) -> int:
        """Release, uncharged, every job that `session` holds under `nonce`; return their number.
        The nonce is used up: a claim under it that arrives later finds nothing."""

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Extend the leases of live sessions. A session that was declared dead stays dead."""

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        """End a session whose process is gone. A single suspect is charged a crash. Several
        suspects are each marked to run alone. All other jobs return to their old place: their
        attempt is refunded and an interruption counted. One of them may have ended, unreported, and
        killed its process afterwards; the count limits how often this can happen."""

    def lose(self, session: str, cause: str) -> int:
        """End a session whose whole worker is gone, as if its lease had run out, and return the
        number of its jobs. The jobs go back, each charged a loss with the cause in its history. It
        is unknown which job ended the worker, so a job that does so repeatedly must run out of
        losses."""

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]: ...

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]: ...

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        """Read the state of jobs and, for jobs that have ended, their end. Reads no payloads."""

    def watch(self, ids: Sequence[str], on_end: Callable[[str], None]) -> list[JobEnd | None]:
        """Run `ends`, and atomically subscribe for `WATCH_MS`: the engine calls `on_end` with the
        id of each job that ends or is removed, in any process. Every watching caller is notified,
        at most once per `watch`. The call is a hint: it can get lost, and can come for a job that
        has not ended. So read again, and also poll from time to time. `on_end` runs in a thread of
        the engine and must not block; pass the same one each time."""

    def find(self, filter: Filter, cursor: str | None = None, limit: int = 100) -> Page:
        """Read one page of jobs, newest first."""

    def retry(self, ids: Sequence[str]) -> list[ChangeCode]:
        """Make dead or cancelled jobs ready again, with fresh budgets. A repeated call returns
        REFUSED. A job stays as it is when another job holds its unique key."""

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        """Run `retry` for jobs that are still as the caller saw them, optionally with new payloads.
        Payload and state change together: the job is dead with its old payload, or ready with the
        new one. A repeated call returns REFUSED and leaves a job alone that has died again."""

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        """Remove dead or cancelled jobs and free their idempotency and unique keys. A repeated call
        returns UNKNOWN. A job in `seen` is refused unless it ended at that instant: the caller has
        looked at another end."""

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        """Look up the ids of the jobs that hold unique keys, each key given as task and key."""

    def queues(self) -> list[QueueRecord]:
        """List the queues with settings other than the default, by name."""

    def change_queue(self, queue: str, change: QueueChange) -> None:
        """Change the settings of a queue, whether it has jobs or not. Repeating is harmless."""

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        """Remove one bounded batch of waiting jobs of a queue (ready, scheduled and retrying, not
        running) and free their idempotency and unique keys. Call again with the returned cursor.
        Jobs that enter the queue in the meantime may stay."""

    def adopt(self, tasks: Sequence[str]) -> int:
        """Make unroutable jobs of these tasks ready at once, at most `BITE` per partition; return
        their number. `BITE` or more means that more are likely; only 0 means that none are left."""

    def schedule_partition(self, name: str) -> int:
        """Compute the partition of a schedule and of the ids of its jobs. Makes no request."""

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """Apply changes, each completely or not at all. True means that the change applies, through
        this call or an earlier one with the same revision. At most 1,000 jobs in total."""

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]: ...

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        """List the next schedules, in the order of their names."""

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        """List schedules that are due, except those in `skip`; at most `limit` per partition.
        Changes nothing."""

    def remove_schedule(self, name: str) -> bool:
        """Remove a schedule and keep its jobs; return whether it existed. A repeat gives False."""

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        """Do one bounded batch of maintenance: reap expired sessions, purge records past their
        retention. A record that holds a unique key for a period is kept for all of it.

        With `known`, dead jobs are purged only if `known` names them. Other dead jobs past their
        retention are returned as `doomed`, with at most `SWEEP_BYTES` of payloads and histories, or
        a single larger one. The caller can log them and then name them, so that no dead job
        vanishes unlogged however often the call is repeated. An engine may end a batch early to
        limit its bytes; `more` reports this."""

    def stats(self) -> Stats: ...

    def sessions(self) -> list[SessionRecord]:
        """List the sessions that hold jobs or have introduced themselves."""

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """Read one bounded batch of the `info` of live sessions whose names begin with `prefix`.
        Call again with the returned cursor. A session that exists throughout is returned at least
        once."""

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        """Wait for work on behalf of idle sessions; every call names all of them. Return the
        sessions that may have something to claim; none after the timeout or on `nudge`. A woken
        session is waited for again only when the next call names it. A session that is no longer
        named is not waited for. The engine keeps wake-ups that arrive between two successive calls.
        At most one call at a time per object.

        Wake-ups are hints, and an engine also polls from time to time. From this call on, a `put`
        may lease a job under the nonce of a waiter at any time, even if this call does not return
        it. So claim or release under that nonce, or pass it in again."""

    def read_handoff(self, handed: bytes, nonce: str) -> Batch | None:
        """Decode the claim that a `WakeUp` carries; None if it was made under another nonce."""

    def nudge(self) -> None:
        """Make the `wait` in progress on this object, or the next one, return at once."""

    def check(self) -> list[str]:
        """Compare indexes, counters and records; return a sentence for each disagreement."""

    def repair(self, cursor: str | None = None, *, change: bool = False) -> Repaired:
        """Fix one bounded batch of what `check` finds: rebuild indexes and counters from the
        records, which stay as they are. Without `change`, only report the fixes. Call again with
        the returned cursor. Workers may keep running. Nothing that could be a job is removed: a job
        without a payload gets an empty one and becomes a dead letter when it runs."""

    def is_used(self) -> bool:
        """Tell whether this place was set up, which its first use does. Creates nothing."""

    def examine(self) -> list[Finding]:
        """Diagnose the place that stores jobs, for `windlass doctor`: versions, durability, space
        and permissions. Changes and creates nothing. What a first use would refuse is returned as a
        problem; only a place that does not answer raises."""

    def migrate(self) -> int:
        """Migrate the stored format to this version; return the version now stored."""

    def shutdown(self) -> None:
        """Close connections and threads. The object stays usable and reconnects."""

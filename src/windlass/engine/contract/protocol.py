"""The engine contract: the verbs of the queue.

An engine is synchronous and safe to call from many threads and processes. Every verb takes many
and is atomic within a partition. A verb that presents a token which is no longer current changes
nothing and says so; a verb repeated after a lost reply changes nothing and succeeds. Times are
milliseconds: `_ms` is an instant of the engine's own clock, `_in_ms` and `_after_ms` a distance
that the engine resolves, so that no client's clock decides anything.
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
#: Claims under a nonce that their child does not know are given back when older than this.
UNKNOWN_NONCE_MS: Final = 10_000
#: The wish to hear of the end of a job is remembered this long; a caller that waits renews it.
WATCH_MS: Final = 10_000
#: At most this many jobs are promoted, reaped, expired, adopted or purged by one call in one
#: partition.
BITE: Final = 200
#: Dead jobs that one call of `tend` gives as doomed have at most so many bytes together, or it is
#: one job: they are read before they are removed, perhaps over a slow link.
SWEEP_BYTES: Final = 4 * 1024 * 1024
#: A session that was declared dead is remembered this long, so that its late beats are answered.
GONE_SESSION_MS: Final = 60 * 60 * 1000
#: At most this many of the jobs that a session holds are named.
MAX_HELD: Final = 100
#: At most this many failures are remembered of one job, the newest ones.
MAX_FAILURES: Final = 50


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is told when it is opened, beside its URL."""

    lease_ms: int = 30_000
    dead_ttl_ms: int = 14 * 24 * 60 * 60 * 1000
    timeout_ms: int = 5_000  # how long a call may take before it fails as unavailable
    #: Connections that no other engine object of the process uses: a call waits for none of theirs.
    has_own_connections: bool = False
    #: How many calls to a server this process may have under way at a time, each on a connection of
    #: its own. The engine object that is opened first for a server decides for all that share.
    most_calls: int = 3


class Capability(StrEnum):
    """What an engine can do that others may not; tests are left out only by these."""

    STRICT_ORDER = "strict_order"  # priority and order are exact across the whole queue
    MANY_PROCESSES = "many_processes"  # other processes can open the same place
    HANDOFF = "handoff"  # a put may lease its job to a session that waits under a nonce
    DURABLE = "durable"  # what was put survives the end of the process


class Engine(Protocol):
    """Where jobs live. Failing verbs raise `EngineUnavailable`; then the effect is unknown and the
    caller repeats the same call, which is harmless. An engine whose connection breaks may repeat a
    call by itself; the answer is then that of the repeat, which for some verbs is another one:
    `retry` says refused, `release` that nothing was held.

    A payload or result that is larger than the place can ever store raises `PayloadTooLarge`, and
    nothing of the call is done in its partition: repeating it does not help."""

    @property
    def location(self) -> str:
        """Where this is, for people; never a secret."""

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    #: Added to the engine's clock. The one seam through which tests move time; otherwise 0.
    clock_offset_ms: int

    def new_id(
        self, task: str, queue: str, idempotency_key: str | None, unique_key: str | None = None
    ) -> str:
        """An id for a job to be put, which carries the partition that the job belongs to. Asks
        nobody. Other ids may be put too, but not with an idempotency key or a unique one."""

    def elsewhere(self, job_id: str) -> list[str]:
        """What an id that `new_id` made for a job without a key would be in each of the other
        partitions, in turn; nothing where there is one. Asks nobody."""

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        """Store jobs; in each partition all of them, or none when it raises. A known id is left as
        it is. At most `BATCH` jobs with `BATCH_BYTES` of payload at a time: an engine may store
        more in several steps. Over a link that breaks under them it may store them in halves.

        The idempotency key counts first, then the unique key; neither is taken by a job that was
        not stored. A job that waits and is replaced has the queue, priority, times, payload and
        unique key of the new one, fresh budgets, and its place in line if it stays ready. One that
        holds the key and whose `expires` has passed is cancelled first, as a claim would do.

        Where the queue of a job has a bound and as many jobs wait in its line (ready, scheduled or
        retrying), it is not stored; jobs that come back, and those that are replaced, are never
        refused. A line that is spread over partitions has a part of the bound in each.

        Times that `jobs.check_times` refuses raise `EngineError`, and nothing is stored."""

    def claim(
        self, session: str, nonce: str, plan: Plan, limit: int, *, is_last: bool = False
    ) -> Batch:
        """Promote what is due, take back what is lost, then lease up to `limit` jobs to `session`
        under `nonce`. The nonces of a session sort as text in the order of their use. Under one
        that is not later than all before, nothing new is leased: a claim that is repeated, or
        arrives late, gives the jobs of the first time, as far as they are still held.

        The payloads of a batch have about `plan.most_bytes` together; the first job is leased
        whatever its size. A batch that this cuts short says `next_in_ms` 0: there is more now.

        Give `is_last` for a nonce that was handed to `wait`: then it is used up even when there
        was nothing to claim, and no put leases a job under it later."""

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """End or change claims, each fenced by its token. An instant that would lie later than
        `durations.LATEST_MS` is that one."""

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
        """`finish`, then `claim`, in one round trip and one commit."""

    def release(self, session: str, nonce: str) -> int:
        """Give back, uncharged, every job that `session` holds under `nonce`; how many. The nonce
        is used up: a claim under it that is still on its way finds nothing."""

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Keep all claims of live sessions. A session that was declared dead stays dead."""

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        """End a session whose process is gone. A single suspect is charged a crash; of several,
        each is marked to run alone; all other jobs go back to their old place. Their attempt is
        given back and an interruption counted: one may have ended, unreported, and killed its
        process after that, and must not do so for ever."""

    def lose(self, session: str, cause: str) -> int:
        """End a session whose whole worker is gone, as if its lease had run out: its jobs go back,
        and a loss is counted for each, with the cause in its history. How many. Which of them
        ended the worker is unknown, and one that does so again and again has to run out."""

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]: ...

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]: ...

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        """How far jobs have come, and how those ended that have. Payloads are not read."""

    def watch(self, ids: Sequence[str], on_end: Callable[[str], None]) -> list[JobEnd | None]:
        """`ends`, and from the same step on, for `WATCH_MS`, `on_end` is called with the id of any
        of them that ends or is removed. The call comes from any process and reaches every caller
        that watches, at most once for each `watch`. It is a hint that can get lost, and can come
        for jobs that have not ended: look again, and look by yourself from time to time. `on_end`
        is called in a thread of the engine and must not block; pass the same one each time."""

    def find(self, filter: Filter, cursor: str | None = None, limit: int = 100) -> Page:
        """A page of jobs, newest first."""

    def retry(self, ids: Sequence[str]) -> list[ChangeCode]:
        """Make dead or cancelled jobs ready again, with fresh budgets. Repeated, it finds them
        ready and says refused. One whose unique key is held by another job is left as it is."""

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        """`retry`, only of jobs that are as they were seen, and perhaps with other payloads: the
        job has either its old payload and is dead, or the new one and is ready. Repeated it says
        refused, and a job that has died again meanwhile is left alone."""

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        """Remove dead or cancelled jobs, and free their idempotency and unique keys. Repeated, it
        does not find them and says unknown. One that is named in `seen` is refused if it did not
        end at that instant: somebody has looked at another end."""

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        """The ids of the jobs that hold unique keys, each given as task and key."""

    def queues(self) -> list[QueueRecord]:
        """The queues whose settings are not the usual ones, by name."""

    def change_queue(self, queue: str, change: QueueChange) -> None:
        """Change the settings of a queue, whether it has jobs or not. Repeating is harmless."""

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        """Remove, in one bounded bite, jobs of a queue that wait, and free their idempotency and
        unique keys: ready, scheduled and retrying ones, not those that run. Call again with the
        cursor that it gives. What enters the queue meanwhile may stay."""

    def adopt(self, tasks: Sequence[str]) -> int:
        """Offer at once jobs of these tasks that were held as unroutable, at most `BITE` of each
        partition; how many. With `BITE` or more there are likely others; only 0 says that there
        are none."""

    def schedule_partition(self, name: str) -> int:
        """The partition of a schedule, and of the ids of its jobs. Asks nobody."""

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """Make changes, each as a whole or not at all; whether it counts, now or by an earlier call
        with the same revision. At most 1,000 jobs in all."""

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]: ...

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        """The next schedules in the order of their names."""

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        """Schedules whose instant has come, but for those to be skipped; `limit` of them in each
        partition. It changes nothing."""

    def remove_schedule(self, name: str) -> bool:
        """Forget a schedule; its jobs stay. Whether there was one: not so when repeated."""

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        """One bounded bite of upkeep: reap silent sessions, purge what was kept long enough. A
        record that holds a unique key for a period is kept for all of it.

        With `known`, dead jobs are purged only if they are named in it; others whose time has
        passed are given as `doomed`, with at most `SWEEP_BYTES` of payloads and histories, or a
        single one. So the caller can write down what they were, and then names them: nothing is
        lost on the way, however often it is repeated. An engine may end a bite early for the sake
        of bytes; `more` says so."""

    def stats(self) -> Stats: ...

    def sessions(self) -> list[SessionRecord]:
        """Who holds jobs, or has said of itself that it is there."""

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """One bounded bite of what live sessions say of themselves, of those whose names begin with
        a text. Call again with the cursor that it gives. A session that is there all the while is
        given at least once."""

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        """Wait for work on behalf of idle sessions, all of them in every call. Return those for
        which there may be something to claim; none after the timeout or on `nudge`. A session that
        was woken is waited for again only when the next call names it; one that is no longer named
        is not waited for. Between two calls that follow one another wake-ups are kept. One call at
        a time on an object.

        Wake-ups are hints, and an engine also looks by itself from time to time. Under the nonce of
        a waiter a claim may be made at any time from this call on, whatever it returns: so claim or
        release under that nonce, or hand it in again."""

    def read_handoff(self, handed: bytes, nonce: str) -> Batch | None:
        """The claim that a `WakeUp` carries; None when it was made under another nonce."""

    def nudge(self) -> None:
        """Make a wait under way on this object, or the next one, return at once."""

    def check(self) -> list[str]:
        """Compare indexes, counters and records; a sentence for each disagreement."""

    def repair(self, cursor: str | None = None, *, change: bool = False) -> Repaired:
        """Set right, in one bounded bite, what `check` finds: indexes and counters follow from the
        records, which stay as they are. Without `change` it only tells what it would do. Call again
        with the cursor that it gives. Workers may go on meanwhile. Nothing that could be a job is
        removed: one without a payload gets an empty one, and is a dead letter once it was run."""

    def is_used(self) -> bool:
        """Whether this place was set up, which its first use does. It makes nothing itself."""

    def examine(self) -> list[Finding]:
        """Look at the place itself, as `windlass doctor` shows it: versions, durability, room and
        rights. It changes nothing and makes nothing. What a first use would refuse is a problem
        among the findings, and only a place that does not answer raises."""

    def migrate(self) -> int:
        """Bring the stored format up to date; the version now stored."""

    def shutdown(self) -> None:
        """Let go of connections and threads. The object can be used again and reconnects."""

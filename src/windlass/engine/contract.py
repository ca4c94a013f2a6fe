"""The engine contract: the verbs of the queue, and the values they take and give.

An engine is synchronous and safe to call from many threads and processes. Every verb takes many
and is atomic within a partition. A verb that presents a token which is no longer current changes
nothing and says so; a verb repeated after a lost reply changes nothing and succeeds. Times are
milliseconds: `_ms` is an instant of the engine's own clock, `_in_ms` and `_after_ms` a distance
that the engine resolves, so that no client's clock decides anything.

In order: what goes in (`UniqueKey`, `NewJob`, `Plan`), what a worker holds (`Claim`, `Batch`), how
it reports (`Outcome`, `Verdict`), liveness (`Beat`, `Pulse`), schedules (`ScheduleChange`,
`ScheduleRecord`), what can be seen (`JobRecord`, `Stats`, `Finding`), and the protocol itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.core.lines import may_take, queue_of
from windlass.core.queue_settings import QueueSettings
from windlass.core.states import Counters, Hold, Reason, State
from windlass.core.unique import OnConflict, Until

#: A finished record is kept at least this long, so that a repeated finish is recognised.
MIN_RECORD_MS: Final = 10 * 60 * 1000
#: An idempotency key is remembered this long.
IDEMPOTENCY_MS: Final = 24 * 60 * 60 * 1000
#: Claims under a nonce that their child does not know are given back when older than this.
UNKNOWN_NONCE_MS: Final = 10_000
#: At most this many jobs are promoted, reaped, expired, adopted or purged by one call in one
#: partition.
BITE: Final = 200
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


class Capability(StrEnum):
    """What an engine can do that others may not; tests are left out only by these."""

    STRICT_ORDER = "strict_order"  # priority and order are exact across the whole queue
    MANY_PROCESSES = "many_processes"  # other processes can open the same place
    AWAITED_CLAIMS = "awaited_claims"  # `await_claim` claims the moment there is something
    DURABLE = "durable"  # what was put survives the end of the process


# --------------------------------------------------------------------------------------- going in


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
    queue: str  # or, with labels that its worker must have, a line of it: see core.lines
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

    def due_ms(self, now_ms: int) -> int:
        """The later of the two instants before which it must not start."""
        return max(self.run_after_ms or 0, now_ms + self.run_in_ms)

    def expiry_ms(self, now_ms: int) -> int | None:
        """The earlier of the two instants after which it must not start."""
        if self.expires_in_ms is None:
            return self.expires_ms
        relative_ms = now_ms + self.expires_in_ms
        return relative_ms if self.expires_ms is None else min(self.expires_ms, relative_ms)


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


class Share(msgspec.Struct, frozen=True):
    """Queues of a plan that are served side by side: `number` of them, from position `first` on.

    `turns` says whose turn it is, one byte for each: 0 is the first of these queues. When there is
    room for n jobs of them, each gives first as many as it has turns among the first n; what then
    is left is filled in the order of the queues."""

    first: int
    number: int
    turns: bytes


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is willing to claim: queues in strict order, or every queue when empty."""

    queues: tuple[str, ...] = ()
    suspects: bool = False  # claim only jobs that must run alone, instead of all the others
    shares: tuple[Share, ...] = ()  # where not the order alone decides; ascending, and apart
    labels: tuple[str, ...] = ()  # of this worker: jobs that require others are not for it

    def serves(self, line: str) -> bool:
        """Whether jobs of a line may be claimed, as far as queues and labels go."""
        return (not self.queues or queue_of(line) in self.queues) and may_take(line, self.labels)

    def tiers(self) -> Iterator[tuple[tuple[str, ...], bytes]]:
        """The queues in strict order: those that share a tier together, with their turns."""
        shares = {share.first: share for share in self.shares}
        at = 0
        while at < len(self.queues):
            share = shares.get(at) or Share(at, 1, b"")
            yield self.queues[at : at + share.number], share.turns
            at += share.number


# ------------------------------------------------------------------------------- holding and ending


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the hands of a worker session. `counters` include this claim."""

    id: str
    token: str
    task: str
    queue: str
    priority: int
    payload: bytes
    counters: Counters
    created_ms: int
    suspect: bool = False


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a claim, in the order in which the jobs should start; those of queues that
    share a tier queue by queue, for the child to interleave."""

    claims: tuple[Claim, ...] = ()
    next_in_ms: int | None = None  # when the next thing is due; 0 = there is more to do now
    gone: bool = False  # the session was declared dead: it can never claim again
    suspects: bool = False  # jobs that must run alone are waiting


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claim. Only the subclasses below are handed to an engine."""

    id: str
    token: str


class Succeeded(Outcome, frozen=True, kw_only=True):
    result: bytes | None = None  # None stores no result
    result_ttl_ms: int = 0


class Retried(Outcome, frozen=True, kw_only=True):
    delay_ms: int
    error: bytes


class Buried(Outcome, frozen=True, kw_only=True):
    reason: Reason
    error: bytes
    started: bool = True  # False when it was buried without being run


class Released(Outcome, frozen=True, kw_only=True):
    """Given back to its old place, uncharged."""

    started: bool
    alone: bool = False  # from now on to be claimed only as suspects are, until it has ended


class Snoozed(Outcome, frozen=True, kw_only=True):
    delay_ms: int


class Unroutable(Outcome, frozen=True, kw_only=True):
    """The claiming worker does not know the task."""


class Progressed(Outcome, frozen=True, kw_only=True):
    """Not an end: the job goes on, and this is how far it is."""

    progress: bytes


class Verdict(StrEnum):
    OK = "ok"  # done now, or by an earlier outcome of the same kind with the same token
    STALE = "stale"  # the token is not the current one; nothing was changed


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    verdicts: tuple[Verdict, ...]
    batch: Batch


# ---------------------------------------------------------------------------------------- liveness


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life of a session. `nonces`, when given, are all those up to `newest` that its
    child knows. Claims under any other nonce up to `newest` were lost on their way and are given
    back; later ones are left alone, so that a beat which arrives late does no harm.

    `info`, when given, is kept for `sessions` to show, and makes a session known that has not
    claimed anything yet. No engine looks into it."""

    session: str
    nonces: tuple[str, ...] | None = None
    newest: str = ""
    info: bytes = b""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    alive: bool
    cancel: tuple[str, ...] = ()  # jobs of this session whose cancellation was requested


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a closed session went which way."""

    crashed: int = 0
    suspected: int = 0
    released: int = 0


# --------------------------------------------------------------------------------------- schedules


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule is to be from now on, and what follows from that, in one step. It counts only
    if the schedule is still in the revision `expected`, which is "" where there must be none yet.

    To fire is such a change: the instant of the next occurrence, and the jobs of this one. So of
    all who fire an occurrence one does, and whoever does so again after a lost reply does nothing.

    Engines look into neither `body` nor `note`. The jobs, and those to be watched and cancelled,
    belong into the partition of the schedule."""

    name: str
    expected: str
    revision: str  # unlike all before: the change is recognised by it when it is repeated
    due_ms: int | None  # when to look at it again; None for not at all
    note: bytes  # how far it has come
    body: bytes | None = None  # when and what; None leaves it as it is
    watched: tuple[str, ...] = ()  # jobs of which it is told whether they have ended
    cancelled: tuple[str, ...] = ()  # jobs to be cancelled, as by `cancel`
    jobs: tuple[NewJob, ...] = ()  # to be put, as by `put`


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    revision: str
    due_ms: int | None
    body: bytes
    note: bytes
    watched: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()  # those of `watched` that are there and have not ended


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules to be looked at now, the earliest first; they stay so until they are changed."""

    now_ms: int  # of the engine's clock, for whoever decides what to do about them
    records: tuple[ScheduleRecord, ...] = ()
    more: bool = False  # the limit was reached: when these are changed, look again
    next_in_ms: int | None = None  # when the next one is due that is not yet


# ------------------------------------------------------------------------------------------ seeing


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


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was not declared dead. When its lease has run out, perhaps it is."""

    session: str
    expires_in_ms: int
    jobs: int
    held: tuple[str, ...] = ()  # the ids of its jobs, sorted; at most MAX_HELD of them
    info: bytes = b""  # what it said of itself last


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters, read and never counted. `totals` only grow."""

    queues: Mapping[str, Mapping[State, int]]
    oldest_ready_ms: Mapping[str, int]  # per queue, how long the next in line has been ready
    totals: Mapping[str, int]


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose settings are not the usual ones."""

    queue: str
    paused: bool = False  # nothing of it is claimed; jobs keep their place
    ageing_ms: int = 0  # so much waiting is worth a level of priority; 0: none is
    max_waiting: int = 0  # with so many that wait, `put` takes no more in; 0: there is no bound


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change in the settings of a queue; None leaves it as it is."""

    paused: bool | None = None
    ageing_ms: int | None = None  # for what becomes ready from now on; 0 switches it off
    max_waiting: int | None = None  # of each line of the queue; 0 takes the bound away


def list_records(settings: Mapping[str, QueueSettings]) -> list[QueueRecord]:
    """The queues among these whose settings are not the usual ones, by name."""
    records = [
        QueueRecord(
            queue=queue,
            paused=own.paused,
            ageing_ms=own.ageing_ms,
            max_waiting=own.max_waiting,
        )
        for queue, own in sorted(settings.items())
    ]
    return [record for record in records if record != QueueRecord(queue=record.queue)]


class Emptied(msgspec.Struct, frozen=True):
    """One bite of `purge`: how many were removed, and how to go on; None when all was seen."""

    number: int
    cursor: str | None


class Grade(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    ADVICE = "advice"  # it works, and could be safer or faster
    PROBLEM = "problem"  # it does not work, or will lose jobs


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at in the place where jobs live."""

    grade: Grade
    subject: str  # a word or two: the same whatever the grade
    text: str  # what was found and, unless it is ok, what to do


class Tended(msgspec.Struct, frozen=True, kw_only=True):
    reaped: int = 0
    purged: int = 0
    doomed: tuple[str, ...] = ()  # dead jobs whose time has passed and that were not named
    more: bool = False  # the bite was full: call again


# ---------------------------------------------------------------------------------------- protocol


class Engine(Protocol):
    """Where jobs live. Failing verbs raise `EngineUnavailable`; then the effect is unknown and the
    caller repeats the same call, which is harmless. An engine whose connection breaks may repeat a
    call by itself; the answer is then that of the repeat, which for some verbs is another one:
    `retry` says refused, `release` that nothing was held."""

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

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        """Store jobs; in each partition all of them, or none when it raises. A known id is left as
        it is. At most 500 at a time: more than that need not fit into one transaction of every
        engine.

        The idempotency key counts first, then the unique key; neither is taken by a job that was
        not stored. A job that waits and is replaced has the queue, priority, times, payload and
        unique key of the new one, fresh budgets, and its place in line if it stays ready. One that
        holds the key and whose `expires` has passed is cancelled first, as a claim would do.

        Where the queue of a job has a bound and as many jobs wait in its line (ready, scheduled or
        retrying), it is not stored; jobs that come back, and those that are replaced, are never
        refused. A line that is spread over partitions has a part of the bound in each."""

    def claim(self, session: str, nonce: str, plan: Plan, limit: int) -> Batch:
        """Promote what is due, take back what is lost, then lease up to `limit` jobs to `session`
        under `nonce`. The nonces of a session sort as text in the order of their use. Under one
        that is not later than all before, nothing new is leased: a claim that is repeated, or
        arrives late, gives the jobs of the first time, as far as they are still held."""

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """End or change claims, each fenced by its token."""

    def turn(
        self, session: str, outcomes: Sequence[Outcome], nonce: str, plan: Plan, limit: int
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

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]: ...

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]: ...

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
        """Offer at once jobs of these tasks that were held as unroutable, at most `BITE`; how many.
        Call again while it gives `BITE`."""

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
        passed are given as `doomed`. So whoever tends can write down what they were, and then names
        them: nothing is lost on the way, however often it is repeated."""

    def stats(self) -> Stats: ...

    def sessions(self) -> list[SessionRecord]:
        """Who holds jobs, or has said of itself that it is there."""

    def wait(self, plan: Plan, timeout_ms: int) -> None:
        """Return when there may be something to claim, on `nudge`, or after the timeout."""

    def await_claim(
        self, session: str, nonce: str, plan: Plan, limit: int, timeout_ms: int
    ) -> Batch | None:
        """Wait, and claim as soon as there may be something. None on `nudge` or after the timeout:
        then the claim may still be made at any time. So ask again under the same nonce, or claim or
        release under it. One at a time on an object."""

    def nudge(self) -> None:
        """Make a wait under way on this object, or the next one, return at once."""

    def check(self) -> list[str]:
        """Compare indexes, counters and records; a sentence for each disagreement."""

    def examine(self) -> list[Finding]:
        """Look at the place itself, as `windlass doctor` shows it: versions, durability, room and
        rights. It changes nothing and makes nothing. What a first use would refuse is a problem
        among the findings, and only a place that does not answer raises."""

    def migrate(self) -> int:
        """Bring the stored format up to date; the version now stored."""

    def shutdown(self) -> None:
        """Let go of connections and threads. The object can be used again and reconnects."""

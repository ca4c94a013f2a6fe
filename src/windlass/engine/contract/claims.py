"""The engine contract for claims: requests of a worker (`Plan`), leased jobs (`Claim`, `Batch`),
reports (`Outcome`, `Verdict`), waiting (`Waiter`, `WakeUp`), and the operations on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.core.queues.labels import may_take, queue_of
from windlass.core.states import Counters, Reason
from windlass.engine.contract.jobs import BATCH_BYTES

#: A claim with `Plan.tasks` passes over at most this many jobs of other tasks in each partition.
MAX_PASSED_OVER: Final = 1_000
#: The reason why a job is held has at most this many bytes.
MAX_WHY: Final = 2048


class Share(msgspec.Struct, frozen=True):
    """A tier of a plan: `number` queues from position `first` on, which share turns.

    `turns` is the order in which the queues are served, one byte per turn: 0 is the first of these
    queues. With room for n jobs, each queue first gives as many jobs as it has turns among the
    first n. The rest is filled in the order of the queues."""

    first: int
    number: int
    turns: bytes


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a child may claim: queues in strict order, or every queue when empty."""

    queues: tuple[str, ...] = ()
    suspects: bool = False  # claim only jobs that must run alone; otherwise only the others
    shares: tuple[Share, ...] = ()  # tiers with turns, ascending and not overlapping
    labels: tuple[str, ...] = ()  # labels of this worker, which cannot run jobs that require others
    #: The only tasks that this worker can run; empty: all. A claim passes over jobs of other tasks,
    #: which stay in line unchanged. It passes over at most `most_passed_over` jobs, and finds
    #: nothing behind more: give these tasks a queue or a label of their own.
    tasks: tuple[str, ...] = ()
    most_bytes: int = BATCH_BYTES  # total payload size of a batch; a single job may have more

    def serves(self, line: str) -> bool:
        """Return whether queues and labels allow this worker to claim jobs of a line."""
        return (not self.queues or queue_of(line) in self.queues) and may_take(line, self.labels)

    def runs(self, task: str) -> bool:
        """Return whether this worker can run jobs of a task."""
        return not self.tasks or task in self.tasks

    @property
    def most_passed_over(self) -> int:
        """The number of jobs of other tasks that a claim may pass over in each partition and each
        queue of the plan. Equal parts for all queues: no queue hides the jobs of another."""
        return max(1, MAX_PASSED_OVER // max(1, len(set(self.queues))))

    def tiers(self) -> Iterator[tuple[tuple[str, ...], bytes]]:
        """Iterate over the tiers in strict order: the queues of each tier, with their turns."""
        shares = {share.first: share for share in self.shares}
        at = 0
        while at < len(self.queues):
            share = shares.get(at) or Share(at, 1, b"")
            yield self.queues[at : at + share.number], share.turns
            at += share.number


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that is leased to a worker session. `counters` include this claim."""

    id: str
    token: str
    task: str
    queue: str
    priority: int
    payload: bytes
    counters: Counters
    created_ms: int
    suspect: bool = False
    #: From when the job took its place in line, or was due, until this claim. A job that returned
    #: to its old place waits since it took that place first.
    waited_ms: int = 0


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a claim: jobs in the order in which they should start. Queues that share a tier
    are listed queue by queue; the child interleaves them."""

    claims: tuple[Claim, ...] = ()
    next_in_ms: int | None = None  # time until the next due job; 0: claim again now
    gone: bool = False  # the session was declared dead and can never claim again
    suspects: bool = False  # jobs that must run alone are waiting


class Waiter(msgspec.Struct, frozen=True):
    """An idle session that waits for work. With `nonce`, an engine with hand-off may lease one job
    to the session under that nonce; without `nonce`, the engine only wakes the session."""

    session: str
    plan: Plan
    nonce: str = ""


class WakeUp(msgspec.Struct, frozen=True):
    """A hint that a session may have something to claim. `handed` is a claim that a put made for
    the session, under its nonce; `read_handoff` decodes it."""

    session: str
    handed: bytes = b""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A report that ends or changes a claim. Engines accept only the subclasses below."""

    id: str
    token: str

    @property
    def size(self) -> int:
        """Return the number of bytes that this outcome sends to the engine."""
        return 0


class Succeeded(Outcome, frozen=True, kw_only=True):
    result: bytes | None = None  # None stores no result
    result_ttl_ms: int = 0

    @property
    def size(self) -> int:
        return len(self.result or b"")


class Retried(Outcome, frozen=True, kw_only=True):
    delay_ms: int
    error: bytes

    @property
    def size(self) -> int:
        return len(self.error)


class Buried(Outcome, frozen=True, kw_only=True):
    reason: Reason
    error: bytes
    started: bool = True  # False if the job did not run
    #: Equal for similar failures: see `core.failures`. At most 64 hexadecimal digits.
    fingerprint: str = ""

    @property
    def size(self) -> int:
        return len(self.error)


class Released(Outcome, frozen=True, kw_only=True):
    """The job returns to its old place, without a charge."""

    started: bool
    alone: bool = False  # from now on, until its end, the job must run alone


class Snoozed(Outcome, frozen=True, kw_only=True):
    delay_ms: int


class Unroutable(Outcome, frozen=True, kw_only=True):
    """The claiming worker does not know the task, or cannot read the call."""

    why: bytes = b""  # an error, as failures have; engines keep the first `MAX_WHY` bytes

    @property
    def size(self) -> int:
        return len(self.why)


class Progressed(Outcome, frozen=True, kw_only=True):
    """The job continues and reports its progress."""

    progress: bytes

    @property
    def size(self) -> int:
        return len(self.progress)


class Verdict(StrEnum):
    OK = "ok"  # this outcome was applied, now and by no earlier call
    #: An outcome of the same kind with the same token was applied before: by an earlier call, or by
    #: an earlier try of this call whose reply the engine has lost. Nothing was changed.
    REPEATED = "repeated"
    STALE = "stale"  # the token is not current; nothing was changed


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    verdicts: tuple[Verdict, ...]
    batch: Batch


class ClaimVerbs(Protocol):
    """Claim jobs, finish claims, and wait for work."""

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
        """Finish claims as `finish` does, then claim, in one round trip and one commit.

        The claim promotes due jobs, takes back lost jobs, then leases up to `limit` jobs to
        `session` under `nonce`. The nonces of a session sort as text in the order of their use. A
        nonce that is not later than all earlier ones leases nothing new: a repeated or late claim
        returns the jobs of the first call that are still held. It may come through another engine
        object. A claim that leased nothing does not use up its nonce.

        The payloads of a batch have about `plan.most_bytes` in total; the first job is leased at
        any size. A batch that this limit cuts short has `next_in_ms` 0: there is more now.

        Pass `is_last` for a nonce that was passed to `wait`: the claim then uses up the nonce even
        when it finds no job, and no `put` leases a job under it later."""

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """End or change claims. Each outcome must carry the current token. Of all calls that end a
        claim, exactly one changes the job: its verdict is OK, and the verdict of the others is
        REPEATED or STALE. Instants are capped at `durations.LATEST_MS`."""

    def release(self, session: str, nonce: str) -> int:
        """Release, without a charge, every job that `session` holds under `nonce`; return their
        number. The nonce is used up: a later claim under this nonce finds nothing."""

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        """Wait for work on behalf of idle sessions; every call names all of them. Return the
        sessions that may have something to claim; none after the timeout or on `nudge`. After a
        wake-up, the engine waits for a session again only when the next call names it. The engine
        stops waiting for a session that a call does not name. The engine keeps wake-ups that arrive
        between two successive calls. At most one call at a time per object.

        Wake-ups are hints, and an engine also polls from time to time. From this call on, a `put`
        may lease a job under the nonce of a waiter at any time, even if this call does not return
        that waiter. So claim or release under that nonce, or pass it to the next call."""

    def read_handoff(self, handed: bytes, nonce: str) -> Batch | None:
        """Decode the claim that a `WakeUp` carries; None if the claim has another nonce."""

    def nudge(self) -> None:
        """Make the current `wait` on this object, or the next one, return at once."""

"""Claims in the words of the engine contract: what a worker asks for (`Plan`), what it holds
(`Claim`, `Batch`), what it waits for (`Waiter`, `WakeUp`), how it reports (`Outcome`, `Verdict`),
and signs of life (`Beat`, `Pulse`)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from windlass.core.queues.labels import may_take, queue_of
from windlass.core.states import Counters, Reason
from windlass.engine.contract.jobs import BATCH_BYTES


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
    most_bytes: int = BATCH_BYTES  # of the payloads of one batch; a single one may have more

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


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


class Waiter(msgspec.Struct, frozen=True):
    """An idle session, as `wait` is told of it. Under `nonce`, when given, an engine that hands
    jobs off may make a claim of one job for it; without one the session is only woken."""

    session: str
    plan: Plan
    nonce: str = ""


class WakeUp(msgspec.Struct, frozen=True):
    """There may be something to claim for a session; with `handed`, a claim was made for it under
    its nonce, which `read_handoff` reads."""

    session: str
    handed: bytes = b""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a claim. Only the subclasses below are handed to an engine."""

    id: str
    token: str

    @property
    def size(self) -> int:
        """How many bytes travel with it."""
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
    started: bool = True  # False when it was buried without being run

    @property
    def size(self) -> int:
        return len(self.error)


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

    @property
    def size(self) -> int:
        return len(self.progress)


class Verdict(StrEnum):
    OK = "ok"  # done now, or by an earlier outcome of the same kind with the same token
    STALE = "stale"  # the token is not the current one; nothing was changed


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    verdicts: tuple[Verdict, ...]
    batch: Batch


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

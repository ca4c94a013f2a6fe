"""What the decision on a report needs to know about a claimed job.

An instance remembers the facts of the claims that it handed out, for a report that usually comes
through the same instance. Through another one, the facts are read from the engine.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.core.queues.labels import queue_of
from windlass.core.serialization.envelope import NO_OVERRIDES, Overrides
from windlass.core.serialization.frame import is_framed
from windlass.core.states import State
from windlass.engine.contract import Claim, JobRecord
from windlass.errors import DecodeError

if TYPE_CHECKING:
    from windlass.app import Windlass

#: An instance remembers at most this many claims, and no claim with a larger sealed call.
MAX_REMEMBERED: Final = 20_000
MAX_SEALED: Final = 4_096


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job, without its arguments."""

    task: str
    queue: str  # without labels
    attempt: int
    snoozes: int  # before this claim
    options: Overrides = NO_OVERRIDES
    #: The stored call, if it is sealed: what is stored about it must be sealed as well.
    sealed: bytes = b""
    wait_s: float | None = None  # how long the job waited before this claim; None if unknown
    claimed_at: float  # by the monotonic clock of this machine


class KnownClaims:
    """The facts of claims, by job and token. Used by many threads: every step is atomic."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._known: OrderedDict[tuple[str, str], ClaimFacts] = OrderedDict()

    def note(self, claim: Claim, options: Overrides) -> None:
        """Remember a claim that is handed out. A repeat of the claim changes nothing."""
        sealed = _sealed(claim.payload)
        if len(sealed) > MAX_SEALED or (claim.id, claim.token) in self._known:
            return
        self._known[claim.id, claim.token] = ClaimFacts(
            task=claim.task,
            queue=queue_of(claim.queue),
            attempt=claim.counters.attempt,
            snoozes=claim.counters.snoozes,
            options=options,
            sealed=sealed,
            wait_s=claim.waited_ms / 1000,
            claimed_at=time.monotonic(),
        )
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def find(self, claims: Sequence[tuple[str, str]]) -> list[ClaimFacts | None]:
        """The facts of claims, each given by the id and the token of its job; None for a job that
        does not exist."""
        found = {claim: self._known.get(claim) for claim in claims}
        missing = list(dict.fromkeys(claim[0] for claim, facts in found.items() if facts is None))
        if not missing:
            return [found[claim] for claim in claims]
        records = dict(zip(missing, self._app.engine.get(missing), strict=True))
        return [found[claim] or self._of_record(records.get(claim[0])) for claim in claims]

    def forget(self, id: str, token: str) -> None:
        """Forget a claim that has ended."""
        self._known.pop((id, token), None)

    def _of_record(self, record: JobRecord | None) -> ClaimFacts | None:
        """The facts of a stored job. A job that does not run was reported before, perhaps by a
        request whose answer was lost: the facts are then as they were for that report."""
        if record is None:
            return None
        snoozes = record.counters.snoozes
        is_snoozed = record.state is State.SCHEDULED and snoozes > 0
        return ClaimFacts(
            task=record.task,
            queue=queue_of(record.queue),
            attempt=max(1, record.counters.attempt),
            snoozes=snoozes - 1 if is_snoozed else snoozes,
            options=self._options_of(record),
            sealed=_sealed(record.payload),
            claimed_at=time.monotonic() - _age_s(record.started_ms),
        )

    def _options_of(self, record: JobRecord) -> Overrides:
        try:
            return self._app.packing.unpack_call(record.payload, record.task).options
        except DecodeError:  # the job was never handed out
            return NO_OVERRIDES


def _age_s(at_ms: int | None) -> float:
    """The time since an instant of the engine, in seconds, if both clocks agree."""
    return 0.0 if at_ms is None else max(0.0, time.time() - at_ms / 1000)


def _sealed(payload: bytes) -> bytes:
    return payload if is_framed(payload) else b""

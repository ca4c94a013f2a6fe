"""An engine with a frozen clock, and shortcuts for tests.

In order: one outcome of each kind, the clock, the shortcuts, and a dump of the visible state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from msgspec.structs import replace

from windlass.core.history import KEEP_MINUTES_MS
from windlass.core.ids import new_id, partition_of
from windlass.core.states import Reason
from windlass.engine.contract import (
    BATCH_BYTES,
    Batch,
    Beat,
    Buried,
    ChangeCode,
    Claim,
    Engine,
    Filter,
    JobRecord,
    NewJob,
    Outcome,
    Plan,
    Progressed,
    Released,
    Retried,
    Revival,
    Snoozed,
    Succeeded,
    Unroutable,
    Verdict,
)
from windlass.testing.contract.place import OPTIONS, Place

START_MS: Final = 1_800_000_000_000
LEASE_MS: Final = OPTIONS.lease_ms
#: Heartbeats at this interval keep the engine from assuming an outage.
STEP_MS: Final = LEASE_MS // 3

#: kind -> a function that makes an outcome from job id and token
OUTCOMES: Final[dict[str, Callable[[str, str], Outcome]]] = {
    "succeeded": lambda id, token: Succeeded(
        id=id, token=token, result=b"result", result_ttl_ms=60_000
    ),
    "retried": lambda id, token: Retried(id=id, token=token, delay_ms=100, error=b"boom"),
    "buried": lambda id, token: Buried(id=id, token=token, reason=Reason.REJECTED, error=b"no"),
    "released": lambda id, token: Released(id=id, token=token, started=True),
    "snoozed": lambda id, token: Snoozed(id=id, token=token, delay_ms=100),
    "unroutable": lambda id, token: Unroutable(id=id, token=token),
    "progressed": lambda id, token: Progressed(id=id, token=token, progress=b"half"),
}


class StandingStill(int):
    """A clock offset that gives the same instant with any time, so that replies are exact."""

    def __new__(cls, at_ms: int) -> StandingStill:
        return super().__new__(cls, at_ms)

    def __add__(self, other: int) -> int:
        return int(self)

    __radd__ = __add__

    def __str__(self) -> str:
        """Return the instant instead of an offset, for engines with a server's clock."""
        return f"={int(self)}"


class World:
    def __init__(self, variant: Place) -> None:
        self.variant = variant
        self.now_ms = START_MS
        self._numbers = count(1)
        self._nonces = (f"nonce-{number:06}" for number in count(1))
        self.engine = self.open()

    # ------------------------------------------------------------------------------- the clock

    def open(self, lease_ms: int = LEASE_MS) -> Engine:
        """Open another engine object on the same place, with the same clock."""
        engine = self.variant.open(replace(OPTIONS, lease_ms=lease_ms))
        self.move_clock(self.now_ms)
        return engine

    def reopen(self) -> None:
        """Close and open the engine, as after the end of the process."""
        self.variant.shutdown()
        self.engine = self.open()

    def move_clock(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for engine in self.variant.opened:
            engine.clock_offset_ms = StandingStill(now_ms)

    def advance(self, by_ms: int) -> None:
        """Move the clock without heartbeats, which looks like an outage to the engine."""
        self.move_clock(self.now_ms + by_ms)

    def pass_time(self, by_ms: int, *sessions: str) -> None:
        """Let time pass while these sessions, and a bystander without jobs, send heartbeats."""
        end_ms = self.now_ms + by_ms
        while self.now_ms < end_ms:
            self.move_clock(min(self.now_ms + STEP_MS, end_ms))
            self.engine.beat([Beat(session=name) for name in ("bystander", *sessions)])

    def let_expire(self, *sessions: str) -> None:
        """Let the leases of these sessions expire, and let another session notice."""
        self.pass_time(LEASE_MS)
        known = {record.session for record in self.engine.sessions()}
        assert known.issuperset(sessions)
        self.claim("reaper", limit=0)
        known = {record.session for record in self.engine.sessions()}
        assert known.isdisjoint(sessions)

    # ------------------------------------------------------------------------------- the words

    def new(self, **fields: Any) -> NewJob:
        given = {"task": "task", "queue": "queue", "payload": b"{}", **fields}
        return NewJob(**{"id": self.new_id(given), **given})

    def new_id(self, fields: dict[str, Any]) -> str:
        """Make an id in the partition that the engine chooses; ids sort by creation."""
        key, unique = fields.get("idempotency_key"), fields.get("unique")
        names = (fields["task"], fields["queue"], key, None if unique is None else unique.key)
        partition = partition_of(self.engine.new_id(*names))
        return new_id(next(self._numbers), partition)

    def later_id(self, partition: int) -> str:
        """Make an id in the given partition."""
        return new_id(next(self._numbers), partition)

    def put(self, **fields: Any) -> str:
        new = self.new(**fields)
        self.engine.put([new])
        return new.id

    def put_many(self, number: int, **fields: Any) -> list[str]:
        new = [self.new(**fields) for _ in range(number)]
        self.engine.put(new)
        return [job.id for job in new]

    def nonce(self) -> str:
        return next(self._nonces)

    def claim(
        self,
        session: str = "worker",
        *,
        limit: int = 1000,
        nonce: str | None = None,
        queues: tuple[str, ...] = (),
        suspects: bool = False,
        most_bytes: int = BATCH_BYTES,
    ) -> Batch:
        plan = Plan(queues=queues, suspects=suspects, most_bytes=most_bytes)
        return claim_jobs(self.engine, session, nonce or self.nonce(), plan, limit)

    def take(self, session: str = "worker", *, suspects: bool = False) -> Claim:
        """Claim the next job alone."""
        (claim,) = self.claim(session, limit=1, suspects=suspects).claims
        return claim

    def finish(self, outcome: Outcome) -> Verdict:
        (verdict,) = self.engine.finish([outcome])
        return verdict

    def get(self, id: str) -> JobRecord:
        (record,) = self.engine.get([id])
        assert record is not None
        return record

    def alive(self, session: str) -> bool:
        (pulse,) = self.engine.beat([Beat(session=session)])
        return pulse.alive

    # -------------------------------------------------------------------------------- the dump

    def ids(self) -> list[str]:
        return [record.id for record in self.engine.find(Filter(), limit=10_000).records]

    def records(self) -> list[JobRecord | None]:
        return self.engine.get(self.ids())

    def everything(self) -> tuple[object, ...]:
        engine = self.engine
        return (
            self.records(),
            engine.stats(),
            engine.sessions(),
            engine.list_schedules(),
            engine.list_documents("kind"),
            engine.list_audit(),
            engine.history(KEEP_MINUTES_MS),
            [None if copy is None else copy.steps for copy in engine.read_copies(self.ids())],
        )


def claim_jobs(
    engine: Engine, session: str, nonce: str, plan: Plan, limit: int, *, is_last: bool = False
) -> Batch:
    """Take a turn without outcomes."""
    return engine.turn(session, (), nonce, plan, limit, is_last=is_last).batch


def retry_jobs(engine: Engine, ids: Sequence[str]) -> list[ChangeCode]:
    """Revive jobs with their old payloads."""
    return engine.revive([Revival(id=id) for id in ids])


def ids_of(batch: Batch) -> list[str]:
    return [claim.id for claim in batch.claims]

"""The engine contract: the operations that every engine implements.

An engine is synchronous and safe to call from many threads and processes. Every operation takes
several items and is atomic within a partition. An operation with a stale token changes nothing and
reports it. An operation that is repeated after a lost reply changes nothing and succeeds.

Times are milliseconds. `_ms` is an instant of the engine's own clock. `_in_ms` and `_after_ms` are
distances that the engine resolves, so that no client clock decides anything.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, cast

import msgspec

from windlass.engine.contract.admin import AdminVerbs
from windlass.engine.contract.audit import AuditVerbs
from windlass.engine.contract.claims import ClaimVerbs
from windlass.engine.contract.copies import CopyVerbs
from windlass.engine.contract.dead_groups import DeadGroupVerbs
from windlass.engine.contract.documents import DocumentVerbs
from windlass.engine.contract.history import HistoryVerbs
from windlass.engine.contract.jobs import IDEMPOTENCY_MS, JobVerbs
from windlass.engine.contract.schedules import ScheduleVerbs
from windlass.engine.contract.sessions import SessionVerbs
from windlass.engine.contract.steps import StepVerbs
from windlass.engine.contract.transactions import TransactionVerbs


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an engine object, in addition to its URL."""

    lease_ms: int = 30_000
    dead_ttl_ms: int = 14 * 24 * 60 * 60 * 1000
    idempotency_ms: int = IDEMPOTENCY_MS  # how long `put` remembers an idempotency key
    timeout_ms: int = 5_000  # how long a call may take before it fails as unavailable
    #: Use a connection pool that no other engine object of the process shares.
    has_own_connections: bool = False
    #: The most concurrent calls to one server, each on its own connection. The first engine object
    #: for a server decides for all engine objects that share its pool.
    most_calls: int = 3
    #: No other engine object claims for the sessions of this one, as in the child of a worker, and
    #: every claim has a new nonce, unless it is repeated. Then claims over several partitions take
    #: fewer calls. Otherwise any engine object may repeat a claim of another.
    owns_sessions: bool = False


class Capability(StrEnum):
    """An optional feature of an engine. Contract tests that need a missing one are skipped."""

    STRICT_ORDER = "strict_order"  # priority and order are exact across the whole queue
    MANY_PROCESSES = "many_processes"  # other processes can open the same jobs
    HANDOFF = "handoff"  # `put` may hand its job to a session that waits under a nonce
    DURABLE = "durable"  # stored jobs survive the end of the process
    TRANSACTIONAL = "transactional"  # the engine also has the operations of `TransactionVerbs`


class Engine(
    JobVerbs,
    ClaimVerbs,
    StepVerbs,
    SessionVerbs,
    DeadGroupVerbs,
    ScheduleVerbs,
    DocumentVerbs,
    AuditVerbs,
    HistoryVerbs,
    CopyVerbs,
    AdminVerbs,
    Protocol,
):
    """The storage of jobs. A failing operation raises `EngineUnavailable`; its effect is unknown
    and the caller repeats the same call, which is harmless. After a broken connection an engine may
    repeat a call by itself and returns the result of the repeat, which differs for some operations:
    `revive` returns REFUSED, and `release` returns 0.

    A payload or result that is larger than the engine can ever store raises `PayloadTooLarge`, and
    the call changes nothing in its partition. A repeat does not help."""

    @property
    def location(self) -> str:
        """Name the place of the jobs for messages, without secrets."""

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    #: Milliseconds added to the engine's clock, so that tests and the demo can move time; else 0.
    clock_offset_ms: int


def transaction_verbs(engine: Engine) -> TransactionVerbs | None:
    """Return the operations in transactions of a caller, or None if the engine has none."""
    if Capability.TRANSACTIONAL not in engine.capabilities:
        return None
    return cast(TransactionVerbs, engine)

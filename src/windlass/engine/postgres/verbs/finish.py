"""End claims with success: the jobs move into the ring of ended jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.core.durations import LATEST_MS
from windlass.core.states import Event
from windlass.engine.contract import MIN_RECORD_MS, Succeeded
from windlass.engine.postgres.statements import pack_numbers
from windlass.engine.postgres.transaction import Transaction
from windlass.engine.postgres.verbs.ring import RING_MS, SLOT_MS, SLOTS
from windlass.engine.sql.transaction import end_mark
from windlass.engine.sql.verbs.finish import Key


def succeed_batch(tx: Transaction, outcomes: Sequence[Succeeded]) -> set[Key]:
    """End claims; return those whose token is not current."""
    stored = tx.rows("succeed_jobs", *success_values(tx.clock, outcomes))
    tx.totals["succeeded"] -= len(stored)  # the statement itself counts them
    return {(outcome.id, outcome.token) for outcome in outcomes}.difference(stored)


def success_values(clock: str, outcomes: Sequence[Succeeded]) -> tuple[Any, ...]:
    """The values of the statement `succeed_jobs`."""
    return (
        clock,
        [outcome.id for outcome in outcomes],
        [outcome.token for outcome in outcomes],
        pack_numbers(end_mark(outcome.token, Event.SUCCEED) for outcome in outcomes),
        pack_numbers(outcome.result_ttl_ms for outcome in outcomes),
        [outcome.result if outcome.result_ttl_ms > 0 else None for outcome in outcomes],
        LATEST_MS,
        MIN_RECORD_MS,
        SLOT_MS,
        RING_MS,
        SLOTS,
    )

"""Maintenance of this engine: the ring of ended jobs, and the sums of counters.

1. `purge_ended` removes records of ended jobs that are past their retention: row by row while a
   partition is small, and the whole partition at once when it is large and all of it has expired.
2. `fold` adds up deltas.
"""

from __future__ import annotations

from typing import Final

from windlass.core.history import OTHER
from windlass.engine.contract import BITE, MAX_PAIRS
from windlass.engine.postgres.transaction import Transaction

#: Add up at most this many deltas in one call.
_FOLDED: Final = 20_000


def purge_ended(tx: Transaction) -> int:
    """Remove a bounded number of expired records; return their number."""
    gone = tx.rows("purge_ended", tx.now_ms, BITE)
    for line, number in gone:
        tx.counts[line, "succeeded"] -= number
    return sum(number for _, number in gone)


def fold(tx: Transaction) -> bool:
    """Add up deltas; return whether there may be more."""
    tx.lock("history")
    folded = 0
    for kind, queue, task, deltas, number in tx.rows("fold_deltas", _FOLDED):
        folded += deltas
        if kind == "enqueued":
            _count_enqueued(tx, queue, task, number)
    return folded == _FOLDED


def _count_enqueued(tx: Transaction, queue: str, task: str, number: int) -> None:
    """Count new jobs of a queue and task; those beyond the limit of pairs count together."""
    if not tx.rows("has_pair", queue, task) and tx.first("count_pairs", OTHER) >= MAX_PAIRS:
        queue = task = OTHER
    tx.run("begin_enqueued", queue, task, number, tx.now_ms)

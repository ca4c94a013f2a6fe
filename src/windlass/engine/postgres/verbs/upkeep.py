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

_OTHERS: Final = (OTHER, OTHER)
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
    found = tx.rows("fold_deltas", _FOLDED)
    enqueued = [
        (queue, task, number) for kind, queue, task, _, number in found if kind == "enqueued"
    ]
    known = set(tx.rows("list_pairs")) if enqueued else set()
    for queue, task, number in enqueued:
        pair = queue, task
        if pair not in known and len(known - {_OTHERS}) >= MAX_PAIRS:
            pair = _OTHERS  # those beyond the limit of pairs count together
        known.add(pair)
        tx.run("begin_enqueued", *pair, number, tx.now_ms)
    return bool(sum(deltas for _, _, _, deltas, _ in found) == _FOLDED)

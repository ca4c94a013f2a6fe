"""The sums of counters: `fold` adds up the deltas that commits have left."""

from __future__ import annotations

from typing import Final

from windlass.core.history import OTHER
from windlass.engine.contract import MAX_PAIRS
from windlass.engine.postgres.transaction import Transaction

_OTHERS: Final = (OTHER, OTHER)
#: Add up at most this many deltas in one call.
_FOLDED: Final = 20_000


def fold(tx: Transaction) -> bool:
    """Add up deltas; return whether there may be more."""
    tx.lock("history")
    found = tx.rows("fold_deltas", _FOLDED)
    enqueued = [
        (queue, task, number)
        for kind, queue, task, _, number in found
        if kind == "enqueued" and number
    ]
    known = set(tx.rows("list_pairs")) if enqueued else set()
    for queue, task, number in enqueued:
        pair = queue, task
        if pair not in known and len(known - {_OTHERS}) >= MAX_PAIRS:
            pair = _OTHERS  # those beyond the limit of pairs count together
        known.add(pair)
        tx.run("add_enqueued", *pair, number, tx.now_ms)
    return bool(sum(deltas for _, _, _, deltas, _ in found) == _FOLDED)

"""End claims with success."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from windlass.core.durations import LATEST_MS
from windlass.core.states import Event, State
from windlass.engine.contract import MIN_RECORD_MS, Succeeded
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import end_mark
from windlass.engine.sql.verbs.finish import Key
from windlass.engine.sqlite.statements import as_array
from windlass.engine.sqlite.transaction import Transaction

_key_of: Final = attrgetter("id", "token")


def succeed_batch(tx: Transaction, outcomes: Sequence[Succeeded]) -> set[Key]:
    """End claims; return those whose token is not current. All results are one value, which the
    statement cuts into pieces: inside an array, results would have to be hex-encoded."""
    results: list[bytes] = []
    rows: list[Row] = []
    begin = 1  # SQLite counts from 1
    for outcome in outcomes:
        mark = end_mark(outcome.token, Event.SUCCEED)
        keep_until = tx.now_ms + max(outcome.result_ttl_ms, MIN_RECORD_MS)
        size = None
        if outcome.result is not None and outcome.result_ttl_ms > 0:
            # The purge first drops only the result.
            keep_until = min(tx.now_ms + outcome.result_ttl_ms, LATEST_MS)
            size = len(outcome.result)
            results.append(outcome.result)
        rows.append((outcome.id, outcome.token, keep_until, mark, begin, size))
        begin += size or 0
    claims = as_array(rows)
    ended = 0
    for queue, number in tx.rows("count_claims", claims):
        tx.count_move(queue, State.RUNNING, State.SUCCEEDED, number)
        ended += number
    others: set[Key] = set()
    if ended < len(outcomes):  # look before the tokens are gone
        others = {*map(_key_of, outcomes)}.difference(tx.rows("current_claims", claims))
    results.append(b"\0")  # never empty: a piece of an empty value would be NULL
    tx.run("succeed_jobs", claims, tx.now_ms, b"".join(results))
    return others

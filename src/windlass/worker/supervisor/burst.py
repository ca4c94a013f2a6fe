"""Whether a worker in a burst has nothing left to do."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.worker.ipc.shared_memory import SlotTable

#: How often to look, in seconds.
LOOK_S = 0.1


def is_done(tables: Sequence[SlotTable], settled_at: float) -> bool:
    """There was a moment by which all children had nothing, and what dead ones had was given back
    (`settled_at`); and after it each has asked once more and found nothing. To find them idle at
    the same time would not do: one may have been granted what another had just enqueued, and not
    know it yet. Who has never asked has nothing, and is not waited for: perhaps it cannot start."""
    spans = [table.idle() for table in tables if table.newest_nonce.read()]
    if not spans or not all(since for since, _ in spans):
        return False
    return max(settled_at, *(since for since, _ in spans)) < min(at for _, at in spans)

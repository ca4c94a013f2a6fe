"""Whether a worker in a burst has nothing left to do."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.worker.ipc.shared_memory import SlotTable

#: How often to check, in seconds.
LOOK_S = 0.1


def is_done(tables: Sequence[SlotTable], settled_at: float) -> bool:
    """Whether all children were idle at one moment, jobs of dead children were released by then
    (`settled_at`), and each child has made one more empty claim after it. Idle children at the same
    time are not enough: a child may have just been granted a job that another one enqueued, without
    a reply yet. A child that never claimed is ignored: perhaps it cannot start."""
    spans = [table.idle() for table in tables if table.newest_nonce.read()]
    if not spans or not all(since for since, _ in spans):
        return False
    return max(settled_at, *(since for since, _ in spans)) < min(at for _, at in spans)

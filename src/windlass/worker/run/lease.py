"""Whether this child may still start jobs under its session.

Heartbeats of the supervisor and claims keep a session alive. When neither was confirmed for most of
a lease (this machine slept, the engine is away, the processes were stopped by a signal), the
claimed jobs may have been reassigned: then the child starts no job. A solo child that the
supervisor is about to end starts no job either.
"""

from __future__ import annotations

from windlass.worker.ipc.shared_memory import SlotTable

#: The share of a lease after which the child no longer relies on it.
RELIABLE = 0.8


class Lease:
    """Times are of the monotonic clock, which all processes of a machine share."""

    def __init__(self, table: SlotTable, lease_ms: int, *, is_solo: bool = False) -> None:
        self.table = table
        self._is_watched = is_solo  # the supervisor ends other children only after a message
        self._reliable_s = lease_ms / 1000 * RELIABLE
        self._claimed_at = 0.0

    def confirm(self, sent_at: float) -> None:
        """Note that the engine granted a claim that was sent at this moment."""
        self._claimed_at = sent_at

    def is_held(self, now: float) -> bool:
        if self._is_watched and self.table.is_shut():
            return False  # the supervisor is about to end this process
        if now - self._claimed_at < self._reliable_s:
            return True
        return now - self.table.confirmed_beat() < self._reliable_s

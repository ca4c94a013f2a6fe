"""Whether this child may still start work under its session.

A session is kept alive by the beats of the supervisor and by claims. When neither was confirmed
for most of a lease (this machine slept, the engine is away, somebody stopped the processes),
the jobs in hand may belong to others by now: then nothing new is started. Nor is anything started
in a solo child that the supervisor is about to end.
"""

from __future__ import annotations

from windlass.worker.ipc.shared_memory import SlotTable

#: The part of a lease after which it is not relied on any more.
RELIABLE = 0.8


class Lease:
    """Times are those of the monotonic clock, which the processes of a machine share."""

    def __init__(self, table: SlotTable, lease_ms: int, *, is_solo: bool = False) -> None:
        self.table = table
        self._is_watched = is_solo  # others are never ended without being told before
        self._reliable_s = lease_ms / 1000 * RELIABLE
        self._claimed_at = 0.0

    def confirm(self, sent_at: float) -> None:
        """A claim that was sent at this moment was granted."""
        self._claimed_at = sent_at

    def is_held(self, now: float) -> bool:
        if self._is_watched and self.table.is_shut():
            return False  # the supervisor is about to end this process
        if now - self._claimed_at < self._reliable_s:
            return True
        return now - self.table.confirmed_beat() < self._reliable_s

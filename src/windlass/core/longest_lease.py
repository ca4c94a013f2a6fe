"""The longest lease of the recently active workers.

Workers of one engine may have different leases, at least while a deployment changes the setting.
After an outage each worker needs time for its next heartbeat, and the worker with the longest lease
needs the most.

1. `LongestLease.heard` records the call of a worker. A worker with the longest lease renews the
   entry at most once in half its lease, so most calls write nothing.
2. An entry that is not renewed ends after two leases. Then the longest of the other leases counts:
   each worker sends three heartbeats per lease, so all other workers have called meanwhile.
3. `LongestLease.after_silence` records a call after an outage. The time in which no worker called
   does not count.
"""

from __future__ import annotations

from typing import NamedTuple


class LongestLease(NamedTuple):
    """The longest lease of recently active workers, as stored in a partition."""

    lease_ms: int = 0
    until_ms: int = 0  # when the entry ends if it is not renewed
    next_ms: int = 0  # the longest other lease since the entry was renewed

    def heard(self, lease_ms: int, now_ms: int) -> LongestLease:
        """The entry after a call of a worker with this lease."""
        return self._at(now_ms)._with(lease_ms, now_ms)

    def after_silence(self, lease_ms: int, last_ms: int, now_ms: int) -> LongestLease:
        """The entry after the first call since `last_ms`, or after the clock went back."""
        known = self._at(last_ms)
        lasting = LongestLease(known.lease_ms, now_ms + 2 * known.lease_ms, known.next_ms)
        return lasting._with(lease_ms, now_ms)

    def _at(self, now_ms: int) -> LongestLease:
        if self.until_ms > now_ms:
            return self
        return LongestLease(self.next_ms, now_ms + 2 * self.next_ms)

    def _with(self, lease_ms: int, now_ms: int) -> LongestLease:
        if lease_ms < self.lease_ms:
            return self if lease_ms <= self.next_ms else self._replace(next_ms=lease_ms)
        if lease_ms == self.lease_ms and self.until_ms - now_ms > lease_ms + lease_ms // 2:
            return self
        return LongestLease(lease_ms, now_ms + 2 * lease_ms)

"""What would be logged for every job is logged once in a while."""

from __future__ import annotations

from time import monotonic

#: The same thing is told at most this often, in seconds.
INTERVAL_S = 60.0


class Notices:
    """When each thing was last told. The things are few: names of tasks."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def is_due(self, key: str) -> bool:
        """Whether to tell it now; if so, that counts as told."""
        now = monotonic()
        if now - self._told_at.get(key, -INTERVAL_S) < INTERVAL_S:
            return False
        self._told_at[key] = now
        return True

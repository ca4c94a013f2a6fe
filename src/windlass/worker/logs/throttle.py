"""Throttle log lines that would otherwise repeat for every job."""

from __future__ import annotations

from time import monotonic

#: The shortest time between two lines for the same key, in seconds.
INTERVAL_S = 60.0


class Notices:
    """When each key was last logged. There are few keys: names of tasks."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def is_due(self, key: str) -> bool:
        """Whether to log now. True marks the key as logged."""
        now = monotonic()
        if now - self._logged_at.get(key, -INTERVAL_S) < INTERVAL_S:
            return False
        self._logged_at[key] = now
        return True

"""Log when jobs were reclaimed from workers that stopped responding, and when the engine dropped
index entries without a job.

Any claim or maintenance call of any worker may do both. So this module compares counters of the
engine. Of all workers, the one with the first session logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from logging import getLogger
from typing import Final

from windlass.core.quantities import Count
from windlass.engine.contract import Engine

log = getLogger("windlass.worker")

#: How often to check, in seconds.
LOOK_S: Final = 15.0
#: The totals to compare.
_WATCHED: Final = ("lost", "orphans")


class LossWatch:
    """For one worker; `sessions` returns its own."""

    def __init__(self, engine: Engine, sessions: Callable[[], Collection[str]]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._before: Mapping[str, int] | None = None  # at the last check

    def look(self) -> float:
        """Compare the totals; return the seconds until the next check."""
        totals = self._engine.stats().totals
        before, self._before = self._before, totals
        if before is None:
            return LOOK_S
        lost, orphans = (totals.get(name, 0) - before.get(name, 0) for name in _WATCHED)
        if (lost > 0 or orphans > 0) and speaks(self._engine, self._sessions()):
            if lost > 0:
                log.warning("reclaimed %s from workers that stopped responding", Count(lost, "job"))
            if orphans > 0:
                log.warning(
                    "dropped %s without a job; see windlass check --repair",
                    Count(orphans, "index entry", "index entries"),
                )
        return LOOK_S


def speaks(engine: Engine, own: Collection[str]) -> bool:
    """Whether this worker logs: the first of all live sessions is its own."""
    living = [one.session for one in engine.sessions() if one.expires_in_ms >= 0]
    return bool(living) and min(living) in own

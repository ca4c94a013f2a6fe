"""Says when jobs were taken back from workers that fell silent, and when entries of indexes were
dropped because they led to no job.

Any claim or upkeep may do both, so no worker sees all of it happen: what is looked at is
the number that the engine keeps. Of all workers the one with the first session speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from logging import getLogger
from typing import Final

from windlass.core.plurals import Count
from windlass.engine.contract import Engine

log = getLogger("windlass.worker")

#: How often to look, in seconds.
LOOK_S: Final = 15.0
#: The totals that are looked at.
_WATCHED: Final = ("lost", "orphans")


class LossWatch:
    """For one worker; `sessions` gives its own."""

    def __init__(self, engine: Engine, sessions: Callable[[], Collection[str]]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._before: Mapping[str, int] | None = None  # at the last look; older ones are old news

    def look(self) -> float:
        """The seconds until the next look."""
        totals = self._engine.stats().totals
        before, self._before = self._before, totals
        if before is None:
            return LOOK_S
        lost, orphans = (totals.get(name, 0) - before.get(name, 0) for name in _WATCHED)
        if (lost > 0 or orphans > 0) and speaks(self._engine, self._sessions()):
            if lost > 0:
                log.warning("taken back from workers that fell silent: %s", Count(lost, "job"))
            if orphans > 0:
                log.warning(
                    "dropped from indexes, for leading to no job: %s; see windlass check --repair",
                    Count(orphans, "entry", "entries"),
                )
        return LOOK_S


def speaks(engine: Engine, own: Collection[str]) -> bool:
    """Whether the first of all sessions that live is one of its own."""
    living = [one.session for one in engine.sessions() if one.expires_in_ms >= 0]
    return bool(living) and min(living) in own

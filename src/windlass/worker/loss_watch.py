"""Says when jobs were taken back from workers that fell silent.

Whoever claims or tends next takes them back, so nobody sees all of it happen: what is looked at is
the number that the engine keeps. Of all workers the one with the first session speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from logging import getLogger
from typing import Final

from windlass.core.counting import Count
from windlass.engine.contract import Engine

log = getLogger("windlass.worker")

#: How often to look, in seconds.
LOOK_S: Final = 15.0


class LossWatch:
    """For one worker; `sessions` gives its own."""

    def __init__(self, engine: Engine, sessions: Callable[[], Collection[str]]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._lost: int | None = None  # at the last look: what was before the first one is old

    def look(self) -> float:
        """The seconds until the next look."""
        lost = self._engine.stats().totals.get("lost", 0)
        before, self._lost = self._lost, lost
        if before is not None and lost > before and speaks(self._engine, self._sessions()):
            log.warning("taken back from workers that fell silent: %s", Count(lost - before, "job"))
        return LOOK_S


def speaks(engine: Engine, own: Collection[str]) -> bool:
    """Whether the first of all sessions that live is one of its own."""
    living = [one.session for one in engine.sessions() if one.expires_in_ms >= 0]
    return bool(living) and min(living) in own

"""Keep what groups of dead jobs need: the releases of this worker, and missing fingerprints.

1. `ReleaseWatch` stores when the first worker of a release started.
2. `DeadLabeller` computes the fingerprints of jobs that a process of an earlier version ended, once
   after the start, some jobs at a time. It leaves encrypted failures to `windlass migrate`, because
   the supervisor has no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from windlass.client.payloads import PLAIN
from windlass.core.ids import release_of
from windlass.dead_groups import label_page
from windlass.engine.contract import Engine
from windlass.engine.releases import note_release

#: Seconds between two looks at the releases of children; only a new one takes a call.
LOOK_S: Final = 5.0
#: Seconds between two pages of jobs without a fingerprint.
PAGE_S: Final = 0.2


class ReleaseWatch:
    """Stores the releases of the sessions that `sessions` returns."""

    def __init__(self, engine: Engine, sessions: Callable[[], Iterable[str]]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._known: set[str] = set()

    def look(self) -> float:
        for session in self._sessions():
            release = release_of(session)
            if release is not None and release not in self._known:
                note_release(self._engine, release)
                self._known.add(release)
        return LOOK_S


class DeadLabeller:
    """Gives dead jobs of earlier versions their fingerprints, a page at each look."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cursor: str | None = None

    def look(self) -> float:
        """Label one page. Returns an infinite time after the last one."""
        page = label_page(self._engine, PLAIN, self._cursor)
        self._cursor = page.cursor
        return inf if page.cursor is None else PAGE_S

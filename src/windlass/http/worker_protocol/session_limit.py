"""The limit of sessions that one caller may have.

An instance counts the live sessions of all callers in the engine, at most every few seconds, and
adds the sessions that it begins meanwhile. So callers of several instances may exceed the limit for
a moment, by what the other instances begin in that time.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from windlass.core.introduction import RemoteIntroduction
from windlass.http.problems import Problem, ProblemType

if TYPE_CHECKING:
    from windlass.app import Windlass

#: How long a count is used, in seconds: usually, and after it has reached the limit.
COUNT_S: Final = 5.0
FULL_COUNT_S: Final = 1.0


class SessionLimit:
    """The number of sessions of each caller. Used by many threads."""

    def __init__(self, app: Windlass, most: int) -> None:
        self._app = app
        self._most = most
        self._lock = Lock()
        self._numbers: Counter[str] = Counter()  # by the name of the caller
        self._counted_at = float("-inf")

    def take(self, caller: str) -> None:
        """Count a session that begins; refuse it if the caller has too many."""
        with self._lock:
            is_full = self._numbers[caller] >= self._most
            if monotonic() >= self._counted_at + (FULL_COUNT_S if is_full else COUNT_S):
                self._numbers = self._count()
                self._counted_at = monotonic()
            if self._numbers[caller] >= self._most:
                raise self._refusal(caller)
            self._numbers[caller] += 1

    def give_back(self, caller: str) -> None:
        """Forget a session that has ended."""
        with self._lock:
            self._numbers[caller] -= 1

    def _count(self) -> Counter[str]:
        live = (record for record in self._app.engine.sessions() if record.expires_in_ms >= 0)
        return Counter(RemoteIntroduction.unpack(record.info).principal for record in live)

    def _refusal(self, caller: str) -> Problem:
        lease_s = self._app.settings.lease_ms / 1000
        return Problem(
            ProblemType.TOO_MANY,
            f"{caller} has {self._most:,} sessions, which is the limit. End sessions that are not "
            f"used any more, or wait: a session ends {lease_s:g} s after its last heartbeat. One "
            "session with many slots can replace many sessions.",
            headers={"Retry-After": "5"},
        )

"""Log outages of the engine in the supervisor, and their end.

Two threads of a supervisor call the engine: heartbeat and maintenance. They share one `Contact`, so
that an outage is logged once. Its end is logged when every call that failed has succeeded: a read
may succeed while writes still fail.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import getLogger
from random import uniform
from threading import Lock
from typing import Final

from windlass.errors import EngineError
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: The longest wait before a retry, in seconds.
AGAIN_S: Final = 1.0


class Contact:
    """The state of the connection to one engine. Used by several threads."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = Lock()
        self._failed: set[object] = set()
        self._is_outage_logged = False
        self.answered_at = 0.0  # of the monotonic clock

    def attempt(self, duty: object, action: Callable[[], float]) -> float:
        """Call `action`; return the seconds until the next call, which is soon after a failure."""
        try:
            wait_s = action()
        except EngineError as error:
            self._note_away(duty, error)
        except Exception:
            log.exception(LogEvent.UPKEEP_FAILED)
        else:
            self._note_back(duty)
            return wait_s
        return uniform(0.2, AGAIN_S)

    def _note_away(self, duty: object, error: EngineError) -> None:
        with self._lock:
            if self.answered_at and not self._is_outage_logged:
                log.warning(LogEvent.SUPERVISOR_ENGINE_AWAY, error)
                self._is_outage_logged = True
            elif not self.answered_at and not self._failed:
                log.warning(LogEvent.ENGINE_AWAITED, error)
            self._failed.add(duty)

    def _note_back(self, duty: object) -> None:
        if duty not in self._failed and not self._is_outage_logged:
            return
        with self._lock:
            self._failed.discard(duty)
            if self._is_outage_logged and not self._failed:
                log.warning(LogEvent.SUPERVISOR_ENGINE_BACK, self._location)
                self._is_outage_logged = False

"""What is logged when the engine does not answer, and when it answers again.

Two threads of a worker call the engine on their own account: the heartbeat and the upkeep. Both try
through one `Contact`, so that an outage is logged once, and its end when all that failed has
succeeded: a read may succeed while no write does.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import getLogger
from random import uniform
from threading import Lock
from typing import Final

from windlass.errors import EngineError

log = getLogger("windlass.worker")

#: The longest wait, in seconds, before a call that failed is tried again.
AGAIN_S: Final = 1.0


class Contact:
    """With the engine at one location; used by several threads."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = Lock()
        self._failed: set[object] = set()
        self._is_outage_logged = False
        self.answered_at = 0.0  # when the engine did, by the monotonic clock

    def attempt(self, duty: object, action: Callable[[], float]) -> float:
        """Do it; the seconds until the next time, which comes soon after a failure."""
        try:
            wait_s = action()
        except EngineError as error:
            self._note_away(duty, error)
        except Exception:
            log.exception("the upkeep of the worker failed and is tried again")
        else:
            self._note_back(duty)
            return wait_s
        return uniform(0.2, AGAIN_S)

    def _note_away(self, duty: object, error: EngineError) -> None:
        with self._lock:
            if self.answered_at and not self._is_outage_logged:
                log.warning("the supervisor cannot reach the engine, and tries on: %s", error)
                self._is_outage_logged = True
            elif not self.answered_at and not self._failed:
                log.warning("waiting for the engine, and ready when it answers: %s", error)
            self._failed.add(duty)

    def _note_back(self, duty: object) -> None:
        if duty not in self._failed and not self._is_outage_logged:
            return
        with self._lock:
            self._failed.discard(duty)
            if self._is_outage_logged and not self._failed:
                log.warning("the supervisor reaches the engine again: %s", self._location)
                self._is_outage_logged = False

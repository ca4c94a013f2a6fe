"""Readiness of an instance: whether the engine answers, asked at most once a second."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from windlass.errors import EngineError
from windlass.http.access_log import log
from windlass.http.problems import Problem, ProblemType

if TYPE_CHECKING:
    from windlass.http.gateway import Gateway

#: How long an answer is believed, in seconds.
_FRESH_S: Final = 1.0


class Readiness:
    """The last answer of the engine to a small question."""

    def __init__(self) -> None:
        self._asking: asyncio.Task[bool] | None = None
        self._asked_at = float("-inf")

    async def check(self, gateway: Gateway) -> None:
        """Raise a problem while the engine does not answer."""
        now = time.monotonic()
        if self._asking is None or (self._asking.done() and now >= self._asked_at + _FRESH_S):
            self._asked_at = now
            self._asking = asyncio.create_task(_ask(gateway))
        if not await asyncio.shield(self._asking):
            raise Problem(ProblemType.ENGINE_AWAY, "The engine does not answer.")


async def _ask(gateway: Gateway) -> bool:
    try:
        await gateway.call(gateway.app.engine.queues)
    except (EngineError, Problem) as error:
        log.warning("not ready: %s", error)
        return False
    return True

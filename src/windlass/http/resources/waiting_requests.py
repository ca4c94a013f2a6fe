"""Requests that wait for the end of a job, without a thread.

A wait ends early when the client leaves, and when the instance shuts down: a server waits for open
requests before it stops. Each instance has a bounded number of waiting requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from windlass.http.gateway import Gateway
from windlass.http.problems import Problem, ProblemType
from windlass.http.routes import ApiRequest

T = TypeVar("T")


class WaitingRequests:
    """The waiting requests of an instance, as `gateway.part(WaitingRequests)`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._number = 0

    async def wait(self, call: ApiRequest, event: Coroutine[Any, Any, T]) -> T | None:
        """Wait for an event, and return its value; None if the client has left, or the instance
        shuts down. The event is then cancelled."""
        most = self._gateway.options.max_waiters
        if self._number >= most:
            event.close()
            raise Problem(
                ProblemType.OVERLOADED,
                f"{most} requests wait at this instance already. Send the request again later, or "
                "to another instance.",
            )
        self._number += 1
        waited = asyncio.ensure_future(event)
        others = [
            asyncio.ensure_future(call.is_gone()),
            asyncio.ensure_future(self._gateway.until_draining()),
        ]
        try:
            await asyncio.wait((waited, *others), return_when=asyncio.FIRST_COMPLETED)
            return waited.result() if waited.done() else None
        finally:
            self._number -= 1
            for task in (waited, *others):
                task.cancel()
            await asyncio.gather(waited, *others, return_exceptions=True)

"""The lifespan of the app, in the process where its jobs run.

One coroutine on the event loop holds it from before the first claim until the last job is reported:
what is entered in a task, or in a thread, can often be left only there. A lifespan that ends before
it is asked to has lost what jobs rely on, and then its process ends too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from logging import getLogger
from threading import Event, Timer
from typing import Any

from windlass.middleware import Lifespan

log = getLogger("windlass.worker")

#: A lifespan that has not been entered after so many seconds is told of.
SLOW_S = 10.0


class HeldLifespan:
    """Entered on the event loop; left from any other thread. `on_loss` is called when the lifespan
    ends by itself."""

    def __init__(self, lifespan: Lifespan | None, on_loss: Callable[[], None]) -> None:
        self._lifespan = lifespan
        self._on_loss = on_loss
        self._left = Event()
        self._error: BaseException | None = None  # when it was left
        self.is_held = False  # entered, and not left

    async def enter(self) -> Any:
        """What the lifespan yields. An error in it comes through, with a note whose it is."""
        if self._lifespan is None:
            self._left.set()
            return None
        self._loop = asyncio.get_running_loop()
        self._leaving = asyncio.Event()
        entered: asyncio.Future[Any] = self._loop.create_future()
        # Kept: the loop has weak references only.
        self._task = self._loop.create_task(self._hold(self._lifespan, entered))
        slowness = Timer(SLOW_S, _tell_slow)
        slowness.daemon = True
        slowness.start()
        try:
            return await entered
        finally:
            slowness.cancel()

    def leave(self, timeout_s: float) -> None:
        if self._left.is_set():
            return
        self._loop.call_soon_threadsafe(self._leaving.set)
        if not self._left.wait(timeout_s):
            log.warning("the lifespan was not left within %g s; the process ends", timeout_s)

    async def end(self) -> None:
        """Leave it, from its own loop; what it raises then comes through."""
        if not self._left.is_set():
            self._leaving.set()
            await self._task
            if self._error is not None:
                raise self._error

    async def _hold(self, lifespan: Lifespan, entered: asyncio.Future[Any]) -> None:
        error: BaseException | None = None
        try:
            async with _as_async(lifespan.open()) as state:
                self.is_held = True
                entered.set_result(state)
                await self._leaving.wait()
        except BaseException as raised:  # noqa: BLE001  # SystemExit would leave the loop
            error = raised
        self.is_held = False
        if not entered.done():
            self._refuse(lifespan, entered, error)
        elif not self._leaving.is_set():
            log.error("the lifespan ended by itself; this child ends its jobs", exc_info=error)
            self._on_loss()
        elif error is not None:
            log.error("the lifespan failed when it was left", exc_info=error)
            self._error = error
        self._left.set()

    def _refuse(
        self, lifespan: Lifespan, entered: asyncio.Future[Any], error: BaseException | None
    ) -> None:
        error = error or RuntimeError("it was never entered")
        error.add_note(f"Raised by the lifespan {lifespan.name} of the app, before the first job.")
        entered.set_exception(error)


def _tell_slow() -> None:
    """Until it is entered nothing is claimed, and nothing else is logged."""
    log.warning("the lifespan was not entered within %g s, and is waited for", SLOW_S)


def _as_async(manager: Any) -> AbstractAsyncContextManager[Any]:
    return manager if hasattr(manager, "__aenter__") else _entered_here(manager)


@asynccontextmanager
async def _entered_here(manager: Any) -> AsyncIterator[Any]:
    with manager as state:
        yield state

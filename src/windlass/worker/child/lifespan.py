"""The lifespan of the app, in the process that runs its jobs.

One coroutine on the event loop holds the lifespan from before the first claim until the last job is
reported: many context managers must be exited in the task or thread that entered them. If the
lifespan ends early, jobs have lost their resources, so the process ends too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from logging import getLogger
from threading import Event, Timer
from typing import Any

from windlass.middleware import Lifespan
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: A lifespan that has not started after this many seconds is logged.
SLOW_S = 10.0


class HeldLifespan:
    """A lifespan that is entered on the event loop, and exited from any other thread. `on_loss` is
    called when it ends early."""

    def __init__(self, lifespan: Lifespan | None, on_loss: Callable[[], None]) -> None:
        self._lifespan = lifespan
        self._on_loss = on_loss
        self._left = Event()
        self._error: BaseException | None = None  # raised at the exit
        self.is_held = False  # entered, and not exited

    async def enter(self) -> Any:
        """Enter the lifespan and return its value. An error gets a note that names the lifespan."""
        if self._lifespan is None:
            self._left.set()
            return None
        self._loop = asyncio.get_running_loop()
        self._leaving = asyncio.Event()
        entered: asyncio.Future[Any] = self._loop.create_future()
        # Keep a reference: the loop has weak references only.
        self._task = self._loop.create_task(self._hold(self._lifespan, entered))
        # Log a slow start: a child that waits here claims nothing, and logs nothing else.
        with call_if_slow(SLOW_S, lambda: log.warning(LogEvent.LIFESPAN_SLOW, SLOW_S)):
            return await entered

    def leave(self, timeout_s: float) -> None:
        if self._left.is_set():
            return
        self._loop.call_soon_threadsafe(self._leaving.set)
        if not self._left.wait(timeout_s):
            log.warning(LogEvent.LIFESPAN_LINGERED, timeout_s)

    async def end(self) -> None:
        """Exit the lifespan from its own loop, and raise its error, if any."""
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
            log.error(LogEvent.LIFESPAN_ENDED, exc_info=error)
            self._on_loss()
        elif error is not None:
            log.error(LogEvent.LIFESPAN_FAILED, exc_info=error)
            self._error = error
        self._left.set()

    def _refuse(
        self, lifespan: Lifespan, entered: asyncio.Future[Any], error: BaseException | None
    ) -> None:
        error = error or RuntimeError("it was never entered")
        error.add_note(f"Raised by the lifespan {lifespan.name} of the app, before the first job.")
        entered.set_exception(error)


@contextmanager
def call_if_slow(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    """Call `action` in another thread if the block takes longer than `seconds`."""
    timer = Timer(seconds, action)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _as_async(manager: Any) -> AbstractAsyncContextManager[Any]:
    return manager if hasattr(manager, "__aenter__") else _entered_here(manager)


@asynccontextmanager
async def _entered_here(manager: Any) -> AsyncIterator[Any]:
    with manager as state:
        yield state

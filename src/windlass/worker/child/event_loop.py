"""Keep the event loop of a child running, also when a coroutine stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger

from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")


def run_until(is_over: Callable[[], bool], loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop. Restart it when a task stops it, or when SystemExit escapes from a task."""
    while not is_over():
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # an error of a background task fails no job
            with suppress(BaseException):  # a handler of the app may be what fails
                log.error(LogEvent.LOOP_LEFT, type(error).__name__)

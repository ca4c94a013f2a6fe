"""The event loop on which coroutines run, and which goes on whatever they do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger

log = getLogger("windlass.worker")


def run_until(is_over: Callable[[], bool], loop: asyncio.AbstractEventLoop) -> None:
    """A task may stop the loop, or let SystemExit escape in the background: then it runs again."""
    while not is_over():
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # a background task is nobody's crash
            with suppress(BaseException):  # a handler of the app may be what fails
                log.error("%s left the event loop, which goes on", type(error).__name__)

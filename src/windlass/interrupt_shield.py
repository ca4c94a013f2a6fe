"""Delay the interrupts of a thread that runs jobs.

1. A worker interrupts a plain function by an exception that it sends into the thread. `Shield` is
   what the guard of such a thread offers, and `set_shield` registers the guard.
2. `shield` delays that exception until the end of a call that must not be cut off. A call that is
   cut off could leave a lock held, or leave its reply to the next caller.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol


class Shield(Protocol):
    """A guard that can delay the interrupts of its thread."""

    def raise_shield(self) -> None:
        """Delay exceptions. An exception that was sent before hits this call."""

    def lower_shield(self) -> None:
        """Raise an exception that was delayed, and delay no further ones."""


def set_shield(guard: Shield) -> None:
    """Register the guard of this thread."""
    _of_thread.guard = guard


@contextmanager
def shield() -> Iterator[None]:
    """Delay interrupts of this thread until the end of the block. Blocks do not nest: the end of an
    inner block ends the outer one too."""
    guard: Shield | None = getattr(_of_thread, "guard", None)
    if guard is None:
        yield
        return
    guard.raise_shield()
    try:
        yield
    finally:
        guard.lower_shield()


_of_thread: Final = threading.local()

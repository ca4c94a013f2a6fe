"""Bounds in real time, on machines that may be busy.

Whatever is asked for, a machine that does something else meanwhile makes it late now and then. What
is late each time is late by itself.
"""

from __future__ import annotations

from collections.abc import Callable

TRIES = 5


def is_once(attempt: Callable[[], bool], tries: int = TRIES) -> bool:
    """Whether it is so at one of several tries; the first one ends it."""
    return any(attempt() for _ in range(tries))

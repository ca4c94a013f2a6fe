"""Time limits in tests, on machines that may be busy.

A busy machine makes any action late now and then. An action that is late at every try is slow by
itself.
"""

from __future__ import annotations

from collections.abc import Callable

TRIES = 5


def is_once(attempt: Callable[[], bool], tries: int = TRIES) -> bool:
    """Whether one of several tries succeeds; stops at the first success."""
    return any(attempt() for _ in range(tries))

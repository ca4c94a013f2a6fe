"""What must not go through a fork as it is, and what is done about it.

1. A fork waits for `opening`, which is held by whoever opens something: that is imported first, and
   a child would wait for ever for an import that a thread of its parent had begun.
2. Then everything that has asked for it, with what was opened meanwhile, is told of the fork.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

#: How long a fork waits for an opening, in seconds. Only one in the middle of it is in vain.
PATIENCE_S: Final = 10.0


class Forkable(Protocol):
    """Something with locks or connections."""

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


class Opening:
    """A lock for all apps of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_held_for_fork = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        self._is_held_for_fork = self._lock.acquire(timeout=PATIENCE_S)

    def after_fork_in_parent(self) -> None:
        if self._is_held_for_fork:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


opening: Final = Opening()
_WATCHED: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()


def watch(thing: Forkable) -> None:
    """Tell a thing of every fork, while it lives."""
    _WATCHED.add(thing)


def _before() -> None:
    opening.before_fork()
    for thing in list(_WATCHED):
        thing.before_fork()


def _after_in_parent() -> None:
    for thing in list(_WATCHED):
        thing.after_fork_in_parent()
    opening.after_fork_in_parent()


def _after_in_child() -> None:
    for thing in list(_WATCHED):
        thing.after_fork_in_child()
    opening.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )

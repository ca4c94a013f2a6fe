"""Fork safety: let a fork wait for imports and notify objects with locks or connections.

1. A fork waits for `opening`, which a thread holds while it opens an engine. Opening imports
   modules, and a child would wait forever for an import that a thread of its parent had begun.
2. Then every object that called `watch` is notified, including objects opened in the meantime.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

#: How long a fork waits for an opening, in seconds. The wait times out only when the thread that
#: opens an engine is also the thread that forks.
FORK_WAIT_S: Final = 10.0


class Forkable(Protocol):
    """An object with locks or connections that needs a notice before and after a fork."""

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


class Opening:
    """A lock for opening engines, shared by all apps of a process. A fork waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_held_for_fork = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        self._is_held_for_fork = self._lock.acquire(timeout=FORK_WAIT_S)

    def after_fork_in_parent(self) -> None:
        if self._is_held_for_fork:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


opening: Final = Opening()
_WATCHED: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()


def watch(thing: Forkable) -> None:
    """Notify an object of every fork, as long as the object lives."""
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

"""Shared parts of wake-ups in all engines: the poll interval, a pipe that wakes a waiter in this
process, and an object that every process creates for itself."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

#: A waiter polls at least this often.
POLL_FLOOR_MS: Final = 500
#: Windows can only wait for sockets, by special calls.
SOCKETS_ARE_FILES: Final[bool] = sys.platform != "win32"


class Nudge:
    """A pipe: a write to one end makes the other end readable."""

    def __init__(self) -> None:
        self.descriptor, self._entrance = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._entrance, False)

    def give(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes just as well
            os.write(self._entrance, b"1")

    def take(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._entrance)


class SocketNudge(Nudge):
    """`Nudge` for systems that can only wait for sockets. A pipe takes half the time."""

    def __init__(self) -> None:
        self._exit, self._way_in = socket.socketpair()
        for end in (self._exit, self._way_in):
            end.setblocking(False)
        self.descriptor = self._exit.fileno()

    def give(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._way_in.send(b"1")

    def take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._exit.recv(4096)

    def close(self) -> None:
        self._exit.close()
        self._way_in.close()


def new_nudge() -> Nudge:
    return Nudge() if SOCKETS_ARE_FILES else SocketNudge()


def await_readable(descriptors: Sequence[int], timeout_s: float) -> list[int]:
    """Wait until a descriptor is readable; return the readable ones, none after the timeout."""
    timeout_s = max(0.0, timeout_s)
    if not hasattr(select, "poll"):  # Windows
        return select.select(descriptors, (), (), timeout_s)[0]
    poll = select.poll()  # unlike `select`, it supports descriptors above 1023
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(math.ceil(timeout_s * 1000))]


def await_socket(descriptor: int, timeout_s: float, *, to_write: bool) -> tuple[bool, bool]:
    """Wait until a socket can be read, or also written; return whether it is ready, and whether it
    can be read."""
    if not hasattr(select, "poll"):  # Windows
        both = (descriptor,)
        readable, writable, _ = select.select(both, both if to_write else (), (), timeout_s)
        return bool(readable or writable), bool(readable)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | (select.POLLOUT if to_write else 0))
    ready = poll.poll(math.ceil(timeout_s * 1000))
    return bool(ready), any(events & ~select.POLLOUT for _, events in ready)


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class PerProcess(Generic[T]):
    """An object with descriptors, made at first use. A forked child makes its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._opening = threading.Lock()
        self._made: tuple[int, T] | None = None
        _ALL.add(self)

    def get(self) -> T:
        made = self._made
        if made is not None and made[0] == os.getpid():
            return made[1]
        with self._opening:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), self._make()
            return self._made[1]

    def close(self) -> None:
        """Close the object; the next use makes a new one."""
        with self._opening:
            if self._made is not None and self._made[0] == os.getpid():
                self._made[1].close()
            self._made = None

    def unlock(self) -> None:
        self._opening = threading.Lock()


#: Objects with a lock to replace after a fork: a thread of the parent may hold the lock.
_ALL: Final[weakref.WeakSet[PerProcess[Any]]] = weakref.WeakSet()


def _unlock_in_child() -> None:
    for holder in list(_ALL):
        holder.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)

"""Wake-up of an idle child, on a pair of datagram sockets for each child.

The waiter of a worker sends an empty datagram when there may be jobs to claim, or a job that was
handed off. A datagram arrives as a whole or not at all. So a child that does not read never gets
half a message, and never blocks the waiter.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

from windlass.engine.wakeup import await_readable, new_nudge

#: The buffer size: enough for a job that is handed off. Some systems default to 2 kB.
_BUFFER_BYTES: Final = 65_536
#: The message that makes the child claim by itself.
LOOK: Final = b""


class WakeSender:
    """The waiter's end of the pair."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: bytes) -> None:
        """Send a message. Ignore a child that is gone or does not read. If a job does not fit, send
        LOOK instead: the claim of the child finds the job."""
        try:
            self._connection.send(message)
        except OSError:
            with suppress(OSError):
                self._connection.send(LOOK)

    def close(self) -> None:
        self._connection.close()


class WakeReceiver:
    """The child's end of the pair. Used by one thread, except for `nudge`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setblocking(False)
        self._nudge = new_nudge()

    def receive(self, timeout_s: float) -> bytes | None:
        """Wait for the next message. Return None on a nudge, or after the timeout."""
        descriptor = self._connection.fileno()
        ready = await_readable([descriptor, self._nudge.descriptor], timeout_s)
        if self._nudge.descriptor in ready:
            self._nudge.take()
        if descriptor in ready:
            with suppress(OSError):
                return self._connection.recv(_BUFFER_BYTES)
        return None

    def nudge(self) -> None:
        """Make the current or the next `receive` return. Thread-safe."""
        self._nudge.give()

    def close(self) -> None:
        self._connection.close()
        self._nudge.close()


def open_wake_pair() -> tuple[WakeSender, socket.socket]:
    """Return the waiter's end, and the socket that the child inherits."""
    ours, theirs = _datagram_pair()
    ours.setblocking(False)
    with suppress(OSError):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return WakeSender(ours), theirs


def _datagram_pair() -> tuple[socket.socket, socket.socket]:
    if hasattr(socket, "AF_UNIX"):
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    # On Windows. Connected sockets receive only from each other.
    pair = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for end in pair:
        end.bind(("127.0.0.1", 0))
    for end, partner in zip(pair, reversed(pair), strict=True):
        end.connect(partner.getsockname())
    return pair[0], pair[1]


def join_wake_pair(descriptor: int) -> WakeReceiver:
    """Open the child's end, from an inherited descriptor that the child does not pass on."""
    os.set_inheritable(descriptor, False)
    return WakeReceiver(socket.socket(fileno=descriptor))

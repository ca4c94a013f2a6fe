"""Subscriptions: a connection of its own that listens on one channel.

The network can drop a connection silently. A listener that heard nothing for `PULSE_S` subscribes
again, and opens a new connection when there is no answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import redis

from windlass.engine.redis.client.scripts import pack
from windlass.engine.redis.client.server import Server
from windlass.engine.wakeup import await_readable

#: How long a subscription may take, in seconds.
SUBSCRIBE_S: Final = 1.0
#: Errors that end a subscription.
FAILURES: Final = (redis.exceptions.RedisError, OSError)


class Subscription:
    """A confirmed subscription. Only one thread at a time may use it."""

    def __init__(self, server: Server, channel: str) -> None:
        self._command = pack(b"SUBSCRIBE", channel.encode())
        self._link = server.connect(SUBSCRIBE_S)
        try:
            self.ask()
            self._await_answer()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to wait for; negative once it is closed."""
        return self._link.fileno()

    def ask(self) -> None:
        """Subscribe, also again; `is_answered` then tells whether the server replied."""
        self.asked_at, self.is_answered = time.monotonic(), False
        self._link.tell(self._command, SUBSCRIBE_S)

    def _await_answer(self) -> None:
        """Wait for the confirmation, after which the channel may be registered. Other data, such as
        TLS records, may make the socket readable first."""
        deadline = time.monotonic() + SUBSCRIBE_S
        while (reply := next(self._link.take_in(), None)) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the subscription was not confirmed")
            await_readable([self.fileno()], left_s)
        self._note(reply)

    def receive(self) -> Iterator[bytes]:
        """Iterate over the messages that have arrived, without waiting."""
        for reply in self._link.take_in():
            self._note(reply)
            if reply[0] == b"message":
                yield reply[2]

    def _note(self, reply: Any) -> None:
        if isinstance(reply, Exception):  # the permission to listen was revoked
            raise redis.exceptions.ConnectionError(str(reply))
        self.is_answered = True

    def close(self) -> None:
        self._link.disconnect()

"""The bell: a waiter sleeps on a channel of its own until somebody has work for it.

A waiter puts its channel on the list of every partition in the same step in which it looks for
work, so no wake-up is lost in between. Whoever makes n jobs ready takes up to n waiters off the
list and publishes to each: nothing, or a job that is handed over. Nothing depends on the bell but
speed: a wait is never longer than the poll floor.

A connection on which nothing is published looks like one that was cut on the way without a word. So
the waiter subscribes again every few seconds, and opens a new one if that was not answered.
"""

from __future__ import annotations

import os
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import hiredis
import redis

from windlass.engine.redis import keys, scripts
from windlass.engine.redis.connection import Server
from windlass.engine.redis.pool import Link
from windlass.engine.waiting import (
    POLL_FLOOR_MS,
    SOCKETS_ARE_FILES,
    OfThisProcess,
    await_readable,
    new_nudge,
)

_PATIENCE_S: Final = 1.0
_MOST_BYTES: Final = 65_536
_MOST_MESSAGES: Final = 100
#: How often to see whether the connection still stands.
PULSE_S: Final = 5.0


class Woken(Enum):
    RUNG = 1
    NUDGED = 2


class Bell:
    """The waiting and waking of one engine object."""

    def __init__(self, server: Server, *, is_spread: bool) -> None:
        self._is_spread = is_spread  # over several lists: one who rings takes it off one of them
        self._inside = OfThisProcess(lambda: _Inside(server))

    def wait(
        self,
        register: Callable[[str, int], bool],
        unregister: Callable[[str], None],
        timeout_ms: int,
    ) -> None:
        """Return when rung or nudged, when `register` finds work, or after a time."""
        channel = self.listen()
        block_ms = max(0, min(timeout_ms, POLL_FLOOR_MS))
        found = register(channel, block_ms)
        woken = None if found else self._inside.get().block(block_ms)
        is_listed = woken is Woken.NUDGED or (self._is_spread and (found or woken is Woken.RUNG))
        if is_listed:  # whoever rings next should not waste it on somebody who is awake
            unregister(channel)

    def listen(self) -> str:
        """The channel on which this one hears; while that fails, looking by itself remains."""
        inside = self._inside.get()
        inside.subscribe()
        return inside.channel

    def hear(self, timeout_ms: int) -> tuple[Woken | None, list[bytes]]:
        """What came before the time was over, and what was published until then, a ring being
        empty."""
        return self._inside.get().hear(timeout_ms)

    def forget(self) -> None:
        """What was published up to now is for nobody."""
        self._inside.get().forget()

    def nudge(self) -> None:
        self._inside.get().nudge.give()

    def close(self) -> None:
        self._inside.close()


class _Inside:
    """The subscription and the pipe of one bell in one process."""

    def __init__(self, server: Server) -> None:
        self.channel = keys.channel(server.address.namespace, secrets.token_hex(8))
        self.nudge = new_nudge()
        self._server = server
        self._connection: Link | None = None
        self._asked_at = 0.0  # when the subscription was last sent
        self._is_answered = False
        self._messages: list[bytes] = []
        self._reader = _new_reader()
        self._draining = threading.Lock()  # several threads may wait

    def subscribe(self) -> None:
        """Listen on the channel; while that fails, looking by itself remains."""
        if self._connection is not None and time.monotonic() < self._asked_at + PULSE_S:
            return
        self._drain()
        with self._draining:
            if not self._is_answered:
                self._drop()
            is_new = self._connection is None
            try:
                self._ask()
                if is_new:
                    self._await_answer()
            except (redis.exceptions.RedisError, OSError):
                self._drop()

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = self._server.connect(_PATIENCE_S)
        command = scripts.pack(b"SUBSCRIBE", self.channel.encode())
        self._connection.send_packed_command([command], check_health=False)
        self._asked_at, self._is_answered = time.monotonic(), False

    def _await_answer(self) -> None:
        """Only then may the channel be put on a list. Something else may make the socket readable
        first, as what TLS says to itself does."""
        deadline = time.monotonic() + _PATIENCE_S
        self._read()
        while not self._is_answered:
            socket, left_s = self._socket(), deadline - time.monotonic()
            if socket is None or left_s <= 0:
                raise TimeoutError("a subscription was not answered")
            await_readable([socket], left_s)
            self._read()

    def hear(self, timeout_ms: int) -> tuple[Woken | None, list[bytes]]:
        woken = self.block(timeout_ms)
        with self._draining:
            messages, self._messages = self._messages, []
        return woken, messages

    def forget(self) -> None:
        with self._draining:
            self._messages = []

    def block(self, timeout_ms: int) -> Woken | None:
        """What came before the time was over; after that it is on no list any more."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._drain():
            socket = self._socket()
            nudged = self.nudge.descriptor
            sources = [nudged] if socket is None else [nudged, socket]
            ready = await_readable(sources, deadline - time.monotonic())
            if nudged in ready:
                self.nudge.take()
                return Woken.NUDGED
            if not ready:
                return None
        return Woken.RUNG

    def _socket(self) -> int | None:
        connection = self._connection
        if connection is None or connection._sock is None:
            return None
        return int(connection._sock.fileno())

    def _drain(self) -> bool:
        """Read what was published; a connection that broke is opened again by the next wait."""
        with self._draining:
            if self._connection is None:
                return False
            try:
                return self._read()
            except (redis.exceptions.RedisError, OSError):
                self._drop()
                return True

    def _read(self) -> bool:
        """Whether anything but the answer to a subscription has come. A plain socket is read
        without the driver, which takes longer than all the rest of a wake-up."""
        assert self._connection is not None
        socket = self._connection._sock
        if socket is None or not SOCKETS_ARE_FILES or isinstance(socket, ssl.SSLSocket):
            return self._read_by_driver()
        try:
            came = os.read(socket.fileno(), _MOST_BYTES)  # `recv` would wait as long as it may
        except BlockingIOError:
            return False
        if not came:
            raise ConnectionResetError("the server has closed the connection")
        self._reader.feed(came)
        is_rung = False
        while (reply := self._reader.gets()) is not False:
            is_rung |= self._note(reply)
        return is_rung

    def _read_by_driver(self) -> bool:
        is_rung = False
        while self._connection is not None and self._connection.can_read(0):
            is_rung |= self._note(self._connection.read_response())
        return is_rung

    def _note(self, reply: Any) -> bool:
        """Whether it is a message, and not the answer to a subscription."""
        if isinstance(reply, Exception):  # the right to listen was taken away
            raise redis.exceptions.ConnectionError(str(reply))
        kind, _, message = reply
        self._is_answered = True
        if kind != b"message":
            return False
        if len(self._messages) < _MOST_MESSAGES:  # nobody asks for them where nobody claims
            self._messages.append(message)
        return True

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._reader = _new_reader()
        if connection is not None:
            connection.disconnect()

    def close(self) -> None:
        self._drop()
        self.nudge.close()


def _new_reader() -> hiredis.Reader:
    return hiredis.Reader(protocolError=redis.exceptions.ConnectionError)

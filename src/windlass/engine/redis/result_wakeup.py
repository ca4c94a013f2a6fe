"""Wake-ups of callers that wait for the end of jobs.

1. The first waiting caller opens a connection and subscribes to its own channel. All callers of the
   engine object share both, threads and coroutines alike.
2. Each read of a job also registers the channel in the job's partition, in the same step. The call
   that ends the job publishes its id there.
3. A thread reads the ids and passes them on. The thread ends, with its connection, when no caller
   has read a job for a while.

The network can drop a connection silently: the thread sends a PING every few seconds and closes a
connection without a reply. The next read of a job subscribes again. Callers also poll from time to
time, so a lost wake-up only costs time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import redis

from windlass.engine.redis import keys
from windlass.engine.redis.client import scripts
from windlass.engine.redis.client.pool import Link
from windlass.engine.redis.client.server import Server
from windlass.engine.wakeup import Nudge, PerProcess, await_readable, new_nudge

OnEnd = Callable[[str], None]

#: How long a subscription may take, and the pause after a failed one.
_SUBSCRIBE_S: Final = 1.0
#: How often to check the connection.
PULSE_S: Final = 5.0
#: The thread ends when no caller has read a job for this long.
IDLE_S: Final = 30.0

_FAILURES: Final = (redis.exceptions.RedisError, OSError)


class RedisResultWakeup:
    """The wake-ups of one engine object."""

    def __init__(self, server: Server) -> None:
        self._listener = PerProcess(lambda: _Listener(server))

    def listen(self, on_end: OnEnd) -> str:
        """Subscribe, and return the channel on which ends are published; "" if that failed."""
        return self._listener.get().listen(on_end)

    def close(self) -> None:
        self._listener.close()


class _Listener:
    """The channel of one engine object in one process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel = keys.channel(server.address.namespace, secrets.token_hex(8))
        self._lock = threading.Lock()
        self._hooks: set[OnEnd] = set()
        self._subscription: _Subscription | None = None
        self._used_at = 0.0
        self._may_try_at = 0.0

    def listen(self, on_end: OnEnd) -> str:
        with self._lock:
            self._hooks.add(on_end)
            now = self._used_at = time.monotonic()
            if self._subscription is None and now >= self._may_try_at:
                try:
                    self._subscribe()
                except (*_FAILURES, RuntimeError):  # RuntimeError: a thread cannot start at exit
                    self._may_try_at = time.monotonic() + _SUBSCRIBE_S
            return "" if self._subscription is None else self._channel

    def _subscribe(self) -> None:
        subscription = _Subscription(self._server, self._channel)
        thread = threading.Thread(
            target=self._read, args=(subscription,), name="windlass-results", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            subscription.close()
            raise
        self._subscription = subscription
        subscription.thread = thread

    def _read(self, subscription: _Subscription) -> None:
        try:
            with suppress(*_FAILURES):
                while self._is_wanted(subscription):
                    for job_id in subscription.receive(PULSE_S):
                        for hook in tuple(self._hooks):
                            hook(job_id)
        finally:
            self._forget(subscription)
            subscription.close()

    def _is_wanted(self, subscription: _Subscription) -> bool:
        """Check and clear in one step: a caller must not rely on a thread that is about to end."""
        with self._lock:
            if time.monotonic() - self._used_at > IDLE_S:
                self._subscription = None
            return self._subscription is subscription

    def _forget(self, subscription: _Subscription) -> None:
        with self._lock:
            if self._subscription is subscription:
                self._subscription = None

    def close(self) -> None:
        with self._lock:
            subscription, self._subscription = self._subscription, None
        if subscription is not None and subscription.thread is not None:
            subscription.nudge.give()
            subscription.thread.join(_SUBSCRIBE_S)


class _Subscription:
    """A connection on which ids are published. One thread reads and closes it."""

    def __init__(self, server: Server, channel: str) -> None:
        self.thread: threading.Thread | None = None
        self.nudge: Nudge = new_nudge()
        self._is_asked = False  # a PING is pending
        self._connection: Link | None = None
        try:
            self._connection = server.connect(_SUBSCRIBE_S)
            self._send(b"SUBSCRIBE", channel.encode())
            if self._connection.read_response()[0] != b"subscribe":
                raise redis.exceptions.ConnectionError("the subscription was not confirmed")
        except BaseException:
            self.close()
            raise

    def receive(self, timeout_s: float) -> list[str]:
        """Return published ids as soon as there are some; none after the timeout or on a nudge.
        Raises when the connection is lost."""
        connection = self._connection
        if connection is None or connection._sock is None:
            raise redis.exceptions.ConnectionError("the connection is closed")
        ready = await_readable([connection._sock.fileno(), self.nudge.descriptor], timeout_s)
        if self.nudge.descriptor in ready:
            self.nudge.take()
            return []
        if not ready:
            self._check()
            return []
        heard: list[str] = []
        while connection.can_read(0):
            heard += self._note(connection.read_response())
        return heard

    def _check(self) -> None:
        if self._is_asked:
            raise redis.exceptions.ConnectionError("the server does not answer")
        self._is_asked = True
        self._send(b"PING")

    def _note(self, reply: Any) -> list[str]:
        """The id in a message; none in the reply to a PING."""
        if isinstance(reply, Exception):
            raise reply
        self._is_asked = False
        return [reply[2].decode()] if reply[0] == b"message" else []

    def _send(self, *words: bytes) -> None:
        assert self._connection is not None, "the thread that reads it has closed it"
        self._connection.send_packed_command([scripts.pack(*words)], check_health=False)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
        self.nudge.close()

"""Wake-ups of callers that wait for the end of jobs.

1. The first waiting caller opens a connection and subscribes to its own channel. All callers of the
   engine object share both, threads and coroutines alike.
2. Each read of a job also registers the channel in the job's partition, in the same step. The call
   that ends the job publishes its id there.
3. A thread reads the ids and passes them on. The thread ends, with its connection, when no caller
   has read a job for a while.

The thread closes a connection that the network has dropped silently. The next read of a job
subscribes again. Callers also poll from time to time, so a lost wake-up only costs time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import redis

from windlass.engine.redis import keys
from windlass.engine.redis.client.server import Server
from windlass.engine.redis.client.subscription import FAILURES, SUBSCRIBE_S, Subscription
from windlass.engine.wakeup import Nudge, PerProcess, await_readable, new_nudge

OnEnd = Callable[[str], None]

#: How often to check the connection.
PULSE_S: Final = 5.0
#: The thread ends when no caller has read a job for this long.
IDLE_S: Final = 30.0


class RedisResultWakeup:
    """Wake-ups for callers of one engine object that wait for jobs to end."""

    def __init__(self, server: Server) -> None:
        self._listener = PerProcess(lambda: _Listener(server))

    def listen(self, on_end: OnEnd) -> str:
        """Subscribe; return the channel on which ends are published, or "" on failure."""
        return self._listener.get().listen(on_end)

    def close(self) -> None:
        self._listener.close()


class _Listener:
    """The channel of one engine object in one process, and the thread that reads it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel = keys.channel(server.address.namespace, secrets.token_hex(8))
        self._lock = threading.Lock()
        self._hooks: set[OnEnd] = set()
        self._reader: _Reader | None = None
        self._used_at = 0.0
        self._may_try_at = 0.0

    def listen(self, on_end: OnEnd) -> str:
        with self._lock:
            self._hooks.add(on_end)
            now = self._used_at = time.monotonic()
            if self._reader is None and now >= self._may_try_at:
                try:
                    self._subscribe()
                except (*FAILURES, RuntimeError):  # RuntimeError: a thread cannot start at exit
                    self._may_try_at = time.monotonic() + SUBSCRIBE_S
            return "" if self._reader is None else self._channel

    def _subscribe(self) -> None:
        reader = _Reader(self._server, self._channel)
        thread = threading.Thread(
            target=self._read, args=(reader,), name="windlass-results", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            reader.close()
            raise
        self._reader = reader
        reader.thread = thread

    def _read(self, reader: _Reader) -> None:
        try:
            with suppress(*FAILURES):
                while self._is_wanted(reader):
                    for job_id in reader.receive(PULSE_S):
                        for hook in tuple(self._hooks):
                            hook(job_id)
        finally:
            self._forget(reader)
            reader.close()

    def _is_wanted(self, reader: _Reader) -> bool:
        """Decide atomically whether the thread ends: no caller may rely on an ending thread."""
        with self._lock:
            if time.monotonic() - self._used_at > IDLE_S:
                self._reader = None
            return self._reader is reader

    def _forget(self, reader: _Reader) -> None:
        with self._lock:
            if self._reader is reader:
                self._reader = None

    def close(self) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None and reader.thread is not None:
            reader.nudge.give()
            reader.thread.join(SUBSCRIBE_S)


class _Reader:
    """A subscription to published job ids. A single thread reads and closes it."""

    def __init__(self, server: Server, channel: str) -> None:
        self.thread: threading.Thread | None = None
        self.nudge: Nudge = new_nudge()
        try:
            self._subscription = Subscription(server, channel)
        except BaseException:
            self.nudge.close()
            raise

    def receive(self, timeout_s: float) -> list[str]:
        """Return published ids as soon as some come; none after the timeout or on a nudge. Raise
        when the connection is lost."""
        heard = [message.decode() for message in self._subscription.receive()]
        if heard:
            return heard
        ready = await_readable([self._subscription.fileno(), self.nudge.descriptor], timeout_s)
        if self.nudge.descriptor in ready:
            self.nudge.take()
        elif not ready:
            if not self._subscription.is_answered:
                raise redis.exceptions.ConnectionError("the server does not answer")
            self._subscription.ask()
        return []

    def close(self) -> None:
        self._subscription.close()
        self.nudge.close()

"""The connections of one process to one server, and the one loop that outlasts its troubles.

1. `Server.run` sends commands in Redis's protocol and gives their replies. Every failure that may
   pass (a connection that breaks, a server that loads, fails over or is busy) is tried again until
   the deadline; then the call fails as unavailable. All commands may be repeated.
2. At most `MOST_CALLS` connections are in use at a time; with the waiter's a process has four. One
   that may still have a reply under way is closed, and never used again.
3. A forked child begins with none: sockets of its parent are left alone.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final, Protocol

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from windlass.engine.redis.address import Address
from windlass.engine.redis.scripts import Prefix, Script
from windlass.errors import EngineError, EngineUnavailable

#: So many calls of one process are under way at a time; others wait for their turn.
MOST_CALLS: Final = 3
#: One that was not used for longer may have been cut somewhere on the way without a word.
_MOST_IDLE_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.01
_MOST_PAUSE_S: Final = 0.25
#: How replies begin that may be different in a moment.
_PASSING: Final = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.OutOfMemoryError,
)

Reply = Any


class Link(Protocol):
    """What is used of the driver's connections, which have no types of their own."""

    _sock: socket.socket | None

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def send_packed_command(self, command: Sequence[bytes], check_health: bool) -> None: ...

    def can_read(self, timeout: float) -> bool: ...

    def read_response(self) -> Any: ...


class Call:
    """A call of a script in one partition. The text goes along only when the server asks for it."""

    __slots__ = ("arguments", "prefixes")

    def __init__(self, prefixes: tuple[Prefix, Prefix], arguments: Sequence[bytes]) -> None:
        self.prefixes = prefixes
        self.arguments = arguments

    def packed(self) -> bytes:
        return self.prefixes[0].command(self.arguments)

    def packed_whole(self) -> bytes:
        return self.prefixes[1].command(self.arguments)


def prefixes(script: Script, namespace: str, partition: int) -> tuple[Prefix, Prefix]:
    by_digest = script.prefix(namespace, partition)
    return by_digest, script.prefix(namespace, partition, whole=True)


class Server:
    """One server, as this process sees it."""

    _idle: list[tuple[Link, float]]  # and since when, the one used last at the end

    def __init__(self, address: Address, timeout_ms: int) -> None:
        self.address = address
        self._timeout_s = timeout_ms / 1000
        self._reset()
        _OPEN.add(self)

    @property
    def location(self) -> str:
        return f"redis {self.address}"

    def run(self, calls: Sequence[Call]) -> list[Reply]:
        """The replies to all calls, which go to the server together."""
        return self._exchange([call.packed() for call in calls], calls)

    def ask(self, commands: Sequence[bytes]) -> list[Reply]:
        """The replies to plain commands."""
        return self._exchange(list(commands), None)

    def connect(self, timeout_s: float) -> Link:
        """A connection that belongs to the caller."""
        connection = _make(self.address, max(timeout_s, 0.001), self._timeout_s)
        connection.connect()
        return connection

    def close(self) -> None:
        """Let go of the connections that are not in use; the next call opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.disconnect()

    # ------------------------------------------------------------------------------- the loop

    def _exchange(self, commands: list[bytes], calls: Sequence[Call] | None) -> list[Reply]:
        started = time.monotonic()
        deadline = started + self._timeout_s
        replies: dict[int, Reply] = {}
        pause_s = _FIRST_PAUSE_S
        cause: Exception | None = None
        while True:
            left = [number for number in range(len(commands)) if number not in replies]
            trouble = self._attempt(commands, left, replies, deadline)
            if trouble is None:
                return [replies[number] for number in range(len(commands))]
            if isinstance(trouble, redis.exceptions.NoScriptError) and calls is not None:
                self.has_forgotten = True
                for number in left:
                    commands[number] = calls[number].packed_whole()
                continue
            if cause is None or not isinstance(trouble, redis.exceptions.TimeoutError):
                cause = trouble  # the last try may only have had too little time
            pause_s = min(pause_s * 2, _MOST_PAUSE_S) * random.uniform(0.5, 1.0)
            if time.monotonic() + pause_s >= deadline:
                raise self._unavailable(cause, time.monotonic() - started) from cause
            time.sleep(pause_s)

    def _attempt(
        self, commands: list[bytes], left: list[int], replies: dict[int, Reply], deadline: float
    ) -> Exception | None:
        """Send what has no reply yet; the trouble that may pass, or None when all is answered."""
        if not self._slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return TimeoutError(f"{MOST_CALLS} other calls of this process are under way")
        connection: Link | None = None
        try:
            connection = self._take(deadline)
            connection.send_packed_command([commands[n] for n in left], check_health=False)
            trouble = self._read(connection, left, replies, deadline)
            if trouble is None or isinstance(trouble, redis.exceptions.NoScriptError):
                self._give_back(connection)
                connection = None  # otherwise a new one may lead to another server
        except (redis.exceptions.RedisError, OSError) as error:
            return self._passing_or_raise(error)
        finally:
            self._slots.release()
            if connection is not None:
                connection.disconnect()  # a reply may be under way, which nobody else must get
        return trouble

    def _read(
        self, connection: Link, left: list[int], replies: dict[int, Reply], deadline: float
    ) -> Exception | None:
        trouble: Exception | None = None
        for number in left:
            self._wait_for_reply(connection, deadline)
            try:
                replies[number] = connection.read_response()
            except redis.exceptions.ResponseError as error:
                trouble = self._passing_or_raise(error)
        return trouble

    def _wait_for_reply(self, connection: Link, deadline: float) -> None:
        """The socket's own patience is that of a whole call; late in a call there is less."""
        left_s = deadline - time.monotonic()
        if left_s < 0.9 * self._timeout_s and not connection.can_read(max(0.0, left_s)):
            raise redis.exceptions.TimeoutError("no reply in time")

    def _passing_or_raise(self, error: Exception) -> Exception:
        """The error itself if it may pass; otherwise it is raised in our words."""
        text = str(error)
        if isinstance(error, redis.exceptions.AuthenticationError):
            if "required" not in text.lower():  # NOAUTH passes: a new connection logs in
                raise EngineError(
                    f"The Redis server at {self.address} refused the login ({text}). "
                    "Check user name and password in the url.",
                    location=self.location,
                ) from error
            return error
        if "certificate verify failed" in text.lower():
            raise EngineError(
                f"The certificate of the Redis server at {self.address} is not to be trusted "
                f"({text}). Use the name that is in it, or name who signed it with ?ca_file=.",
                location=self.location,
            ) from error
        if not isinstance(error, redis.exceptions.ResponseError):
            return error
        if isinstance(error, (*_PASSING, redis.exceptions.NoScriptError)) or text.startswith(
            ("BUSY ", "LOADING ", "MISCONF ")
        ):
            return error
        raise EngineError(
            f"The Redis server at {self.address} refused a command ({text}). Check the rights of "
            "the user in the url; otherwise this is a bug in windlass: run `windlass check`.",
            location=self.location,
        ) from error

    def _unavailable(self, cause: Exception, seconds: float) -> EngineUnavailable:
        return EngineUnavailable(
            f"The Redis server at {self.address} did not answer within {seconds:.1f} s "
            f"({str(cause) or type(cause).__name__}). Check that it runs and can be reached.",
            location=self.location,
            seconds=round(seconds, 3),
        )

    # ---------------------------------------------------------------------------- connections

    def _take(self, deadline: float) -> Link:
        now = time.monotonic()
        with self._lock:
            connection, since = self._idle.pop() if self._idle else (None, now)
        if connection is not None:
            if now - since < _MOST_IDLE_S:
                return connection
            connection.disconnect()
        return self.connect(deadline - now)

    def _give_back(self, connection: Link) -> None:
        with self._lock:
            self._idle.append((connection, time.monotonic()))

    def _reset(self) -> None:
        self.has_forgotten = False  # a script: so it was restarted, or is another server
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MOST_CALLS)
        self._idle = []


def _make(address: Address, connect_s: float, reply_s: float) -> Link:
    """A connection that speaks the old protocol, tries once and raises what goes wrong."""
    common: dict[str, Any] = {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": connect_s,
        "socket_timeout": reply_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if address.path:
        return _driver(UnixDomainSocketConnection, path=address.path, **common)
    network: dict[str, Any] = {"host": address.host, "port": address.port, **common}
    if address.is_encrypted:
        return _driver(
            SSLConnection,
            ssl_cert_reqs="required",
            ssl_check_hostname=True,
            ssl_ca_certs=address.ca_file,
            **network,
        )
    return _driver(Connection, **network)


def _driver(make: Any, **options: Any) -> Link:
    link: Link = make(**options)
    return link


#: Locks may be held by a thread, and sockets be in use, that a forked child does not have.
_OPEN: Final[weakref.WeakSet[Server]] = weakref.WeakSet()


def _forget_in_child() -> None:
    for server in list(_OPEN):
        server._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)

"""Connection pools: the connections of this process to one server. All engine objects for a server
share a pool, except those that have their own.

1. At most `MOST_CALLS` connections are in use at a time, and fewer in worker processes. When all
   connections are busy, callers wait in FIFO order: a caller in a loop does not overtake others.
2. A connection that was idle for long is closed: the network may have dropped it silently. One
   that the server has closed is not used: a call that is sent on it may or may not have arrived.
3. A forked child starts with an empty pool and leaves the sockets of its parent alone.
4. A `Link` moves bytes in pieces, and each piece has the full timeout of a step. A large call
   takes long over a slow link; only a link that stands still is given up.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import hiredis
import msgspec
import redis
from redis.backoff import NoBackoff
from redis.connection import (
    Connection,
    DefaultParser,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.retry import Retry

from windlass.engine.redis.url import RedisAddress
from windlass.engine.wakeup import await_readable

#: The most concurrent calls of one process, unless its engine objects are set to fewer.
MOST_CALLS: Final = 3
#: The shortest timeout of a step, even after the deadline: 0 would mean not to wait at all.
LEAST_S: Final = 0.001
_MOST_IDLE_S: Final = 60.0
#: After this idle time, a connection counts as idle: its caller is in no hurry.
IDLE_AFTER_S: Final = 0.002
#: One step moves at most this many bytes.
PIECE: Final = 65_536
#: A socket buffers at most this many unsent bytes. With a larger buffer, accepted bytes would say
#: nothing about the speed of the link.
_MOST_UNSENT: Final = 2 * PIECE
#: Options that the platform has; the keep-alive values are the driver's own.
_TCP_OPTIONS: Final = {
    getattr(socket, name): value
    for name, value in (
        ("TCP_NOTSENT_LOWAT", _MOST_UNSENT),
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
    )
    if hasattr(socket, name)
}
#: Options of the driver for client details; sending each would cost a round trip.
_INTRODUCTIONS: Final = ("driver_info", "lib_name", "lib_version")
#: Errors of a non-blocking read when no bytes have come.
_NOTHING_CAME: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_driver_error: Final[Callable[[str], Exception]] = cast(Any, DefaultParser).parse_error
#: Error reply of a server before 7.0 when a command in a script fails.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script .*@user_script: \d+: -([A-Z]+ .*)")


def _error_of(text: str) -> Exception:
    """Convert an error reply, of a command or of a script, to the driver's exception."""
    found = _IN_SCRIPT.fullmatch(text)
    return _driver_error(found[1] if found else text)


class Link:
    """An open connection with RESP 2. The driver opens the connection and logs in; then this class
    moves the bytes. Errors keep the driver's classes and texts."""

    __slots__ = ("_driver", "_reader", "_socket", "has_answered", "was_idle")

    def __init__(self, driver: Any, *, has_answered: bool = False) -> None:
        self._driver = driver
        self._socket: socket.socket = driver._sock  # the driver has no public name for it
        self._reader = hiredis.Reader(
            protocolError=redis.exceptions.InvalidResponse, replyError=_error_of
        )
        self.has_answered = has_answered  # whether any reply has come, such as that to the login
        self.was_idle = True  # new, or idle for a moment: its caller is in no hurry

    def fileno(self) -> int:
        """Return the descriptor of the socket; negative once the socket is closed."""
        return self._socket.fileno()

    def has_ended(self) -> bool:
        """Whether the connection was closed, here or by the server. No reply is pending, so nothing
        else can have come but its end."""
        descriptor = self.fileno()
        return descriptor < 0 or bool(await_readable([descriptor], 0))

    def disconnect(self) -> None:
        self._driver.disconnect()

    def allow(self, seconds: float) -> None:
        """Set the timeout of each step."""
        self._socket.settimeout(max(seconds, LEAST_S))

    def send(self, commands: Iterable[bytes], seconds: float, budget: TimeBudget) -> None:
        """Send commands in pieces. `seconds` is the timeout of each piece and of later steps."""
        connected = self._socket
        try:
            connected.settimeout(seconds)
            for command in commands:
                if len(command) <= PIECE:
                    connected.sendall(command)
                    budget.count(len(command))
                    continue
                pieces = memoryview(command)
                for at in range(0, len(command), PIECE):
                    connected.sendall(pieces[at : at + PIECE])
                    budget.note(PIECE)
        except TimeoutError as error:
            raise redis.exceptions.TimeoutError("Timeout writing to socket") from error
        except OSError as error:
            number, text = error.errno or "UNKNOWN", error.strerror or str(error)
            raise redis.exceptions.ConnectionError(
                f"Error {number} while writing to socket. {text}."
            ) from error

    def read(self, budget: TimeBudget) -> Any:
        """Read the next reply; return an error reply as an exception. Bookkeeping happens after the
        bytes have arrived, not before: on a machine with few cores, work of this process delays a
        server on the same machine."""
        reader = self._reader
        if (reply := reader.gets()) is False:
            came = self._receive()
            reader.feed(came)
            budget.count(len(came))
            if (reply := reader.gets()) is False:
                reply = self._read_on(budget)
        if isinstance(reply, redis.exceptions.ConnectionError):
            raise reply  # the server closes the connection, as with too many clients
        return reply

    def _read_on(self, budget: TimeBudget) -> Any:
        """Read the rest of a reply in several pieces. The timeout applies to each whole piece, so
        that a reply which comes byte by byte fails."""
        connected, reader = self._socket, self._reader
        allowed_s = connected.gettimeout() or LEAST_S
        began_at = time.monotonic()
        while (reply := reader.gets()) is False:
            ends_at = max(began_at, budget.moved_at) + allowed_s
            connected.settimeout(max(ends_at - time.monotonic(), LEAST_S))
            came = self._receive()
            reader.feed(came)
            budget.count(len(came))
        connected.settimeout(allowed_s)
        return reply

    def _receive(self) -> bytes:
        try:
            came = self._socket.recv(PIECE)
        except TimeoutError as error:
            raise redis.exceptions.TimeoutError("Timeout reading from socket") from error
        except OSError as error:
            raise redis.exceptions.ConnectionError(
                f"Error while reading from socket: {error.args}"
            ) from error  # unlike the driver, without the address: the caller adds it
        if not came:
            raise redis.exceptions.ConnectionError("Connection closed by server.")
        self.has_answered = True
        return came

    def read_final_error(self, budget: TimeBudget) -> redis.exceptions.RedisError | None:
        """Read the error that a server sent before it closed the connection, if any. Redis sends
        one when a command is too long, and does not read the rest of the command."""
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            self.allow(LEAST_S)
            while not isinstance(reply := self.read(budget), redis.exceptions.RedisError):
                pass  # a reply to an earlier command: skip it
            return reply
        return None

    # -------------------------------------------------------------------------- subscriptions

    def tell(self, command: bytes, seconds: float) -> None:
        """Send a short command without waiting; `take_in` returns the reply later."""
        self._socket.settimeout(seconds)
        self._socket.sendall(command)
        self._socket.settimeout(0)

    def take_in(self) -> Iterator[Any]:
        """Iterate over the replies and messages that have arrived, without waiting."""
        reader = self._reader
        while True:
            while (reply := reader.gets()) is not False:
                yield reply
            try:
                came = self._socket.recv(PIECE)
            except _NOTHING_CAME:
                return
            if not came:
                raise redis.exceptions.ConnectionError("Connection closed by server.")
            reader.feed(came)


class _Acquisition:
    """A caller that waits for a connection."""

    __slots__ = ("granted", "is_granted", "link")

    def __init__(self) -> None:
        self.granted = threading.Lock()  # unlocked once the connection is granted
        self.granted.acquire()
        self.is_granted = False
        self.link: Link | None = None


class Pool:
    """The connections to one server with one login. A signal handler may raise an exception between
    any two steps: the pool then releases a connection that its caller never got. Only an exception
    before the first step of `release` leaks a connection."""

    _free: int  # number of calls that may start; 0 while a caller waits
    _idle: list[tuple[Link, float]]  # with the time of release, the latest last
    _waiting: deque[_Acquisition]  # first come, leftmost

    def __init__(self, address: RedisAddress, most_calls: int = MOST_CALLS) -> None:
        self._address = address
        self._most_calls = most_calls
        self.reset()

    def reset(self) -> None:
        """Forget all connections without closing them: the parent process may use them."""
        self._lock = threading.Lock()
        self.moved_at = 0.0  # when a call last moved a whole piece
        self._free = self._most_calls
        self._idle = []
        self._waiting = deque()

    def acquire(self, timeout_s: float) -> Link | None:
        """Wait until one more call may start; the caller must call `release`. Return an idle open
        connection, or None if the caller has to connect. Raise `TimeoutError` if all connections
        stay busy for that long and no call on them moves a piece."""
        request: _Acquisition | None = None
        link, since, is_begun = None, 0.0, False
        try:
            with self._lock:
                if self._free:
                    if self._idle:
                        link, since = self._idle.pop()
                    self._free -= 1
                    is_begun = True
                else:
                    request = _Acquisition()
                    self._waiting.append(request)
            if request is not None:
                return self._await(request, timeout_s)
            if link is None:
                return None
            idle_s = time.monotonic() - since
            link.was_idle = idle_s > IDLE_AFTER_S
            if idle_s < _MOST_IDLE_S and not (link.was_idle and link.has_ended()):
                return link
            link.disconnect()
        except BaseException:
            if is_begun:
                self.release(None)
            elif request is not None and not self._give_up(request):
                self.release(request.link)
            raise
        return None

    def _await(self, request: _Acquisition, timeout_s: float) -> Link | None:
        left_s = max(0.0, timeout_s)
        while not request.granted.acquire(timeout=left_s) and (
            (left_s := self.moved_at + timeout_s - time.monotonic()) > 0
        ):
            pass  # another call moves bytes slowly: the server is alive
        if self._give_up(request):
            raise TimeoutError(f"all {self._most_calls} connections of this process are busy")
        return request.link

    def _give_up(self, request: _Acquisition) -> bool:
        """Stop waiting; return False if the connection was already granted."""
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
        return not request.is_granted

    def release(self, link: Link | None) -> None:
        """Return a connection, or None for a broken one, and let the next caller start. No reply
        may be pending on the connection."""
        request: _Acquisition | None
        is_ended, request = False, None
        try:
            now = time.monotonic()
            with self._lock:
                if self._waiting:
                    request = self._waiting[0]
                    request.link = link
                    if link is not None:
                        link.was_idle = False
                    del self._waiting[0]
                    request.is_granted = is_ended = True
                    request.granted.release()
                else:
                    self._free += 1
                    is_ended = True
                    if link is not None:
                        self._idle.append((link, now))
        except BaseException:
            if not is_ended:
                self.release(None)
            elif request is not None and request.granted.locked():
                request.granted.release()  # a signal interrupted the step before
            raise

    def connect(self, timeout_s: float) -> Link:
        """Open a connection that belongs to the caller. The connection attempt gets half of the
        time, so that the caller can try again."""
        return _open(self._address, max(timeout_s, LEAST_S))

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link, _ in idle:
            link.disconnect()


class TimeBudget:
    """The time limit for the retries of a call: `ends_at`, extended when an attempt moves more
    bytes than every earlier attempt. A link that breaks each time at the same byte fails."""

    __slots__ = ("_moved", "_pending", "_pool", "_record", "_timeout_s", "ends_at", "moved_at")

    def __init__(self, pool: Pool, ends_at: float, timeout_s: float) -> None:
        self._pool = pool
        self.ends_at = ends_at
        self.moved_at = 0.0  # when the last whole piece moved
        self._timeout_s = timeout_s
        self._moved = self._record = self._pending = 0

    def begin(self) -> None:
        """Start a new attempt."""
        self._moved = self._pending = 0

    def count(self, number: int) -> None:
        """Count moved bytes of one command or reply, or of several small ones together."""
        self._pending += number
        if self._pending >= PIECE:
            self._pending, moved = 0, self._pending
            self.note(moved)

    def note(self, number: int) -> None:
        """Record that a whole piece or more has moved; extend the budget on a new record."""
        self.moved_at = self._pool.moved_at = time.monotonic()
        self._moved += number
        if self._moved > self._record:
            self._record = self._moved
            self.extend()

    def extend(self) -> None:
        """Give the call its full timeout from now on."""
        self.ends_at = max(self.ends_at, time.monotonic() + self._timeout_s)


def _open(address: RedisAddress, timeout_s: float) -> Link:
    """Connect once, without retries."""
    options: dict[str, Any] = {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": timeout_s / 2,
        "socket_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    kind: Any = Connection
    if address.path:
        kind = UnixDomainSocketConnection
        options.update(path=address.path)
    else:
        options.update(host=address.host, port=address.port)
        # The driver passes these options to the socket unchanged.
        options.update(socket_keepalive=True, socket_keepalive_options=_TCP_OPTIONS)
    if address.is_encrypted:
        kind = SSLConnection
        _require_files(address)
        options.update(ssl_cert_reqs="required", ssl_check_hostname=True)
        options.update(ssl_ca_certs=address.ca_file)
        options.update(ssl_certfile=address.cert_file, ssl_keyfile=address.key_file)
        options.update(ssl_password="")  # or OpenSSL asks at the terminal for that of the key
    driver = kind(**options)
    for name in _INTRODUCTIONS:
        setattr(driver, name, None)
    driver.connect()
    logs_in = bool(address.username or address.password or address.database)
    return Link(driver, has_answered=logs_in)


def _require_files(address: RedisAddress) -> None:
    """Raise the `OSError` of a file that cannot be read. The driver would not name the file."""
    for file in address.files.values():
        with open(file, "rb"):
            pass


_POOLS: Final[weakref.WeakValueDictionary[RedisAddress, Pool]] = weakref.WeakValueDictionary()
_OWN_POOLS: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()
_making = threading.Lock()


def pool_of(address: RedisAddress, most_calls: int = MOST_CALLS) -> Pool:
    """Return the pool of this process for a server, shared by all namespaces on it. The first
    caller decides the number of concurrent calls."""
    place = _place_of(address)
    with _making:
        pool = _POOLS.get(place)
        if pool is None:
            pool = _POOLS[place] = Pool(place, most_calls)
    return pool


def own_pool(address: RedisAddress) -> Pool:
    """Make a pool that belongs to the caller and does not wait for calls of other engine objects.
    The pool opens as many connections as its callers use at a time."""
    pool = Pool(_place_of(address))
    with _making:
        _OWN_POOLS.add(pool)
    return pool


def _place_of(address: RedisAddress) -> RedisAddress:
    return msgspec.structs.replace(address, namespace="", partitions=1, allow_eviction=False)


def _reset_in_child() -> None:
    """Replace locks that a thread of the parent may hold, and forget the parent's sockets."""
    global _making  # noqa: PLW0603  # the lock is a property of the process
    _making = threading.Lock()
    for pool in [*_POOLS.values(), *_OWN_POOLS]:
        pool.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)

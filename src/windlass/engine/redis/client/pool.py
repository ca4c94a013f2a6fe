"""The connections of this process to one server, shared by all engine objects that use it, but for
those that have a pool of their own.

1. At most `MOST_CALLS` are in use at a time, and fewer in the processes of a worker. When all
   connections are busy, callers wait in the order of asking: one that calls again and again does
   not pass those that wait.
2. One that was not used for long is closed: it may have been cut on the way without a word.
3. A forked child begins with none: sockets of its parent are left alone.
4. `send` and `read` move bytes in pieces, and each piece has the whole time of a step: what is
   large takes long over a slow link, and only one that stands still is given up.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

import hiredis
import msgspec
import redis
from redis._parsers import BaseParser
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from windlass.engine.redis.url import Address

#: So many calls of one process are under way at a time, unless its engine objects want fewer.
MOST_CALLS: Final = 3
#: Any step is given so much time, however late it is: none at all would mean not to wait.
LEAST_S: Final = 0.001
_MOST_IDLE_S: Final = 60.0
#: A connection that was not used for so long is not one of a caller in a hurry.
RESTED_S: Final = 0.002
#: At most so many bytes are moved by one step.
PIECE: Final = 65_536
#: A socket takes no more than so many bytes beyond those that are under way: what it has taken
#: says nothing about how fast the link is.
_MOST_UNSENT: Final = 2 * PIECE
#: For all platforms that know them; those about signs of life are the driver's own.
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
#: What the driver would tell the server of itself, at the cost of a round trip each.
_INTRODUCTIONS: Final = ("driver_info", "lib_name", "lib_version")


_driver_error: Final[Callable[[str], Exception]] = cast(Any, BaseParser).parse_error
#: How a server before 7.0 tells of an error that a command in a script has met.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script .*@user_script: \d+: -([A-Z]+ .*)")


class Link(Protocol):
    """What is used of the driver's connections, which have no types of their own, and what each of
    them is given here."""

    _sock: socket.socket | None
    reader: hiredis.Reader
    has_rested: bool  # it is new, or was not used for a moment: its caller is in no hurry

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def send_packed_command(self, command: Sequence[bytes], check_health: bool) -> None: ...

    def can_read(self, timeout: float) -> bool: ...

    def read_response(self) -> Any: ...


class _Turn:
    """One that is waited for."""

    __slots__ = ("has_come", "is_given", "link")

    def __init__(self) -> None:
        self.has_come = threading.Lock()  # can be taken from then on
        self.has_come.acquire()
        self.is_given = False
        self.link: Link | None = None


class Pool:
    """The connections to one server with one login. An exception that a handler of a signal raises
    may come between any two steps: a turn that its caller does not know of is ended here. Nothing
    can be done about one that comes before the first step of `end_turn`."""

    _free: int  # so many calls may begin; while somebody waits, none
    _idle: list[tuple[Link, float]]  # and since when, the one used last at the end
    _awaited: deque[_Turn]  # the one asked for first at the left

    def __init__(self, address: Address, most_calls: int = MOST_CALLS) -> None:
        self._address = address
        self._most_calls = most_calls
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all connections. Another process may use them: they are not closed."""
        self._lock = threading.Lock()
        self.moved_at = 0.0  # when a call has last moved a whole piece
        self._free = self._most_calls
        self._idle = []
        self._awaited = deque()

    def begin_turn(self, timeout_s: float) -> Link | None:
        """Wait for a turn, which has to be ended. With it comes a connection that is open and has
        nothing under way, if there is one. Raises `TimeoutError` when there was no turn in time,
        and no call under way has moved a piece for as long."""
        turn: _Turn | None = None
        link, since, is_begun = None, 0.0, False
        try:
            with self._lock:
                if self._free:
                    if self._idle:
                        link, since = self._idle.pop()
                    self._free -= 1
                    is_begun = True
                else:
                    turn = _Turn()
                    self._awaited.append(turn)
            if turn is not None:
                return self._await(turn, timeout_s)
            if link is None:
                return None
            idle_s = time.monotonic() - since
            if idle_s < _MOST_IDLE_S:
                link.has_rested = idle_s > RESTED_S
                return link
            link.disconnect()
        except BaseException:
            if is_begun:
                self.end_turn(None)
            elif turn is not None and not self._give_up(turn):
                self.end_turn(turn.link)
            raise
        return None

    def _await(self, turn: _Turn, timeout_s: float) -> Link | None:
        left_s = max(0.0, timeout_s)
        while not turn.has_come.acquire(timeout=left_s) and (
            (left_s := self.moved_at + timeout_s - time.monotonic()) > 0
        ):
            pass  # a large call is slow, and the server is there
        if self._give_up(turn):
            raise TimeoutError(f"{self._most_calls} other calls of this process are under way")
        return turn.link

    def _give_up(self, turn: _Turn) -> bool:
        """Wait for it no longer. False if it has come."""
        with self._lock:
            if turn in self._awaited:
                self._awaited.remove(turn)
        return not turn.is_given

    def end_turn(self, link: Link | None) -> None:
        """Let the next one begin, with this connection, if there is one to be kept: there must be
        no reply under way on it, nor may there ever be."""
        is_ended = False
        try:
            now = time.monotonic()
            with self._lock:
                if self._awaited:
                    turn = self._awaited[0]
                    turn.link = link
                    if link is not None:
                        link.has_rested = False
                    del self._awaited[0]
                    turn.is_given = is_ended = True
                    turn.has_come.release()
                else:
                    self._free += 1
                    is_ended = True
                    if link is not None:
                        self._idle.append((link, now))
        except BaseException:
            if not is_ended:
                self.end_turn(None)
            raise

    def connect(self, timeout_s: float) -> Link:
        """A new one, which belongs to the caller. Half of the time may be spent on being let in:
        whoever gets no answer should rather knock again."""
        link = _make(self._address, max(timeout_s, LEAST_S))
        link.connect()
        link.reader = new_reader()
        link.has_rested = True
        return link

    def close(self) -> None:
        """Let go of those that are not in use; the next call opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link, _ in idle:
            link.disconnect()


def _error_of(text: str) -> Exception:
    """The driver's error for what the server says, be it of a command or of one in a script."""
    found = _IN_SCRIPT.fullmatch(text)
    return _driver_error(found[1] if found else text)


def new_reader() -> hiredis.Reader:
    return hiredis.Reader(protocolError=redis.exceptions.InvalidResponse, replyError=_error_of)


class Patience:
    """How long a call is tried: until `ends_at`, and longer while more of it gets through than ever
    before, so that a link which breaks each time at the same place is given up."""

    __slots__ = ("_moved", "_pending", "_pool", "_record", "_timeout_s", "ends_at", "moved_at")

    def __init__(self, pool: Pool, ends_at: float, timeout_s: float) -> None:
        self._pool = pool
        self.ends_at = ends_at
        self.moved_at = 0.0  # when the last whole piece has moved
        self._timeout_s = timeout_s
        self._moved = self._record = self._pending = 0

    def begin(self) -> None:
        """Try once more."""
        self._moved = self._pending = 0

    def count(self, number: int) -> None:
        """So many bytes have moved, of one command or reply or of several small ones."""
        self._pending += number
        if self._pending >= PIECE:
            self._pending, moved = 0, self._pending
            self.note(moved)

    def note(self, number: int) -> None:
        """So many bytes have moved, a whole piece or more."""
        self.moved_at = self._pool.moved_at = time.monotonic()
        self._moved += number
        if self._moved > self._record:
            self._record = self._moved
            self.extend()

    def extend(self) -> None:
        """Give the call its whole time from now on."""
        self.ends_at = max(self.ends_at, time.monotonic() + self._timeout_s)


def send(link: Link, commands: Iterable[bytes], seconds: float, patience: Patience) -> None:
    """Send each piece within so many seconds, which each later step may take as well. The driver
    does the same in more calls; what goes wrong is raised in its words."""
    connected = link._sock
    if connected is None:
        raise redis.exceptions.ConnectionError("The connection is closed.")
    try:
        connected.settimeout(seconds)
        for command in commands:
            if len(command) <= PIECE:
                connected.sendall(command)
                patience.count(len(command))
                continue
            pieces = memoryview(command)
            for at in range(0, len(command), PIECE):
                connected.sendall(pieces[at : at + PIECE])
                patience.note(PIECE)
    except TimeoutError as error:
        raise redis.exceptions.TimeoutError("Timeout writing to socket") from error
    except OSError as error:
        number, text = error.errno or "UNKNOWN", error.strerror or str(error)
        raise redis.exceptions.ConnectionError(
            f"Error {number} while writing to socket. {text}."
        ) from error


def read(link: Link, patience: Patience) -> Any:
    """The next reply; one that is an error is given as such. The driver does the same in more
    calls, on the way to the wait for it as well: until then the server may not get a processor."""
    connected, reader = link._sock, link.reader
    if connected is None:
        raise redis.exceptions.ConnectionError("The connection is closed.")
    if (reply := reader.gets()) is False:
        came = _receive(connected)
        reader.feed(came)
        patience.count(len(came))
        if (reply := reader.gets()) is False:
            reply = _read_on(connected, reader, patience)
    if isinstance(reply, redis.exceptions.ConnectionError):
        raise reply  # it says no more than that
    return reply


def _read_on(connected: socket.socket, reader: hiredis.Reader, patience: Patience) -> Any:
    """The rest of a reply that comes in several pieces. Each whole piece has the time of a step."""
    allowed_s = connected.gettimeout() or LEAST_S
    began_at = time.monotonic()
    while (reply := reader.gets()) is False:
        ends_at = max(began_at, patience.moved_at) + allowed_s
        connected.settimeout(max(ends_at - time.monotonic(), LEAST_S))
        came = _receive(connected)
        reader.feed(came)
        patience.count(len(came))
    connected.settimeout(allowed_s)
    return reply


def _receive(connected: socket.socket) -> bytes:
    try:
        came = connected.recv(PIECE)
    except TimeoutError as error:
        raise redis.exceptions.TimeoutError("Timeout reading from socket") from error
    except OSError as error:
        raise redis.exceptions.ConnectionError(
            f"Error while reading from socket: {error.args}"
        ) from error  # the driver names the address, as whoever tells of this does
    if not came:
        raise redis.exceptions.ConnectionError("Connection closed by server.")
    return came


def last_words(link: Link, patience: Patience) -> redis.exceptions.RedisError | None:
    """The error that a server has sent before it closed a connection, if there is one: a command
    that it finds too long it does not read to its end."""
    allow(link, LEAST_S)
    with contextlib.suppress(redis.exceptions.RedisError, OSError):
        while not isinstance(reply := read(link, patience), redis.exceptions.RedisError):
            pass  # what it had to say of commands before
        return reply
    return None


def allow(link: Link, seconds: float) -> float:
    """How long each step on this connection may take from now on."""
    seconds = max(seconds, LEAST_S)
    if link._sock is not None and link._sock.gettimeout() != seconds:
        link._sock.settimeout(seconds)
    return seconds


def _make(address: Address, timeout_s: float) -> Link:
    """A connection that speaks the old protocol, tries once and raises what goes wrong."""
    common: dict[str, Any] = {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": timeout_s / 2,
        "socket_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if address.path:
        return _driver(UnixDomainSocketConnection, path=address.path, **common)
    network: dict[str, Any] = {"host": address.host, "port": address.port, **common}
    # The driver passes these options to the socket, whatever they are about.
    network.update(socket_keepalive=True, socket_keepalive_options=_TCP_OPTIONS)
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
    for name in _INTRODUCTIONS:
        setattr(link, name, None)
    return link


_POOLS: Final[weakref.WeakValueDictionary[Address, Pool]] = weakref.WeakValueDictionary()
_OWN_POOLS: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()
_making = threading.Lock()


def pool_of(address: Address, most_calls: int = MOST_CALLS) -> Pool:
    """The pool of this process for a server, whatever is ours on it; the first caller decides how
    many calls may be under way at a time."""
    place = _place_of(address)
    with _making:
        pool = _POOLS.get(place)
        if pool is None:
            pool = _POOLS[place] = Pool(place, most_calls)
    return pool


def own_pool(address: Address) -> Pool:
    """A pool that belongs to the caller: its turns do not wait for those of other engine objects.
    It has as many connections as its callers use at a time."""
    pool = Pool(_place_of(address))
    with _making:
        _OWN_POOLS.add(pool)
    return pool


def _place_of(address: Address) -> Address:
    return msgspec.structs.replace(address, namespace="", partitions=1, allow_eviction=False)


def _begin_anew_in_child() -> None:
    """Locks may be held by a thread, and sockets be in use, that a forked child does not have."""
    global _making  # noqa: PLW0603  # the lock is a property of the process
    _making = threading.Lock()
    for pool in [*_POOLS.values(), *_OWN_POOLS]:
        pool.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)

"""A TCP proxy for tests: it injects network faults into the connections to any server.

It runs in its own thread, on plain sockets, and does not parse the protocol, so it serves every
engine. Other threads can call:

1. `refuse`, `freeze`, `vanish`: connections are refused, are accepted without passing any byte, or
   get no answer to their SYN; `heal` ends that.
2. `delay`: every byte arrives later; `drip`: replies arrive in pieces; `throttle`: a link with a
   limit of bytes per second in each direction, shared by all connections.
3. `reset`: all living connections end, for the client with an RST; `wear_out`: each one ends so
   after a number of bytes.
4. `cut`: a given number of bytes passes in one direction, over all connections; the next byte
   ends its connection, or holds it. `swallow_reply` is a cut before the first byte of the next
   reply: then the server has executed the request, and the client does not know.

Every method returns when it is done.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from types import TracebackType
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65536
#: The largest number of connections that wait to be accepted.
_BACKLOG: Final = 128
_PATIENCE_S: Final = 5.0
#: A throttled link reads at most this far ahead of its speed, so that its clients notice it.
_LINK_BUFFER: Final = 65536
#: A socket that is closed with this option sends an RST.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Side(Enum):
    REQUESTS = "requests"
    REPLIES = "replies"


class Then(Enum):
    """The effect of a cut on its connection."""

    RESET = "reset"
    HOLD = "hold"  # it stays open, and no byte passes in either direction
    FREEZE = "freeze"  # no byte passes on any connection until the proxy is healed


class Proxy:
    """A server at `port` that passes everything on to another one."""

    def __init__(self, target_port: int, target_host: str = _HOST) -> None:
        self.passed = dict.fromkeys(Side, 0)  # received bytes in total
        self.round_trips = 0  # replies that followed requests on the same connection
        self.accepted = 0
        self.cuts = 0  # the number of completed cuts
        self.target_port = target_port
        self._target = (target_host, target_port)
        self._pairs: list[_Pair] = []
        self._is_frozen = False
        self._is_listening = False
        self._delay_s = 0.0
        self._drip: tuple[int, float] | None = None
        self._bytes_per_s = 0.0  # 0 is without a limit
        self._free_at = dict.fromkeys(Side, 0.0)  # when the throttled link can take more
        self._most_bytes = 0  # of the requests of one connection; 0 is without a limit
        self._cut: _Cut | None = None
        self._knocking: list[socket.socket] = []
        self._actions: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._is_closed = False
        self._selector = DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector.register(self._wake_out, EVENT_READ, self._run_actions)
        self._listener = _bound(0)
        self.port: int = self._listener.getsockname()[1]
        self._listen()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------ what can be done

    def heal(self) -> None:
        """Pass everything on again, starting with frozen bytes. Held connections stay held."""
        self._do(self._heal)

    def freeze(self) -> None:
        """Accept connections, and let no byte through."""
        self._do(self._freeze)

    def refuse(self) -> None:
        """Refuse new connections, and reset the living ones."""
        self._do(self._refuse)

    def vanish(self) -> None:
        """Act like a host behind a broken cable: neither new nor open connections get an answer."""
        self._do(self._vanish)

    def reset(self) -> None:
        """End all living connections with an RST."""
        self._do(self._reset_all)

    def delay(self, seconds: float) -> None:
        """Delay all bytes from now on by this time."""
        self._do(lambda: setattr(self, "_delay_s", seconds))

    def drip(self, piece_bytes: int, every_s: float) -> None:
        """Let replies arrive in pieces of this size, with this pause between two pieces."""
        self._do(lambda: setattr(self, "_drip", (piece_bytes, every_s)))

    def throttle(self, bytes_per_s: float) -> None:
        """Pass on at most this many bytes per second in each direction, for all connections
        together. Later connections have small buffers, as on a real link."""
        self._do(lambda: self._throttle(bytes_per_s))

    def wear_out(self, after_bytes: int) -> None:
        """End each connection with an RST after this many bytes of requests."""
        self._do(lambda: setattr(self, "_most_bytes", after_bytes))

    def cut(self, side: Side, after_bytes: int, then: Then = Then.RESET) -> None:
        """After this many bytes in one direction, let the next byte end its connection."""
        self._do(lambda: setattr(self, "_cut", _Cut(side, after_bytes, then)))

    def swallow_reply(self, then: Then = Then.RESET) -> None:
        """Pass the next request on, and drop the answer to it."""
        self.cut(Side.REPLIES, 0, then)

    @property
    def living(self) -> int:
        """The number of open connections."""
        return len(self._pairs)

    def close(self) -> None:
        self._do(lambda: setattr(self, "_is_closed", True))
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --------------------------------------------------- from here on all is in the own thread

    def _do(self, action: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._actions.append((action, done))
        self._wake_in.send(b"1")
        done.result(_PATIENCE_S)

    def _run_actions(self, _mask: int) -> None:
        self._wake_out.recv(_CHUNK)
        while self._actions:
            action, done = self._actions.popleft()
            try:
                action()
            except OSError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _run(self) -> None:
        while not self._is_closed:
            for key, mask in self._selector.select(self._next_due_s()):
                key.data(mask)
            for pair in list(self._pairs):
                self._send(pair)
        self._reset_all()
        self._close_listener()
        self._wake_in.close()
        self._wake_out.close()
        self._selector.close()

    # ----------------------------------------------------------------------------- the faults

    def _heal(self) -> None:
        self._is_frozen, self._delay_s, self._drip, self._cut = False, 0.0, None, None
        self._bytes_per_s, self._most_bytes = 0.0, 0
        self._open_listener()
        for pair in self._pairs:
            self._watch(pair)

    def _throttle(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LINK_BUFFER)

    def _freeze(self) -> None:
        self._is_frozen = True
        self._open_listener()
        for pair in self._pairs:
            self._watch(pair)

    def _refuse(self) -> None:
        self._reset_all()
        self._close_listener()
        self._listener = _bound(self.port)  # bound without listening: the port refuses connections

    def _vanish(self) -> None:
        """Fill the queue of the listener: the system then drops new connections unanswered."""
        self._freeze()
        self._close_listener()
        self._listener = _bound(self.port)
        self._listener.listen(0)
        for _ in range(3):
            knocking = socket.socket()
            knocking.setblocking(False)
            knocking.connect_ex((_HOST, self.port))
            self._knocking.append(knocking)

    def _reset_all(self) -> None:
        for pair in list(self._pairs):
            self._end(pair, with_reset=True)

    # ------------------------------------------------------------------------------ connections

    def _open_listener(self) -> None:
        if not self._is_listening:
            self._close_listener()
            self._listener = _bound(self.port)
            self._listen()

    def _listen(self) -> None:
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, EVENT_READ, self._accept)
        self._is_listening = True

    def _close_listener(self) -> None:
        if self._is_listening:
            self._selector.unregister(self._listener)
        self._is_listening = False
        self._listener.close()
        for knocking in self._knocking:
            knocking.close()
        self._knocking.clear()

    def _accept(self, _mask: int) -> None:
        try:
            client = self._listener.accept()[0]
        except OSError:
            return  # the client has closed it already
        self.accepted += 1
        try:
            server = socket.create_connection(self._target, timeout=_PATIENCE_S)
        except OSError:
            _close(client, with_reset=True)  # no server to pass anything on to
            return
        pair = _Pair(client, server)
        self._pairs.append(pair)
        self._watch(pair)

    def _watch(self, pair: _Pair) -> None:
        """Register the events that the pair waits for."""
        for end in pair.ends:
            mask = 0
            if not self._is_frozen and not pair.is_held:
                reading, writing = pair.flow_from(end), pair.flow_to(end)
                is_busy = bool(self._bytes_per_s and reading.pending)
                mask |= 0 if reading.is_ended or is_busy else EVENT_READ
                mask |= EVENT_WRITE if writing.is_blocked else 0
            self._select(pair, end, mask)

    def _select(self, pair: _Pair, end: socket.socket, mask: int) -> None:
        is_known = end in pair.watched
        if mask and is_known:
            self._selector.modify(end, mask, lambda given: self._serve(pair, end, given))
        elif mask:
            self._selector.register(end, mask, lambda given: self._serve(pair, end, given))
            pair.watched.add(end)
        elif is_known:
            self._selector.unregister(end)
            pair.watched.discard(end)

    def _serve(self, pair: _Pair, end: socket.socket, mask: int) -> None:
        if mask & EVENT_WRITE:
            pair.flow_to(end).is_blocked = False
        if mask & EVENT_READ and pair in self._pairs:
            self._receive(pair, pair.flow_from(end))

    def _receive(self, pair: _Pair, flow: _Flow) -> None:
        try:
            data = flow.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._end(pair, with_reset=True)
            return
        self.passed[flow.side] += len(data)
        self.round_trips += pair.is_asking and flow.side is Side.REPLIES and bool(data)
        pair.is_asking = flow.side is Side.REQUESTS
        flow.passed += len(data)
        if flow.side is Side.REQUESTS and 0 < self._most_bytes < flow.passed:
            self._end(pair, with_reset=True)
        elif not data:
            flow.is_ended = True
            self._watch(pair)
        elif (cut := self._cut) is not None and cut.side is flow.side:
            self._receive_before_cut(pair, flow, data, cut)
        elif self._drip is not None and flow.side is Side.REPLIES:
            flow.drip(data, *self._drip)
        elif self._bytes_per_s:
            begins_at = max(time.monotonic(), self._free_at[flow.side])
            due = self._free_at[flow.side] = begins_at + len(data) / self._bytes_per_s
            flow.pending.append((due, data))
            self._watch(pair)  # read no more until these bytes have passed
        else:
            flow.pending.append((time.monotonic() + self._delay_s, data))

    def _receive_before_cut(self, pair: _Pair, flow: _Flow, data: bytes, cut: _Cut) -> None:
        flow.pending.append((0.0, data[: cut.left]))
        if len(data) <= cut.left:
            cut.left -= len(data)
            return
        self._cut = None
        self._send(pair)
        self.cuts += 1
        if cut.then is Then.RESET:
            self._end(pair, with_reset=True)
        elif cut.then is Then.HOLD:
            pair.is_held = True
            self._watch(pair)
        else:
            flow.pending.append((0.0, data[cut.left :]))
            self._freeze()

    # -------------------------------------------------------------------------------- passing on

    def _next_due_s(self) -> float | None:
        if self._is_frozen:
            return None
        flows = (flow for pair in self._pairs for flow in pair.flows)
        dues = [flow.pending[0][0] for flow in flows if flow.pending and not flow.is_blocked]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _send(self, pair: _Pair) -> None:
        """Pass on the due bytes, then the end of the connection."""
        if self._is_frozen or pair.is_held or pair not in self._pairs:
            return
        try:
            for flow in pair.flows:
                flow.send(time.monotonic())
        except OSError:
            self._end(pair, with_reset=True)
            return
        if all(flow.is_closed for flow in pair.flows):
            self._end(pair, with_reset=False)
        elif self._bytes_per_s or any(flow.is_blocked for flow in pair.flows):
            self._watch(pair)

    def _end(self, pair: _Pair, *, with_reset: bool) -> None:
        """End a connection. The server gets a normal end, after all bytes that were passed on."""
        self._pairs.remove(pair)
        for end in pair.ends:
            self._select(pair, end, 0)
        client, server = pair.ends
        _close(client, with_reset=with_reset)
        server.close()


class _Cut:
    def __init__(self, side: Side, left: int, then: Then) -> None:
        self.side = side
        self.left = left  # bytes that may pass before
        self.then = then


class _Flow:
    """One direction of a connection."""

    def __init__(self, side: Side, source: socket.socket, sink: socket.socket) -> None:
        self.side = side
        self.source = source
        self.sink = sink
        self.pending: deque[tuple[float, bytes]] = deque()  # when each is due
        self.passed = 0  # received bytes
        self.is_ended = False  # the source has closed its side
        self.is_closed = False  # the close was passed on to the sink
        self.is_blocked = False

    def drip(self, data: bytes, piece_bytes: int, every_s: float) -> None:
        due = self.pending[-1][0] if self.pending else time.monotonic()
        for at in range(0, len(data), piece_bytes):
            due += every_s
            self.pending.append((due, data[at : at + piece_bytes]))

    def send(self, now: float) -> None:
        while self.pending and self.pending[0][0] <= now and not self.is_blocked:
            due, data = self.pending.popleft()
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                sent, self.is_blocked = 0, True
            if sent < len(data):
                self.pending.appendleft((due, data[sent:]))
        if self.is_ended and not self.pending and not self.is_closed:
            self.is_closed = True
            self.sink.shutdown(socket.SHUT_WR)


class _Pair:
    """The connection of a client, and the proxy's connection to the server for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        self.flows = (_Flow(Side.REQUESTS, client, server), _Flow(Side.REPLIES, server, client))
        self.watched: set[socket.socket] = set()
        self.is_held = False
        self.is_asking = False  # requests have passed since the last reply
        for end in self.ends:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def flow_from(self, end: socket.socket) -> _Flow:
        return self.flows[self.ends.index(end)]

    def flow_to(self, end: socket.socket) -> _Flow:
        return self.flows[1 - self.ends.index(end)]


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((_HOST, port))
    return bound


def _close(end: socket.socket, *, with_reset: bool) -> None:
    if with_reset:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    end.close()

"""Run the API as a server: `windlass serve`.

1. `Address` is where to listen. Other addresses than those of this machine need access tokens or a
   proxy that authenticates, and the host names under which they are served.
2. `run_server` serves until a signal. A first SIGTERM or SIGINT ends long polls and streams at
   once, lets other requests end, and exits; a second one exits at once.
3. `_Protocol` closes connections on which a request does not arrive in time, and answers bytes that
   are not HTTP with a problem document.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from types import FrameType
from typing import Any, Final

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from windlass.http.access import is_loopback
from windlass.http.access_log import log
from windlass.http.api import WindlassApi
from windlass.http.problems import MEDIA_TYPE, Problem, ProblemType

#: The head of each request must arrive within this time, in seconds.
HEAD_TIMEOUT_S: Final = 20.0
#: How long a client may take to read the answer to bytes that are not HTTP, in seconds.
LINGER_S: Final = 2.0
#: Idle connections are closed after this time, in seconds. Longer than the longest poll.
KEEP_ALIVE_S: Final = 30
#: How long requests may take to end after a signal, in seconds.
GRACE_S: Final = 10
#: The most connections at a time; others are answered 503.
MAX_CONNECTIONS: Final = 5_000


class Address(msgspec.Struct, frozen=True):
    """Where to listen."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)

    def bind(self) -> socket.socket:
        """Open the listening socket. An address in use raises OSError here, before anything
        starts."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # With the protocol named, asyncio sends answers at once (TCP_NODELAY).
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self.host, self.port))
        except BaseException:
            listening.close()
            raise
        return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def make_server(api: WindlassApi) -> uvicorn.Server:
    """Make the server of an API."""
    config = uvicorn.Config(
        api,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # only the peer of a connection decides about trust
        server_header=False,
        date_header=True,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=64 * 1024,
    )
    return _Server(config, api)


def run_server(api: WindlassApi, listening: socket.socket) -> None:
    """Serve until a signal."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # our own lines say the same
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)  # uvicorn raises the signal again when it has stopped
    make_server(api).run(sockets=[listening])


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """Do nothing: the server has already stopped because of this signal."""


class _Server(uvicorn.Server):
    """A server that ends long polls at the first signal. Otherwise uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, api: WindlassApi) -> None:
        super().__init__(config)
        self._api = api
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        log.info("stopping: got %s", signal.Signals(sig).name)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._api.drain)
        super().handle_exit(sig, frame)


class _Protocol(H11Protocol):
    """A connection on which the head of each request must arrive in time. Between requests a
    connection may be idle, for `KEEP_ALIVE_S`."""

    _deadline: asyncio.TimerHandle | None = None
    _is_lingering = False  # the answer was sent; what the client still sends is dropped

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with a problem document. A connection that already has an
        answer is only closed."""
        if self.conn.our_state is h11.SEND_RESPONSE or self.conn.our_state is h11.IDLE:
            document = Problem(ProblemType.BAD_REQUEST, msg).document
            headers = [(b"content-type", MEDIA_TYPE.encode()), (b"connection", b"close")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=msgspec.json.encode(document)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close after the client has read the answer. Closed at once, with bytes of the client
        unread, the connection is reset and the answer is lost."""
        self._stop_deadline()
        self._is_lingering = True
        self.transport.write_eof()
        self._deadline = self.loop.call_later(LINGER_S, self.transport.close)

    def data_received(self, data: bytes) -> None:
        """Read. What arrives while no request is served is a part of the next head, or of a body
        that was not read: both have a deadline."""
        if self._is_lingering:
            return
        super().data_received(data)
        if self._is_serving:
            self._stop_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._expire)

    @property
    def _is_serving(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _expire(self) -> None:
        self._deadline = None
        if not self._is_serving and not self.transport.is_closing():
            self.transport.close()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

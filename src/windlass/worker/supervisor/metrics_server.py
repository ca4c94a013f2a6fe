"""The metrics of a worker over HTTP, in threads of the supervisor.

1. The constructor opens the port, so that a port in use is an error before any child starts.
2. `GET /metrics` answers in the format that the Accept header asks for. Other paths and methods are
   refused. A client that does not send its request in time is dropped, and so is every further
   one while there are many: no client can take the threads or the memory of the supervisor.
3. The server ends with the worker.
"""

from __future__ import annotations

import socket
import socketserver
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from logging import getLogger
from threading import BoundedSemaphore, Thread, Timer
from types import TracebackType
from typing import Any, Final

from windlass.telemetry.exposition import render
from windlass.telemetry.metric_table import Family
from windlass.worker.logs.events import LogEvent
from windlass.worker.options import read_address

log = getLogger("windlass.worker")

PATH: Final = "/metrics"
#: A request must arrive, and its answer leave, within this time, in seconds.
TIMEOUT_S: Final = 10.0
#: The most requests at a time. Further ones wait.
MOST_REQUESTS: Final = 4
#: The most connections at a time. Further ones are closed at once.
MOST_CONNECTIONS: Final = 16


class MetricsServer(AbstractContextManager[str]):
    """Serve metrics during a with block, at the url that it returns. Raises OSError if the address
    cannot be used."""

    def __init__(self, address: str, collect: Callable[[], Iterable[Family]]) -> None:
        host, port = read_address(address)
        self._server = _ThreadedServer(host, port, collect)
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        host = str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    def __enter__(self) -> str:
        self._thread.start()
        return self.url

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _ThreadedServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Not `http.server.HTTPServer`: that resolves the name of this machine, perhaps slowly."""

    allow_reuse_address = True  # a worker starts again on the port that it has just left
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, collect: Callable[[], Iterable[Family]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.collect = collect
        self.room = BoundedSemaphore(MOST_REQUESTS)
        self._connections = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # a client that left
            log.error(LogEvent.METRICS_FAILED, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """One request. The connection is closed after the answer."""

    server: _ThreadedServer
    server_version = "windlass"
    sys_version = ""
    timeout = TIMEOUT_S

    def setup(self) -> None:
        super().setup()
        # The limit of a socket is for one operation: a client that sends byte by byte has none.
        self._deadline = Timer(TIMEOUT_S, self._cut_off)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def _cut_off(self) -> None:
        with suppress(OSError):  # closed meanwhile
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"The metrics are at {PATH}")
            return
        with self.server.room:
            media_type, text = render(self.server.collect(), self.headers.get("Accept", ""))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes are frequent, and tell nothing."""

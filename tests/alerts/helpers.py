"""What tests of alerts share: an app on an engine, an incident, and a receiver of webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any

from tests.app.hand import bury_jobs
from windlass import Windlass


def take_number(number: int) -> None:
    """A task."""


def bury(app: Windlass, number: int = 1) -> list[str]:
    """Make this many dead letters."""
    return bury_jobs(app, "number", number)


class Receiver:
    """A receiver of webhooks. It answers with `statuses`, in turn, the last one again and
    again; it does not answer while `is_open` is not set."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses or (200,))
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.is_open = Event()
        self.is_open.set()
        self.arrived = Condition()
        self.url = ""

    def states(self) -> list[str]:
        return [f"{body['kind']} {body['state']}" for body in self.bodies]

    def await_bodies(self, number: int, seconds: float = 20.0) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.bodies) >= number, seconds), self.bodies

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self.arrived:
            self.paths.append(path)
            self.headers.append(headers)
            self.bodies.append(json.loads(body))
            self.arrived.notify_all()
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.is_open.wait()
        return status


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(*statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        receiver.is_open.set()
        server.shutdown()
        server.server_close()
        thread.join()

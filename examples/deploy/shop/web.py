"""The side that enqueues, with the standard library only: put any web framework in its place.

POST /orders/<order>?cents=1250    202 and the id of the job
GET  /jobs/<id>                    200 and its state
GET  /healthz                      200
"""

from __future__ import annotations

import json
import os
import signal
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import FrameType
from urllib.parse import parse_qs, urlsplit

from shop.tasks import app, charge
from windlass import EngineUnavailable, JobNotFound


class Shop(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        order = parts.path.removeprefix("/orders/")
        cents = parse_qs(parts.query).get("cents", [""])[0]
        if order == parts.path or not order or not cents.isdecimal():
            self._answer(HTTPStatus.NOT_FOUND, {"expected": "POST /orders/<order>?cents=1250"})
            return
        try:
            # The key makes it safe to send an order again when the answer got lost.
            job = charge.using(idempotency_key=order).enqueue(order, int(cents))
        except EngineUnavailable as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
            return
        self._answer(HTTPStatus.ACCEPTED, {"job": job.id})

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(HTTPStatus.OK, {"ok": True})
            return
        try:
            info = app.job(self.path.removeprefix("/jobs/")).info()
        except JobNotFound as error:
            self._answer(HTTPStatus.NOT_FOUND, {"error": str(error)})
            return
        self._answer(HTTPStatus.OK, {"state": str(info.state)})

    def _answer(self, status: HTTPStatus, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Shop)

    def stop(_number: int, _frame: FrameType | None) -> None:
        Thread(target=server.shutdown).start()  # it waits for the loop that this interrupts

    # The first process of a container ignores SIGTERM unless it has a handler for it.
    signal.signal(signal.SIGTERM, stop)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
    server.server_close()  # waits for requests that are being answered
    app.close()


if __name__ == "__main__":
    main()

"""Send an alert to a webhook: one POST of JSON, with a time limit.

The connection goes straight to the host of the url: no proxy, and no redirect, which would pass the
alert on to another host. No message contains more of the url than its host, because
the path of a webhook is often its secret.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from threading import Timer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from windlass.core.alerts.rules import AlertEvent
from windlass.core.alerts.webhook_url import mask_webhook

#: One attempt takes at most this long, in seconds.
TIMEOUT_S: Final = 5.0
#: The answers of a server that may accept the same request later.
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class WebhookAnswer(msgspec.Struct, frozen=True):
    """The result of one attempt."""

    is_ok: bool
    text: str  # what the receiver answered, or why it did not
    is_final: bool = True  # whether another attempt makes no sense


def describe_event(event: AlertEvent, app: str, engine: str) -> dict[str, Any]:
    """An event as a webhook gets it."""
    return {
        "id": event.id,
        "state": event.state,
        "kind": event.kind,
        "rule": event.rule,
        "subject": event.subject,
        "value": event.value,
        "threshold": event.threshold,
        "text": event.text,
        "since": event.since,
        "at": event.at,
        "app": app,
        "engine": engine,
    }


def post(url: str, body: dict[str, Any], timeout_s: float = TIMEOUT_S) -> WebhookAnswer:
    """Send one request, and wait for the status of its answer."""
    try:
        status = _exchange(url, msgspec.json.encode(body), timeout_s)
    except (OSError, HTTPException) as error:
        why = str(error) or type(error).__name__
        return WebhookAnswer(False, f"{mask_webhook(url)} did not answer: {why}", is_final=False)
    except ValueError as error:  # the host has no form for DNS, or TLS ended in an odd state
        why = f"cannot send to {mask_webhook(url)}: {error}. Check alert_webhook"
        return WebhookAnswer(False, why, is_final=False)
    text = f"{mask_webhook(url)} answered {status}"
    return WebhookAnswer(200 <= status < 300, text, is_final=status not in _TEMPORARY)


def _exchange(url: str, body: bytes, timeout_s: float) -> int:
    parts = urlsplit(url)
    connection = _connect(parts.scheme, parts.hostname or "", parts.port, timeout_s)
    # The time limit of a socket is for one operation: a receiver that sends byte by byte has none.
    deadline = Timer(timeout_s, _cut_off, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        target = parts.path or "/"
        target += f"?{parts.query}" if parts.query else ""
        connection.request("POST", target, body, _headers(parts.username, parts.password))
        return connection.getresponse().status
    finally:
        deadline.cancel()
        connection.close()


def _connect(scheme: str, host: str, port: int | None, timeout_s: float) -> HTTPConnection:
    if scheme == "http":
        return HTTPConnection(host, port, timeout=timeout_s)
    return HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())


def _cut_off(connection: HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # not connected yet, or closed meanwhile
        connection.sock.shutdown(SHUT_RDWR)


def _headers(user: str | None, password: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "User-Agent": "windlass"}
    if user is not None:
        login = f"{unquote(user)}:{unquote(password or '')}".encode()
        headers["Authorization"] = f"Basic {b64encode(login).decode()}"
    return headers

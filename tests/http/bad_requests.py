"""Malformed requests of every kind, as bytes for a socket.

`bad_requests` makes as many as asked for, the same ones for the same seed: bodies, headers, tokens,
cursors, ids, sizes and bytes that are not HTTP. `send` sends one and reads the answer.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

#: How long to wait for an answer, in seconds.
PATIENCE_S: Final = 10.0
_GARBAGE: Final = [*range(1, 9), *range(11, 32), *range(127, 256)]


class BadRequest(NamedTuple):
    """Bytes to send, and what is wrong with them."""

    what: str
    data: bytes


class Answer(NamedTuple):
    """The status and the body of an answer; 0 if the connection was closed without one."""

    status: int
    kind: str
    body: bytes


def bad_requests(number: int, token: str, seed: int = 18) -> Iterator[BadRequest]:
    """Make malformed requests; `token` is a valid one of an admin."""
    dice = random.Random(seed)
    makers: list[Callable[[random.Random, str], BadRequest]] = [
        _not_http,
        _bad_body,
        _bad_shape,
        _bad_media,
        _oversize,
        _bad_token,
        _bad_query,
        _bad_id,
        _bad_header,
        _bad_method,
    ]
    for at in range(number):
        yield makers[at % len(makers)](dice, token)


def send(port: int, request: BadRequest) -> Answer:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        data = b""
        try:
            connection.sendall(request.data)
            while chunk := connection.recv(65536):
                data += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass  # the server answered before it read everything
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/") else 0
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(part.partition(b"\r\n")[2] for part in body.split(b"\r\n0\r\n")[:1])
    return Answer(status, headers.get("content-type", ""), body)


def _http(
    method: str, target: str, token: str, body: bytes = b"", *extra: str, host: str = "localhost"
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *extra]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body and not any(line.lower().startswith("content-length") for line in extra):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _post(token: str, body: bytes, *extra: str, target: str = "/v1/jobs") -> bytes:
    return _http("POST", target, token, body, "Content-Type: application/json", *extra)


def _not_http(dice: random.Random, _token: str) -> BadRequest:
    data = bytes(dice.choices(_GARBAGE, k=dice.randrange(20, 400)))
    return BadRequest("not HTTP", data + b"\r\n\r\n")


def _bad_body(dice: random.Random, token: str) -> BadRequest:
    body = dice.choice(
        [
            b"{",
            b"nonsense",
            b'{"task": "shop.report", }',
            b"\xff\xfe\x00",
            b'{"task": "\xff"}',
            b"[" * 100_000,
            b'{"a":' * 5_000,
            b'{"task": "shop.report", "args": [NaN]}',
            b'{"task": "shop.report", "args": [1e999999]}',
            b'{"task": "shop.mail.send", "args": [%s]}' % (b"9" * 10_000),
            b'"' + b"x" * 1_000,
        ]
    )
    return BadRequest("a body that is not JSON", _post(token, body))


def _bad_shape(dice: random.Random, token: str) -> BadRequest:
    body: object = dice.choice(
        [
            {},
            [],
            None,
            {"task": 1},
            {"task": "shop.report", "arguments": []},
            {"task": "shop.report", "args": {}},
            {"task": "no.such.task"},
            {"task": "shop.mail.send"},
            {"task": "shop.mail.send", "args": [1]},
            {"task": "shop.mail.send", "args": ["a", "b", "c", "d"]},
            {"task": "shop.mail.send", "kwargs": {"to": "a", "colour": 1}},
            {"task": "shop.report", "priority": 1_000},
            {"task": "shop.report", "queue": "no spaces allowed"},
            {"task": "shop.report", "run_in_s": -1},
            {"task": "shop.report", "run_at": "tomorrow"},
            {"task": "shop.report", "headers": {"a": 1}},
            {"task": "", "args": []},
            {"task": "x" * 10_000},
            {"task": "os.system", "args": ["true"]},
        ]
    )
    return BadRequest(
        f"a body of another shape: {body!s:.60}", _post(token, json.dumps(body).encode())
    )


def _bad_media(dice: random.Random, token: str) -> BadRequest:
    kind = dice.choice(
        ["text/plain", "application/x-www-form-urlencoded", "", "image/png", "a/b/c"]
    )
    extra = (f"Content-Type: {kind}",) if kind else ()
    encoding = dice.choice([(), ("Content-Encoding: gzip",)])
    data = _http("POST", "/v1/jobs", token, b'{"task": "shop.report"}', *extra, *encoding)
    return BadRequest(f"the media type {kind!r}", data)


def _oversize(dice: random.Random, token: str) -> BadRequest:
    if dice.random() < 0.1:
        body = b'{"task": "shop.report", "args": ["' + b"x" * (9 * 1024 * 1024) + b'"]}'
        return BadRequest("a body of 9 MiB", _post(token, body))
    if dice.random() < 0.5:
        return BadRequest(
            "a claimed length of 1 TB", _post(token, b"{", "Content-Length: 1000000000000")
        )
    return BadRequest(
        "headers of 1 MB", _http("GET", "/v1/stats", token, b"", "X: " + "y" * 1_000_000)
    )


def _bad_token(dice: random.Random, token: str) -> BadRequest:
    place = dice.randrange(len(token))
    other = token[:place] + ("0" if token[place] != "0" else "1") + token[place + 1 :]
    wrong = dice.choice([other, token[:-1], token + "0", "x" * 4_000, "null", "../../etc/passwd"])
    return BadRequest("a wrong token", _http("GET", "/v1/stats", wrong))


def _bad_query(dice: random.Random, token: str) -> BadRequest:
    query = dice.choice(
        [
            "cursor=nonsense",
            "cursor=ready.%FF%FF",
            "cursor=" + "A" * 3_000,
            "limit=0",
            "limit=1000000000",
            "limit=ten",
            "state=happy",
            "since=yesterday",
            "limit=1&limit=2",
            "colour=red",
            "queue=" + "q" * 500,
            "task=%00",
        ]
    )
    return BadRequest(f"the query {query[:40]}", _http("GET", f"/v1/jobs?{query}", token))


def _bad_id(dice: random.Random, token: str) -> BadRequest:
    id = dice.choice(["nope", "x" * 200, "..%2F..", "%00", "%ff%fe", "a%20b", "-", "%F0%9F%92%A9"])
    method, rest = dice.choice(
        [("GET", ""), ("POST", "/cancel"), ("POST", "/retry"), ("GET", "/result")]
    )
    return BadRequest(f"the id {id[:20]}", _http(method, f"/v1/jobs/{id}{rest}", token))


def _bad_header(dice: random.Random, token: str) -> BadRequest:
    body = b'{"task": "shop.report"}'
    extra = dice.choice(
        [
            "Idempotency-Key: " + "k" * 1_000,
            "Idempotency-Key:",
            "Host: second.example",
            "Content-Length: abc",
            "Transfer-Encoding: nonsense",
            "Origin: http://evil.example",
            "Sec-Fetch-Site: cross-site",
        ]
    )
    return BadRequest(f"the header {extra[:40]}", _post(token, body, extra))


def _bad_method(dice: random.Random, token: str) -> BadRequest:
    method = dice.choice(["PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW"])
    target = dice.choice(["/v1/jobs", "/v1/stats", "/healthz", "/v1", "/", "/v1/jobs/", "/nothing"])
    return BadRequest(f"{method} {target}", _http(method, target, token))

"""Requests of the dashboard to the API that it belongs to.

A request has the credentials, the host and the address of the page's reader, and passes all checks
of the API. No socket is needed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

#: Headers of the page's request that say nothing about its reader.
_OWN: Final = frozenset(
    {b"content-length", b"content-type", b"transfer-encoding", b"expect", b"if-none-match"}
)
_CREDENTIALS: Final = frozenset({b"authorization", b"cookie"})


class Answer(NamedTuple):
    """An answer of the API."""

    status: int
    headers: dict[str, str]
    document: Any  # the decoded JSON

    @property
    def detail(self) -> str:
        """What a problem document says."""
        is_problem = isinstance(self.document, dict) and "detail" in self.document
        return str(self.document["detail"]) if is_problem else f"The status is {self.status}."


class OwnApi:
    """The API, for the reader of a page."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api

    async def get(
        self, request: Request, path: str, query: str = "", token: str | None = None
    ) -> Answer:
        """Send a GET request as the reader of a page; with a token, as its bearer."""
        collected = _Collected()
        await self._api(_scope(request, path, query, token), _nothing_more(), collected.add)
        return collected.answer()


def _scope(request: Request, path: str, query: str, token: str | None) -> Scope:
    root = request.scope.get("root_path", "")
    headers = [(name, value) for name, value in request.scope["headers"] if name not in _OWN]
    if token is not None:
        headers = [one for one in headers if one[0] not in _CREDENTIALS]
        headers.append((b"authorization", f"Bearer {token}".encode("ascii")))
    kept = ("type", "asgi", "http_version", "scheme", "client", "server")
    return {
        **{key: request.scope[key] for key in kept if key in request.scope},
        "method": "GET",
        "path": root + path,
        "raw_path": (root + path).encode(),
        "root_path": root,
        "query_string": query.encode(),
        "headers": headers,
    }


def _nothing_more() -> Any:
    """The receiving side of a request without a body, whose client stays."""
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()
        is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


class _Collected:
    """The sending side: collects an answer."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: dict[str, str] = {}
        self._body = b""

    async def add(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")

    def answer(self) -> Answer:
        document = msgspec.json.decode(self._body) if self._body else None
        return Answer(self._status, self._headers, document)

"""A client of the API in the process of the test.

1. `LoopThread` runs the event loop of the API in a thread, so that tests are plain functions.
2. `Client` sends requests through ASGI, without a socket, as one caller.
3. `EventStream` reads a stream of server-sent events, and a `LeavingRequest` is given up by its
   client: the client library collects a whole answer before it returns one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
from starlette.applications import Starlette

T = TypeVar("T")

#: Longer than any request takes; reached only if something is broken.
DEADLINE_S: Final = 30.0
BASE_URL: Final = "http://localhost"


class LoopThread:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="api-loop")
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


class Client:
    """One caller. Methods return the response whatever its status."""

    def __init__(
        self,
        api: Starlette,
        loop: LoopThread,
        headers: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self._api = api
        self._loop = loop
        self._headers = dict(headers or {})
        self._address = address

    def with_token(self, text: str) -> Client:
        headers = {**self._headers, "Authorization": f"Bearer {text}"}
        return Client(self._api, self._loop, headers, self._address)

    def at(self, address: str) -> Client:
        """The same caller from another address."""
        return Client(self._api, self._loop, self._headers, address)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if json is not None:
            options["json"] = json
        return self.request("POST", path, **options)

    def patch(self, path: str, json: Any, **options: Any) -> httpx.Response:
        return self.request("PATCH", path, json=json, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._loop.run(self.arequest(method, path, **options))

    async def arequest(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._api, client=(self._address, 50_000))
        headers = {**self._headers, **options.pop("headers", {})}
        async with httpx.AsyncClient(
            transport=transport, base_url=BASE_URL, timeout=DEADLINE_S
        ) as client:
            return await client.request(method, path, headers=headers, **options)

    def start(self, method: str, path: str, **options: Any) -> asyncio.Task[httpx.Response]:
        """Begin a request, which continues in the loop of the API."""

        async def begin() -> asyncio.Task[httpx.Response]:
            return asyncio.ensure_future(self.arequest(method, path, **options))

        return self._loop.run(begin())

    def finish(self, request: asyncio.Task[httpx.Response]) -> httpx.Response:
        async def end() -> httpx.Response:
            return await request

        return self._loop.run(end())

    def stream(self, path: str) -> EventStream:
        """A stream of events."""
        return EventStream(self._api, self._loop, path, "", self._headers, self._address)

    def leaving(self, path: str, query: str) -> LeavingRequest:
        """A request whose client leaves before the answer."""
        return LeavingRequest(self._api, self._loop, path, query, self._headers, self._address)


class LeavingRequest:
    """A GET request, sent for the time of a with block. At its end the client has left, and the
    server has noticed it."""

    def __init__(
        self,
        api: Starlette,
        loop: LoopThread,
        path: str,
        query: str,
        headers: Mapping[str, str],
        address: str,
    ) -> None:
        self._api = api
        self._loop = loop
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
            ],
            "client": (address, 50_001),
            "server": ("localhost", 80),
        }

    def __enter__(self) -> Self:
        self._loop.run(self._open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the connection, and return when the server has noticed it."""
        self._loop.run(self._leave())

    async def _open(self) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._has_left = asyncio.Event()
        application = self._api(self._scope, self._receive, self._messages.put)
        self._running = asyncio.ensure_future(application)

    async def _receive(self) -> dict[str, Any]:
        if self._has_left.is_set():
            return {"type": "http.disconnect"}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _leave(self) -> None:
        self._has_left.set()
        await asyncio.wait_for(self._running, DEADLINE_S)


class EventStream(LeavingRequest):
    """A stream of events, opened for the time of a with block."""

    status = 0
    _text = ""

    def next(self) -> tuple[str, Any]:
        """The next event: its name and its data. A comment has the name ":"."""
        return self._loop.run(self._next())

    def read_to_end(self) -> None:
        """Return when the server has ended the stream."""
        self._loop.run(self._ended())

    async def _open(self) -> None:
        await super()._open()
        start = await self._messages.get()
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}

    async def _next(self) -> tuple[str, Any]:
        while "\n\n" not in self._text:
            message = await asyncio.wait_for(self._messages.get(), DEADLINE_S)
            assert message["more_body"], "the stream has ended"
            self._text += message["body"].decode()
        block, _, self._text = self._text.partition("\n\n")
        if block.startswith(":"):
            return ":", block[1:].strip()
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        return fields["event"], json.loads(fields["data"])

    async def _ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._running), DEADLINE_S)

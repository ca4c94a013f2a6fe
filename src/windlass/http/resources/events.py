"""A stream of server-sent events: the counts of jobs, once a second.

1. `StatsFeed` reads the counts while at least one stream is open: one call of the engine a second,
   whatever the number of streams.
2. `EventResponse` sends the events of one stream. It ends when the client leaves, when the access
   token is revoked, and when the instance shuts down.

A slow client misses events, and then gets the latest. While the engine does not answer, there is
one event with the problem, and a comment from time to time keeps the connection open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windlass.errors import WindlassError
from windlass.http.access import Principal
from windlass.http.access_log import log
from windlass.http.gateway import Gateway
from windlass.http.problems import Problem, ProblemType, problem_of
from windlass.http.resources.stats import describe_stats
from windlass.http.routes import VIEWERS, ApiRequest, route
from windlass.jobs import AppStats

#: The time between two snapshots, in seconds.
PERIOD_S: Final = 1.0
#: After this time without an answer of the engine the streams tell it, in seconds.
LATE_S: Final = 2.0
#: A comment is sent after this time without an event, in seconds.
COMMENT_S: Final = 15.0
#: A client that takes nothing for this long is dropped, in seconds.
SEND_S: Final = 30.0
#: The most streams of an instance.
MAX_STREAMS: Final = 200


class StatsFeed:
    """The latest snapshot of an instance, as `gateway.part(StatsFeed)`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._viewers = 0
        self._running: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.number = 0  # of the latest event
        self.latest: AppStats | Problem | None = None
        self.is_over = False
        self.took_s: float | None = None  # for the latest snapshot
        self._encoded: dict[tuple[str, ...], bytes] = {}  # of the latest event, by queues

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Read snapshots while the block runs."""
        self._viewers += 1
        if self._running is None or self._running.done():
            self.latest, self.is_over = None, False
            self._running = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            self._viewers -= 1

    @property
    def viewers(self) -> int:
        """The number of open streams."""
        return self._viewers

    def encode(self, principal: Principal) -> bytes:
        """The latest event for a caller. Callers of the same queues share the work."""
        if isinstance(self.latest, Problem):
            return _encode("problem", self.latest.document)
        if principal.queues not in self._encoded:
            stats = self.latest or AppStats(queues={}, totals={})
            encoded = _encode("stats", describe_stats(stats, principal))
            self._encoded[principal.queues] = encoded
        return self._encoded[principal.queues]

    def check_room(self) -> None:
        if self._viewers >= MAX_STREAMS:
            raise Problem(
                ProblemType.OVERLOADED,
                f"{MAX_STREAMS} streams are open at this instance. Close one, or use another "
                "instance.",
            )

    async def until_after(self, number: int) -> None:
        """Return when there is a later event than this one, or the feed is over."""
        while not self.is_over and (self.latest is None or self.number <= number):
            await self._news.wait()

    async def _run(self) -> None:
        draining = asyncio.ensure_future(self._gateway.until_draining())
        try:
            while self._viewers and not draining.done():
                began = time.monotonic()
                await self._read(draining)
                rest_s = began + PERIOD_S - time.monotonic()
                await asyncio.wait({draining}, timeout=max(0.0, rest_s))
        finally:
            draining.cancel()
            self.is_over = True
            self._wake()

    async def _read(self, draining: asyncio.Task[None]) -> None:
        """Publish one snapshot. At most one call of the engine is under way."""
        began = time.monotonic()
        reading = asyncio.ensure_future(self._gateway.call(self._gateway.app.stats))
        await asyncio.wait({reading, draining}, timeout=LATE_S, return_when="FIRST_COMPLETED")
        if not reading.done() and not draining.done():
            self._publish(Problem(ProblemType.ENGINE_AWAY, "The engine does not answer."))
            await asyncio.wait({reading, draining}, return_when="FIRST_COMPLETED")
        if not reading.done():
            reading.cancel()
            return
        self.took_s = time.monotonic() - began
        try:
            self._publish(reading.result())
        except (WindlassError, Problem) as error:
            self._publish(problem_of(error))

    def _publish(self, event: AppStats | Problem) -> None:
        self.latest = event
        self.number += 1
        self._encoded.clear()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class EventResponse(Response):
    """The answer with the events for one caller."""

    media_type = "text/event-stream"

    def __init__(self, call: ApiRequest, feed: StatsFeed) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._call = call
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        gone = asyncio.ensure_future(self._call.is_gone())
        sending = asyncio.ensure_future(self._send_events(send))
        try:
            await asyncio.wait({gone, sending}, return_when="FIRST_COMPLETED")
        finally:
            gone.cancel()
            sending.cancel()
            _, ended = await asyncio.gather(gone, sending, return_exceptions=True)
        if isinstance(ended, Exception) and not isinstance(ended, TimeoutError):
            log.error("a stream of events failed, the client connects again", exc_info=ended)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        with self._feed.viewing():
            async with aclosing(self._events()) as events:
                async for event in events:
                    async with asyncio.timeout(SEND_S):
                        await send({"type": "http.response.body", "body": event, "more_body": True})

    async def _events(self) -> AsyncGenerator[bytes, None]:
        feed, seen = self._feed, 0
        while True:
            try:
                async with asyncio.timeout(COMMENT_S):
                    await feed.until_after(seen)
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if feed.is_over:
                return
            if not isinstance(feed.latest, Problem) and not await self._is_admitted():
                return
            seen = feed.number
            yield feed.encode(self._call.principal)

    async def _is_admitted(self) -> bool:
        """Whether the caller may continue. Unknown while the engine does not answer: then its next
        event is a problem, which tells nothing about jobs."""
        try:
            return await self._call.is_admitted()
        except (WindlassError, Problem):
            return False


def _encode(name: str, data: msgspec.Struct) -> bytes:
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


@route("GET", "/v1/events", roles=VIEWERS, problems=[ProblemType.DRAINING], is_stream=True)
async def stream_events(call: ApiRequest) -> EventResponse:
    """Stream the counts of jobs, once a second.

    An event `stats` has the answer of `GET /v1/stats`, for the queues that the caller may use. An
    event `problem` has a problem document: the engine does not answer. The stream ends when the
    instance shuts down or the access token is revoked: connect again."""
    if call.gateway.is_draining:
        raise Problem(ProblemType.DRAINING, "This instance is shutting down.")
    feed = call.gateway.part(StatsFeed)
    feed.check_room()
    return EventResponse(call, feed)

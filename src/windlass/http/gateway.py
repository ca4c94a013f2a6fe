"""The gateway: what all handlers of one instance of the API share.

1. `call` runs an engine call in one of a few threads, so that the event loop never waits. When too
   many calls wait for a thread, the request is refused as overloaded.
2. `drain` begins the shutdown: long polls and streams end, and readiness fails.
3. `close` ends the threads.

The gateway stores nothing: any instance can answer any request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import msgspec

from windlass.dashboard.local_login import LocalLogin
from windlass.http.access import AccessOptions, Authenticator
from windlass.http.limits import RateLimits
from windlass.http.own_cost import OwnCost
from windlass.http.problems import Problem, ProblemType
from windlass.http.readiness import Readiness
from windlass.http.routes import MAX_BODY
from windlass.worker.maintenance.measures import WorkerMeasures

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
T = TypeVar("T")

#: Threads for engine calls. An engine object makes only a few calls at a time.
THREADS: Final = 8
#: Threads for sessions, claims and reports: no other request can delay a heartbeat past its lease.
#: As many as an engine object makes calls at a time: more would only compete for the interpreter.
WORKER_THREADS: Final = 3
#: The most engine calls that may wait for a thread, of each kind.
MAX_WAITING: Final = 500


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one instance of the API."""

    access: AccessOptions = AccessOptions()
    max_body: int = MAX_BODY  # bytes
    body_timeout_s: float = 20.0  # a body must arrive within this time
    rate: float = 1_000.0  # requests a second of one caller
    burst: float = 2_000.0  # requests of one caller at once
    max_waiters: int = 1_000  # long polls at a time
    max_sessions: int = 2_000  # sessions of the worker protocol of one caller
    app_name: str = ""  # the name of the app in alerts
    dashboard: bool = True  # serve the dashboard, and accept its cookie
    login: LocalLogin | None = None  # the one-time login of `windlass dashboard`


class BoundedPool:
    """A few threads, and a bounded number of calls that wait for one."""

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._waiting >= MAX_WAITING:
            raise Problem(
                ProblemType.OVERLOADED,
                f"{self._waiting} calls wait for the engine. Send the request again later, or to "
                "another instance.",
            )
        self._waiting += 1
        try:
            running = self._threads.submit(function, *args, **kwargs)
            return await asyncio.wrap_future(running)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Gateway:
    """Shared state of one instance."""

    def __init__(self, app: Windlass, options: ApiOptions) -> None:
        self.app = app
        self.options = options
        self.rates = RateLimits(options.rate, options.burst)
        #: Changes by one caller, so that no caller can push out the entries of the audit trail.
        self.changes = RateLimits(20.0, 200.0)
        #: Failed authentications by address, to slow down guessing.
        self.failures = RateLimits(10.0, 50.0)
        self.authenticator = Authenticator(self, options.access)
        self.document: bytes = b"{}"  # the OpenAPI document, set by the API
        self.readiness = Readiness()
        self.cost = OwnCost()
        #: The runs of remote workers that this instance has reported to the engine.
        self.measures = WorkerMeasures()
        self._pool = BoundedPool("windlass-http", THREADS)
        self._worker_pool = BoundedPool("windlass-http-workers", WORKER_THREADS)
        self._draining = asyncio.Event()
        self._on_close: list[Callable[[], None]] = []
        self._parts: dict[Callable[[Gateway], Any], Any] = {}

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a thread."""
        return await self._pool.run(function, *args, **kwargs)

    async def call_for_worker(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a blocking function of the worker protocol in a thread."""
        return await self._worker_pool.run(function, *args, **kwargs)

    def part(self, make: Callable[[Gateway], T]) -> T:
        """A part of this instance, made at its first use. Call it on the event loop."""
        if make not in self._parts:
            self._parts[make] = make(self)
        part: T = self._parts[make]
        return part

    async def until_draining(self) -> None:
        """Return when the shutdown begins."""
        await self._draining.wait()

    def drain(self) -> None:
        """Begin the shutdown. Call it on the event loop of the API."""
        self._draining.set()

    def on_close(self, action: Callable[[], Any]) -> None:
        """Call this when the gateway closes, the last one first."""
        self._on_close.append(action)

    def close(self) -> None:
        """End the threads, after `drain`. Call it outside of the event loop."""
        while self._on_close:
            self._on_close.pop()()
        self._pool.close()
        self._worker_pool.close()

"""The HTTP API as an ASGI application, for `windlass serve` and for mounting below any prefix.

1. `create_api` makes the application from the route table.
2. `_Endpoint` serves one path: it checks host, origin, caller, role and rate, reads the request,
   calls the handler and encodes the answer. Every error becomes a problem document.
3. `_PageEndpoint` serves one path of the dashboard.
4. The lifespan of the application starts and ends the background parts. A host application that
   mounts the API enters `api.running()` in its own lifespan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.dashboard.cookie import TokenCookie
from windlass.dashboard.pages import HEADERS as PAGE_HEADERS
from windlass.dashboard.pages import Page, make_pages
from windlass.errors import EngineError
from windlass.http.access import PUBLIC, Principal, forbidden, unauthenticated
from windlass.http.access_log import log, log_access
from windlass.http.alert_thread import start_alerts
from windlass.http.audit import audit_request
from windlass.http.gateway import ApiOptions, Gateway
from windlass.http.maintenance import start_maintenance
from windlass.http.openapi import build_document
from windlass.http.problems import MEDIA_TYPE, Problem, ProblemType, problem_of
from windlass.http.request_reader import read_body, read_path, read_query
from windlass.http.resources.operations import start_runner
from windlass.http.routes import ApiRequest, Reply, Route
from windlass.http.table import ROUTES

if TYPE_CHECKING:
    from windlass.app import Windlass

#: How long a route that answers outages waits to know the caller, in seconds.
IDENTIFY_S: Final = 2.0
#: Headers of every answer.
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class WindlassApi(Starlette):
    """The HTTP API of an app. An ASGI application."""

    def __init__(self, app: Windlass, options: ApiOptions) -> None:
        self.gateway = Gateway(app, options)
        self.gateway.document = _document()
        endpoints: dict[str, ASGIApp] = {
            path: _Endpoint(self.gateway, routes) for path, routes in _by_path(ROUTES).items()
        }
        if options.dashboard:
            for path, pages in make_pages(self, options.login).items():
                endpoints[path] = _PageEndpoint(self.gateway, pages)
        super().__init__(
            routes=[
                StarletteRoute(_pattern(path), endpoint, methods=None)
                for path, endpoint in sorted(endpoints.items(), key=_length, reverse=True)
            ],
            exception_handlers={HTTPException: _answer_http_error},
            lifespan=lambda _: self.running(),
        )
        self.router.redirect_slashes = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside the block. For the lifespan of an application that mounts this
        one; `windlass serve` enters it by itself."""
        self.gateway.part(start_runner)  # continues what another instance has left
        self.gateway.part(start_alerts)
        self.gateway.part(start_maintenance)
        try:
            yield
        finally:
            self.gateway.drain()
            await asyncio.to_thread(self.gateway.close)

    def drain(self) -> None:
        """End long polls and streams, because the server is about to stop."""
        self.gateway.drain()


@cache
def _document() -> bytes:
    """The OpenAPI document, which is the same for every app."""
    return msgspec.json.encode(build_document(ROUTES))


def create_api(app: Windlass, options: ApiOptions | None = None) -> WindlassApi:
    """Make the HTTP API of an app, to be mounted below any prefix."""
    return WindlassApi(app, options or ApiOptions())


def _pattern(path: str) -> str:
    """The pattern of a path. Names of schedules and tasks may have slashes."""
    is_plain = path.startswith(("/v1/schedules/", "/v1/tasks/"))
    return path.replace("{name}", "{name:path}") if is_plain else path


def _length(endpoint: tuple[str, ASGIApp]) -> int:
    """The number of parts of a path: longer ones go first, as a name may look like their end."""
    return endpoint[0].count("/")


def _by_path(routes: Sequence[Route]) -> dict[str, dict[str, Route]]:
    found: dict[str, dict[str, Route]] = {}
    for route in routes:
        found.setdefault(route.path, {})[route.method] = route
    return found


class _Endpoint:
    """One path with its methods. An ASGI application."""

    def __init__(self, gateway: Gateway, routes: Mapping[str, Route]) -> None:
        self._gateway = gateway
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        request = Request(scope, receive)
        exchange = _Exchange(self._gateway, request)
        try:
            response = await exchange.answer(self._routes)
        except Exception as error:  # noqa: BLE001  # every error gets an answer
            response = _to_response(error, request)
        client = request.client.host if request.client else None
        took_s = time.monotonic() - began
        if request.method == "GET" and "wait_s" not in request.query_params:
            self._gateway.cost.add(took_s)
        log_access(
            request.method,
            request.url.path,
            response.status_code,
            took_s,
            exchange.caller,
            client,
        )
        await response(scope, receive, send)


class _PageEndpoint:
    """One path of the dashboard with its methods. An ASGI application."""

    def __init__(self, gateway: Gateway, pages: Mapping[str, Page]) -> None:
        self._gateway = gateway
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Exception as error:  # noqa: BLE001  # every error gets an answer
            response = _to_response(error, request)
        response.headers.update(PAGE_HEADERS)
        took_s = time.monotonic() - began
        client = request.client.host if request.client else None
        log_access(
            request.method, request.url.path[:200], response.status_code, took_s, "page", client
        )
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        self._gateway.authenticator.check_host(request.headers.get("host", ""))
        page = self._pages.get("GET" if request.method == "HEAD" else request.method)
        if page is None:
            raise _wrong_method(request, self._pages)
        response = await page(request)
        if response is None:
            raise Problem(ProblemType.NOT_FOUND, f"There is nothing at {request.url.path[:200]}.")
        return response


def _wrong_method(request: Request, methods: Iterable[str]) -> Problem:
    allowed = ", ".join(sorted(methods))
    return Problem(
        ProblemType.METHOD_NOT_ALLOWED,
        f"{request.method} is not a method of this resource. It has {allowed}.",
        headers={"Allow": allowed},
    )


class _Exchange:
    """One request and its answer."""

    def __init__(self, gateway: Gateway, request: Request) -> None:
        self._gateway = gateway
        self._request = request
        self.caller = "unauthenticated"

    async def answer(self, routes: Mapping[str, Route]) -> Response:
        request, gateway = self._request, self._gateway
        method = "GET" if request.method == "HEAD" else request.method
        route = routes.get(method)
        if route is not None and route.is_stream and request.method == "HEAD":
            route = None  # a stream has no end, and so no length
        if route is None or route.roles:  # probes are sent to addresses, and learn nothing
            gateway.authenticator.check_host(request.headers.get("host", ""))
        if route is None:
            raise _wrong_method(request, routes)
        if route.changes:
            gateway.authenticator.check_origin(request.headers)
        principal = await self._principal(route)
        if route.changes:
            gateway.authenticator.check_own_page(principal, request.headers)
        given = await self._read(route)
        if route.is_audited:
            gateway.changes.take(principal.name)
            await audit_request(gateway.app, principal, route, given)
        call = ApiRequest(
            route=route,
            gateway=gateway,
            principal=principal,
            headers=request.headers,
            is_gone=self._until_gone,
            is_admitted=self._is_admitted,
        )
        return _encode(route, await route.handler(call, **given))

    async def _principal(self, route: Route) -> Principal:
        request, gateway = self._request, self._gateway
        client = request.client.host if request.client else None
        if not route.roles:
            self.caller = "public"
            return PUBLIC
        try:
            async with asyncio.timeout(IDENTIFY_S if route.answers_outage else None):
                principal = await gateway.authenticator.identify(
                    request.headers, client, self._cookie()
                )
        except (EngineError, TimeoutError):
            if not route.answers_outage:
                raise
            self.caller = "public"
            return PUBLIC
        if principal is None:
            gateway.failures.take(client or "a Unix socket")
            raise unauthenticated(request.headers)
        self.caller = principal.name
        gateway.rates.take(principal.name if principal.name != "anonymous" else str(client))
        if not principal.may(route):
            raise forbidden(principal, route)
        return principal

    def _cookie(self) -> str | None:
        """The access token in the cookie of the dashboard."""
        request = self._request
        return TokenCookie.of(request).read(request) if self._gateway.options.dashboard else None

    async def _read(self, route: Route) -> dict[str, Any]:
        request, options = self._request, self._gateway.options
        given: dict[str, Any] = {}
        if route.path_type is not None:
            given["path"] = read_path(route, request.path_params)
        if route.query_type is not None:
            given["query"] = read_query(route, request.query_params.multi_items())
        elif request.url.query:
            raise Problem(ProblemType.INVALID, "This resource takes no query parameters.")
        if route.body_type is not None:
            given["body"] = await read_body(
                route, request, options.max_body, options.body_timeout_s
            )
        return given

    async def _until_gone(self) -> None:
        """Return when the client has left. The body must have been read."""
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    async def _is_admitted(self) -> bool:
        request = self._request
        client = request.client.host if request.client else None
        found = await self._gateway.authenticator.identify(request.headers, client, self._cookie())
        return found is not None and found.name == self.caller


def _encode(route: Route, answer: Any) -> Response:
    if isinstance(answer, Response):
        answer.headers.update(_HEADERS)
        return answer
    if route.answer_type is None:
        return Response(status_code=route.status, headers=_HEADERS)
    status = route.status
    if isinstance(answer, Reply):
        status, answer = answer.status, answer.answer
    return Response(
        msgspec.json.encode(answer),
        status_code=status,
        headers=_HEADERS,
        media_type="application/json",
    )


def _to_response(error: Exception, request: Request) -> Response:
    problem = problem_of(error, is_read=request.method in ("GET", "HEAD"))
    if problem.kind.status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    elif problem.kind is ProblemType.ENGINE_AWAY:
        log.warning("%s %s: no answer from the engine: %s", request.method, request.url.path, error)
    return Response(
        msgspec.json.encode(problem.document),
        status_code=problem.kind.status,
        headers={**_HEADERS, **problem.headers},
        media_type=MEDIA_TYPE,
    )


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer an error of the router: no route has this path."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    kind = ProblemType.NOT_FOUND if status == 404 else ProblemType.BAD_REQUEST
    path = request.url.path[:200]
    client = request.client.host if request.client else None
    log_access(request.method, path, kind.status, 0.0, "unauthenticated", client)
    return _to_response(Problem(kind, f"There is nothing at {path}."), request)

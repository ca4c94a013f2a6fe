"""Authentication of callers: access tokens, a trusted proxy, or any program on this machine.

1. `AccessOptions` says how callers identify themselves, and which host names are served.
2. `Authenticator` turns a request into a `Principal`, or refuses it.
3. Without tokens and proxy the API is open, for loopback addresses and host names only. As soon as
   the engine has an access token, every instance requires one.

A browser must not act for a web site that it shows: a request that changes anything, with another
origin than the host that it is sent to, is refused whatever its method. The dashboard keeps the
access token of a browser in a cookie, which a browser adds to the requests of any page: with the
cookie, a change must prove that a page of this server sends it.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from windlass.access_tokens import Role, TokenCache
from windlass.dashboard.cookie import authority_of, is_own_page
from windlass.http.problems import Problem, ProblemType
from windlass.http.routes import Route
from windlass.http.token_checks import TokenChecks
from windlass.settings import matches

if TYPE_CHECKING:
    from windlass.http.gateway import Gateway

#: Host names of this machine, which an open API answers to.
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
#: How long to believe that the engine has no access token, in seconds.
_NO_TOKENS_S: Final = 1.0
#: Headers of proxies: with one of them, the caller is not the peer of the connection.
_FORWARDED: Final = frozenset({"forwarded", "x-forwarded-for", "x-real-ip"})
#: The name of a host, with `*` for any part.
_HOST: Final = re.compile(r"[A-Za-z0-9_.*-]+")
#: The name of a header.
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="windlass"'}


class AccessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How callers identify themselves."""

    #: Refuse requests without a token, even while the engine has none.
    require_token: bool = False
    #: Host names to serve, in addition to those of this machine; `*` serves all names, and
    #: `*.example.com` those of a domain.
    allowed_hosts: tuple[str, ...] = ()
    #: A header in which a proxy names the user that it has authenticated.
    proxy_header: str | None = None
    #: The addresses of such proxies; others may not send the header.
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    #: The role of users that a proxy names.
    proxy_role: Role = Role.OPERATOR

    def __post_init__(self) -> None:
        """Refuse values that no request can match: they would protect, or serve, nothing."""
        for host in self.allowed_hosts:
            if not _HOST.fullmatch(host) and not _is_address(host):
                raise ValueError(
                    "allowed_hosts must be host names without scheme, port and path, such as "
                    f"jobs.example.com or *.example.com, found {host!r}"
                )
        for address in self.trusted_proxies:
            if not _is_address(address):
                raise ValueError(
                    "trusted_proxies must be IP addresses such as 10.0.0.5, as connections have "
                    f"them, found {address!r}"
                )
        if self.proxy_header is not None and not _HEADER.fullmatch(self.proxy_header):
            raise ValueError(
                f"proxy_header must be the name of a header such as X-User, found "
                f"{self.proxy_header!r}"
            )


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller, and what it may do."""

    name: str  # for the audit trail and the access log
    role: Role
    queues: tuple[str, ...] = ()  # names or patterns; every queue when empty
    has_cookie: bool = False  # the access token is that of a cookie

    def may(self, route: Route) -> bool:
        return not route.roles or self.role in route.roles

    def may_use(self, queue: str) -> bool:
        return not self.queues or any(matches(pattern, queue) for pattern in self.queues)

    def require_queue(self, queue: str) -> None:
        if not self.may_use(queue):
            raise Problem(
                ProblemType.FORBIDDEN,
                f"The access token of {self.name} is not for the queue {queue}. It is for "
                f"{', '.join(self.queues)}.",
            )

    @property
    def sees_all(self) -> bool:
        return not self.queues


#: The caller of an open API.
ANYONE: Final = Principal(name="anonymous", role=Role.ADMIN)
#: The caller of a route for everyone, which may use no queue.
PUBLIC: Final = Principal(name="public", role=Role.PRODUCER, queues=("",))


class Authenticator:
    """Identify callers. One object per instance of the API."""

    def __init__(self, gateway: Gateway, options: AccessOptions) -> None:
        self._gateway = gateway
        self._options = options
        self._checks = TokenChecks(TokenCache())
        self._is_required = options.require_token or options.proxy_header is not None
        self._looked_at = float("-inf")

    def check_host(self, host: str) -> None:
        """Refuse a request for another host: a web page could resolve its own name to this
        machine (DNS rebinding)."""
        name = host_name(host)
        allowed = (*LOOPBACK_NAMES, *self._options.allowed_hosts)
        if not any(matches(pattern.lower(), name) for pattern in allowed):
            raise Problem(
                ProblemType.WRONG_HOST,
                f"The host {name or 'of the request'} is not served here. Start the server with "
                "--allowed-host NAME to serve it.",
            )

    @staticmethod
    def check_origin(headers: Mapping[str, str]) -> None:
        """Refuse a request that a browser sends for another web site."""
        origin, own = headers.get("origin"), headers.get("host", "").lower()
        is_foreign = origin is not None and authority_of(origin) != own
        if is_foreign or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise Problem(
                ProblemType.CROSS_SITE,
                f"A page of {origin or 'another site'} sent this request. Call the API from its "
                "own origin, or from a program.",
            )

    @staticmethod
    def check_own_page(principal: Principal, headers: Mapping[str, str]) -> None:
        """Refuse a change with a cookie, unless a page of this server sends it."""
        if principal.has_cookie and not is_own_page(headers):
            raise Problem(
                ProblemType.CROSS_SITE,
                "The request has the cookie of the dashboard, and no proof that the dashboard sent "
                "it: expected Sec-Fetch-Site: same-origin, or an Origin equal to the host. "
                "Programs send Authorization: Bearer instead of the cookie.",
            )

    async def identify(
        self, headers: Mapping[str, str], client: str | None, cookie: str | None = None
    ) -> Principal | None:
        """Return the caller; None without valid credentials. `cookie` is the access token of a
        browser. An invalid one is ignored: the browser keeps it until the next login."""
        authorization = headers.get("authorization")
        if authorization is not None:
            if cookie and not _is_bearer(authorization):  # the password of a proxy in front
                return await self._of_token(cookie, has_cookie=True)
            return await self._of_authorization(authorization)
        header = self._options.proxy_header
        if header is not None and header.lower() in headers:
            return self._of_proxy(headers[header.lower()], client)
        found = await self._of_token(cookie, has_cookie=True) if cookie else None
        if found is not None:
            return found
        is_local = is_loopback(client) and _FORWARDED.isdisjoint(headers)
        return ANYONE if is_local and not await self._is_token_required() else None

    async def _of_authorization(self, authorization: str) -> Principal | None:
        text = authorization.partition(" ")[2]
        if not _is_bearer(authorization) or not text:
            return None
        return await self._of_token(text.strip())

    async def _of_token(self, text: str, *, has_cookie: bool = False) -> Principal | None:
        login = self._gateway.options.login
        if login is not None and login.knows(text):
            return Principal(name=login.actor, role=Role.ADMIN, has_cookie=has_cookie)
        token = await self._checks.check(self._gateway.app, text)
        if token is None:
            return None
        self._is_required = True  # also after this token, perhaps the last one, is revoked
        return Principal(
            name=f"token:{token.name}",
            role=token.role,
            queues=token.queues,
            has_cookie=has_cookie,
        )

    def _of_proxy(self, user: str, client: str | None) -> Principal | None:
        if client not in self._options.trusted_proxies or not user.strip():
            return None
        return Principal(name=f"proxy:{user.strip()[:100]}", role=self._options.proxy_role)

    async def _is_token_required(self) -> bool:
        """Whether the engine has an access token. Once it had one, this stays so."""
        now = time.monotonic()
        if not self._is_required and now >= self._looked_at + _NO_TOKENS_S:
            self._is_required = await self._gateway.app.access_tokens.aexist()
            self._looked_at = now
        return self._is_required


def _is_bearer(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == "bearer"


def unauthenticated(headers: Mapping[str, str]) -> Problem:
    """The answer to a caller without valid credentials."""
    if "authorization" in headers:
        why = "The access token is unknown, expired or revoked, or is not sent as in"
    elif not _FORWARDED.isdisjoint(headers):
        why = "A proxy forwarded this request, which therefore needs an access token, as in"
    else:
        why = "Send an access token, as in"
    return Problem(
        ProblemType.UNAUTHENTICATED,
        f"{why} `Authorization: Bearer wl_...`. `windlass token create NAME --role ROLE` makes "
        "one.",
        headers=_CHALLENGE,
    )


def forbidden(principal: Principal, route: Route) -> Problem:
    roles = " or ".join(sorted(route.roles))
    return Problem(
        ProblemType.FORBIDDEN,
        f"{principal.name} has the role {principal.role}; {route.method} {route.path} needs "
        f"{roles}.",
    )


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(address: str | None) -> bool:
    """Whether an address is of this machine. A Unix socket has no address, and its file's mode
    says who may connect."""
    if not address:
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in LOOPBACK_NAMES

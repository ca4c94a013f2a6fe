"""The cookie in which a browser keeps an access token, and the pages that may use it.

1. `TokenCookie.of` says which cookie belongs to a request: its name, its path and whether it needs
   TLS.
2. `is_own_page` decides whether a page of this server has sent a request. A browser adds the cookie
   to requests of other pages too, so a change with a cookie needs this proof.

`X-Forwarded-Proto` and `X-Forwarded-Prefix` are trusted for the cookie alone: a web site cannot
make a browser send them, and a caller that sends them itself changes only its own cookie.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from starlette.requests import HTTPConnection

_NAME: Final = "windlass_token"
#: A prefix that a proxy removes from the path.
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class TokenCookie(NamedTuple):
    """A cookie with an access token, as a browser keeps it for one server."""

    name: str
    path: str
    is_secure: bool

    @classmethod
    def of(cls, request: HTTPConnection) -> TokenCookie:
        """The cookie of the server that this request is for. The port is part of the name, because
        a browser shares cookies between all ports of a host."""
        prefix = _prefix_of(request)
        is_secure = _is_secure(request)
        port = _port_of(request.headers.get("host", ""))
        name = f"{_NAME}_{port}" if port else _NAME
        return cls(f"__Host-{name}" if is_secure and not prefix else name, prefix or "/", is_secure)

    def read(self, request: HTTPConnection) -> str | None:
        return request.cookies.get(self.name) or None

    def set(self, text: str) -> str:
        """The header that makes a browser keep an access token until it is closed."""
        secure = "; Secure" if self.is_secure else ""
        return f"{self.name}={text}; Path={self.path}; HttpOnly; SameSite=Lax{secure}"

    def clear(self) -> str:
        """The header that makes a browser forget the access token."""
        return f"{self.set('')}; Max-Age=0"


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a page of this server has sent the request. Without both headers this is unknown, and
    the answer is no."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    host = headers.get("host", "").lower()
    return bool(host) and authority_of(headers.get("origin", "")) == host


def authority_of(origin: str) -> str:
    """The host and port of an origin; empty if it has none, such as the origin `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _prefix_of(request: HTTPConnection) -> str:
    """The path below which the browser sees the server: that of the proxy, then that of the
    application in which the API is mounted."""
    mounted = quote(request.scope.get("root_path", "").rstrip("/"), safe="/~")
    forwarded = request.headers.get("x-forwarded-prefix", "").rstrip("/")
    if not _PREFIX.fullmatch(forwarded) or f"{mounted}/".startswith(f"{forwarded}/"):
        return mounted
    return forwarded + mounted


def _is_secure(request: HTTPConnection) -> bool:
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0]
    return "https" in (request.scope.get("scheme"), forwarded.strip().lower())


def _port_of(host: str) -> int | None:
    try:
        return urlsplit(f"//{host}").port
    except ValueError:
        return None

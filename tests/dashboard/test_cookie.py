"""Which cookie belongs to a request: scheme, host, prefix of a proxy, prefix of a mount."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from windlass.dashboard.cookie import TokenCookie


def cookie_of(scheme: str = "http", root_path: str = "", **headers: str) -> TokenCookie:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return TokenCookie.of(
        Request({"type": "http", "scheme": scheme, "root_path": root_path, "headers": sent})
    )


@pytest.mark.parametrize(
    ("root_path", "forwarded", "path"),
    [
        ("", "", "/"),
        ("/queue", "", "/queue"),
        ("/queue/", "", "/queue"),
        ("", "/queue", "/queue"),
        ("/jobs", "/queue", "/queue/jobs"),
        ("/queue", "/queue", "/queue"),  # the server was told the prefix of the proxy
        ("/queue/jobs", "/queue", "/queue/jobs"),
        ("/queues", "/queue", "/queue/queues"),
        ("/a b;c", "", "/a%20b%3Bc"),
        ("", "/../x;y", "/"),
    ],
)
def test_the_path_is_the_whole_prefix(root_path: str, forwarded: str, path: str) -> None:
    assert cookie_of(root_path=root_path, x_forwarded_prefix=forwarded).path == path


@pytest.mark.parametrize(
    ("scheme", "root_path", "forwarded", "name", "is_secure"),
    [
        ("http", "", "", "windlass_token", False),
        ("https", "", "", "__Host-windlass_token", True),
        ("http", "", "HTTPS", "__Host-windlass_token", True),
        ("https", "", "http", "__Host-windlass_token", True),
        ("https", "/queue", "", "windlass_token", True),
        ("http", "", "httpsx", "windlass_token", False),
    ],
)
def test_tls_makes_it_secure(
    scheme: str, root_path: str, forwarded: str, name: str, is_secure: bool
) -> None:
    cookie = cookie_of(scheme, root_path, x_forwarded_proto=forwarded)
    assert (cookie.name, cookie.is_secure) == (name, is_secure)
    assert ("; Secure" in cookie.set("x")) is is_secure


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "windlass_token"),
        ("localhost:8155", "windlass_token_8155"),
        ("[::1]:8155", "windlass_token_8155"),
        ("localhost:x", "windlass_token"),
        ("localhost:99999", "windlass_token"),
        ("", "windlass_token"),
    ],
)
def test_servers_of_one_host_have_cookies_of_their_own(host: str, name: str) -> None:
    assert cookie_of(host=host).name == name


def test_logging_out_clears_what_logging_in_has_set() -> None:
    cookie = cookie_of("https", "/queue")
    assert cookie.set("x") == ("windlass_token=x; Path=/queue; HttpOnly; SameSite=Lax; Secure")
    assert cookie.clear() == f"{cookie.set('')}; Max-Age=0"

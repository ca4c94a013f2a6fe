"""The pages of the dashboard, by path and method, and the headers of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from windlass.dashboard.local_login import LocalLogin
from windlass.dashboard.login import LoginPages
from windlass.dashboard.own_api import OwnApi
from windlass.dashboard.static_files import StaticFile, read_files
from windlass.dashboard.status_page import StatusPage

Page = Callable[[Request], Awaitable[Response | None]]

#: Headers of every answer of the dashboard. Nothing but files of this server runs or is shown.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def make_pages(api: ASGIApp, local: LocalLogin | None) -> dict[str, dict[str, Page]]:
    """The pages of an API: path, then method. A page returns None if there is nothing at its
    path."""
    own = OwnApi(api)
    files = read_files()
    login, status = LoginPages(own, local), StatusPage(own)
    return {
        "/": {"GET": _index(files["index.html"])},
        "/static/{path:path}": {"GET": _static(files)},
        "/login": {"GET": login.show, "POST": login.log_in},
        "/logout": {"POST": login.log_out},
        "/status": {"GET": status.show},
    }


def _index(file: StaticFile) -> Page:
    async def show(request: Request) -> Response:
        return file.answer(request.headers)

    return show


def _static(files: Mapping[str, StaticFile]) -> Page:
    async def send(request: Request) -> Response | None:
        file = files.get(request.path_params["path"])
        return None if file is None else file.answer(request.headers)

    return send

"""Log in and out: `/login` and `/logout`.

1. `GET /login` shows a form for an access token, which works without JavaScript. With the one-time
   code of `windlass dashboard` in its URL it shows a form that has the code, and a script that
   takes the code out of the URL and sends the form. A GET request changes nothing.
2. `POST /login` asks the API who has the token, and answers with the cookie.
3. `POST /logout` removes the cookie. The access token stays valid for programs that use it.

Only pages of this server may send these forms: otherwise another web site could log its reader in
with a token of its own.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from windlass.dashboard.cookie import TokenCookie, is_own_page
from windlass.dashboard.local_login import LocalLogin, LoginRefused
from windlass.dashboard.markup import Markup, document, element
from windlass.dashboard.own_api import Answer, OwnApi

#: The most bytes of a form, and how long it may take to arrive, in seconds.
MAX_FORM: Final = 4096
FORM_S: Final = 20.0
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
#: A text that can be sent as a bearer token, and stored in a cookie.
_SENDABLE: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,200}")
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="windlass"'}


class _Refused(Exception):
    """A form that is answered with the login page."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


class LoginPages:
    """The pages `/login` and `/logout`."""

    def __init__(self, api: OwnApi, local: LocalLogin | None) -> None:
        self._api = api
        self._local = local

    async def show(self, request: Request) -> Response:
        """GET /login"""
        return _page(code=request.query_params.get("code", ""))

    async def log_in(self, request: Request) -> Response:
        """POST /login"""
        try:
            token = await self._token_of(request)
        except _Refused as refused:
            return _page(str(refused), status=refused.status, headers=refused.headers)
        return _go_to("./", TokenCookie.of(request).set(token))

    async def log_out(self, request: Request) -> Response:
        """POST /logout"""
        if not is_own_page(request.headers):
            refused = _foreign()
            return _page(str(refused), status=refused.status)
        return _go_to("./login", TokenCookie.of(request).clear())

    async def _token_of(self, request: Request) -> str:
        if not is_own_page(request.headers):
            raise _foreign()
        form = await _read_form(request)
        if "code" in form:
            return self._exchange(form["code"])
        token = form.get("token", "").strip()
        await self._check(request, token)
        return token

    def _exchange(self, code: str) -> str:
        if self._local is None:
            raise _Refused(401, "This server has no one-time login. Log in with an access token.")
        try:
            return self._local.exchange(code)
        except LoginRefused as refused:
            raise _Refused(401, str(refused), _CHALLENGE) from None

    async def _check(self, request: Request, token: str) -> None:
        """Ask the API who has the token. The API slows down guessing."""
        if not _SENDABLE.fullmatch(token):
            raise _Refused(401, "Expected the text of an access token, such as wl_...", _CHALLENGE)
        answer = await self._api.get(request, "/v1/me", token=token)
        if answer.status != 200:
            raise _Refused(answer.status, _why_refused(answer), _passed_on(answer))


def _why_refused(answer: Answer) -> str:
    if answer.status != 401:
        return answer.detail
    return (
        "The access token is unknown, expired or revoked. `windlass token create NAME --role "
        "operator` makes one, and `--role viewer` one that changes nothing."
    )


def _passed_on(answer: Answer) -> dict[str, str]:
    kept = ("retry-after", "www-authenticate")
    return {name: answer.headers[name] for name in kept if name in answer.headers}


def _foreign() -> _Refused:
    return _Refused(
        403,
        "Another page than one of this server sent the form, or a proxy removed its origin. Open "
        "this page by its own address; let a proxy pass on the headers Host and Origin.",
    )


async def _read_form(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
        raise _Refused(415, f"Expected a form of the type {_FORM_TYPE}.")
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM:
                    raise _Refused(413, f"Expected a form of at most {MAX_FORM} bytes.")
        fields = parse_qs(body.decode("ascii"), max_num_fields=10)
    except TimeoutError:
        raise _Refused(408, f"The form did not arrive within {FORM_S:g} s.") from None
    except (ClientDisconnect, ValueError):  # a text of other bytes is a ValueError too
        raise _Refused(400, "The form cannot be read.") from None
    return {name: values[0] for name, values in fields.items()}


def _go_to(place: str, cookie: str) -> Response:
    headers = {"Location": place, "Set-Cookie": cookie, "Cache-Control": "no-store"}
    return Response(status_code=303, headers=headers)


def _page(
    problem: str = "", *, code: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    alert = [element("p", problem, class_="problem", role="alert")] if problem else []
    form = _code_form(code) if code else _token_form()
    script = [element("script", src="./static/login.js", defer=True)] if code else []
    main = element("main", element("h1", "windlass", class_="brand"), *alert, form, id="login")
    return Response(
        document("Log in", [main], script),
        status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="text/html",
    )


def _token_form() -> Markup:
    field = element(
        "input",
        id="token",
        name="token",
        type="password",
        autocomplete="current-password",
        required=True,
        autofocus=True,
        aria_describedby="token-help",
    )
    told = element(
        "p",
        element("code", "windlass token create NAME --role operator"),
        " makes one, and ",
        element("code", "--role viewer"),
        " one that changes nothing.",
        id="token-help",
        class_="muted",
    )
    label = element("label", "Access token", for_="token")
    button = element("button", "Log in", type="submit", class_="primary")
    content = (label, field, told, button)
    return element("form", *content, method="post", action="./login", class_="card")


def _code_form(code: str) -> Markup:
    field = element("input", type="hidden", name="code", value=code)
    button = element("button", "Open the dashboard", type="submit")
    return element("form", field, button, method="post", action="./login", id="one-time-login")

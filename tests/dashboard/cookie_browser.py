"""A browser, as far as cookies and the origin of requests go; and what it would run of a page."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from http.cookies import Morsel, SimpleCookie
from typing import Any

import httpx

from tests.http.client import Client

#: What a browser sends with the form, or the script, of a page of the server.
OWN_PAGE = {"sec-fetch-site": "same-origin", "origin": "http://localhost"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


class CookieBrowser:
    """Keeps the cookies of the server's answers, and sends them back."""

    def __init__(self, client: Client, prefix: str = "", **headers: str) -> None:
        self._client = client
        self._prefix = prefix
        self._headers = headers
        self.cookies: dict[str, Morsel[str]] = {}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._send("GET", path, headers)

    def post(
        self, path: str, form: Mapping[str, str] | None = None, page: Mapping[str, str] = OWN_PAGE
    ) -> httpx.Response:
        """Send a form from a page of the server, or from another one."""
        return self._send("POST", path, {**FORM, **page}, data=dict(form or {}))

    def log_in(self, token: str) -> httpx.Response:
        return self.post("/login", {"token": token})

    @property
    def cookie(self) -> Morsel[str]:
        [cookie] = self.cookies.values()
        return cookie

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], **options: Any
    ) -> httpx.Response:
        sent = {**self._headers, **headers}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{one.key}={one.value}" for one in self.cookies.values())
        answer = self._client.request(method, self._prefix + path, headers=sent, **options)
        for text in answer.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(text).items():
                self.cookies[name] = morsel
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return answer


class Parts(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []  # scripts and styles in the page itself
        self.text = ""
        self._open = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.elements.append((tag, dict(attrs)))
        self.inline += [
            f"{tag} {name}"
            for name, value in attrs
            if name.startswith("on") or name == "style" or "javascript:" in (value or "")
        ]
        if tag == "style":
            self.inline.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open == "script" and data.strip():
            self.inline.append(f"script {data}")

    def links(self) -> list[str]:
        """Everything that the page refers to."""
        names = ("href", "src", "action", "content")
        return [
            value
            for tag, attributes in self.elements
            for name in names
            if (value := attributes.get(name)) is not None and (name != "content" or "/" in value)
        ]

"""HTML that is escaped by construction: text becomes markup only through `element`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

#: Elements without content.
_EMPTY: Final = frozenset({"input", "link", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: str | bool) -> Markup:
    """An element. Content that is not `Markup` is escaped. In names of attributes, an underscore at
    the end is left out and one inside is a hyphen; True is an attribute without a value."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{join(content)}</{name}>")


def join(content: Iterable[object]) -> Markup:
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in content))


def document(title: str, body: Iterable[object], head: Iterable[object] = ()) -> bytes:
    """A page. Its forms tell their origin to this server alone."""
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="referrer", content="same-origin"),
            element("title", f"{title} - windlass"),
            element("link", rel="icon", href="./static/icon.svg", type="image/svg+xml"),
            element("link", rel="stylesheet", href="./static/app.css"),
            *head,
        ),
        element("body", *body),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n".encode()


def _attribute(key: str, value: str | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'

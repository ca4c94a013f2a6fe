"""The url of a webhook: checked, and never shown as a whole."""

from __future__ import annotations

import re
from typing import Final

#: Hosts of this machine, to which unencrypted requests are allowed.
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")


class WebhookUrl:
    """The url of a webhook. Its text shows only the host: path and login are often secrets."""

    __slots__ = ("url",)

    def __init__(self, url: str = "") -> None:
        self.url = url

    def __str__(self) -> str:
        return mask_webhook(self.url)

    def __repr__(self) -> str:
        return repr(str(self))

    def __bool__(self) -> bool:
        return bool(self.url)

    def __eq__(self, other: object) -> bool:
        return self.url == other.url if isinstance(other, WebhookUrl) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.url)


def mask_webhook(url: str) -> str:
    """Show only scheme and host of a url."""
    if not url:
        return ""
    from urllib.parse import urlsplit  # slow to import, and seldom needed

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/***"


def read_webhook(name: str, value: object) -> WebhookUrl:
    """Check the setting `alert_webhook`. No error message contains the url."""
    if value == "":
        return WebhookUrl()
    from urllib.parse import urlsplit  # slow to import, and seldom needed

    expected = f"{name} must be a url such as 'https://example.com/hook', or empty for none"
    if not isinstance(value, str):
        raise ValueError(f"{expected}; found {type(value).__name__}")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{expected}; found one that cannot be read: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{expected}; found another url or text")
    if re.search(r"[^!-~]", value):
        raise ValueError(f"{expected}; found one with spaces or other letters: percent-encode it")
    if parts.scheme == "http" and not _LOOPBACK.fullmatch(parts.hostname):
        raise ValueError(
            f"{name} must begin with https://, found http:// to another machine, which would send "
            "alerts unencrypted. Use https, or let a program on this machine pass them on"
        )
    return WebhookUrl(value)

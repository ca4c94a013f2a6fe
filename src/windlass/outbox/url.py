"""The setting `outbox`: the url of the database in which callers have their own data.

A light module: every app reads its settings. The url may have a password, so that its text shows
only the location.
"""

from __future__ import annotations

import re
from typing import Final

from windlass.engine.contract import Dialect
from windlass.engine.url import absolute_url

#: The schema of the tables on PostgreSQL, and the start of their names on SQLite.
DEFAULT_NAMESPACE: Final = "windlass_outbox"
_NAMESPACE: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,39}")
_POSTGRESQL: Final = ("postgresql", "postgres")
_SQLITE: Final = "sqlite"
_OPTION: Final = re.compile(r"(?<=[?&])namespace=([^&]*)(&|$)")
_LOGIN: Final = re.compile(r"(?<=://).*@")
EXPECTED: Final = (
    "the url of the database of your own data, such as 'postgresql://localhost/shop' or "
    "'sqlite:///shop.db'"
)


class OutboxUrl:
    """The url of an outbox; false for none. `database` is the url without our own option."""

    __slots__ = ("database", "dialect", "namespace", "url")

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.dialect = Dialect.SQLITE if _scheme_of(url) == _SQLITE else Dialect.POSTGRESQL
        found = _OPTION.search(url)
        self.namespace = found[1] if found else DEFAULT_NAMESPACE
        self.database = _OPTION.sub("", url).rstrip("?&")

    @property
    def location(self) -> str:
        """The url without secrets and options."""
        return _LOGIN.sub("", self.database).partition("?")[0]

    def __str__(self) -> str:
        return self.location

    def __repr__(self) -> str:
        return repr(self.location)

    def __bool__(self) -> bool:
        return bool(self.url)

    def __eq__(self, other: object) -> bool:
        return self.url == other.url if isinstance(other, OutboxUrl) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.url)


def read_outbox(name: str, value: object) -> OutboxUrl:
    """Check the setting `outbox`. No error message contains a password."""
    if value == "":
        return OutboxUrl()
    if not isinstance(value, str) or "://" not in value:
        found = "text without ://" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{name} must be {EXPECTED}, or empty for none; found {found}")
    scheme = _scheme_of(value)
    if scheme.partition("+")[0] in (*_POSTGRESQL, _SQLITE) and "+" in scheme:
        plain = scheme.partition("+")[0]
        raise ValueError(f"{name} must be without a driver: write {plain}://, found {scheme}://")
    if scheme not in (*_POSTGRESQL, _SQLITE):
        raise ValueError(f"{name} must be {EXPECTED}; found the scheme {scheme}://")
    url = OutboxUrl(absolute_url(value))
    if not _NAMESPACE.fullmatch(url.namespace):
        raise ValueError(
            f"{name} must have a namespace of at most 40 small letters, digits and '_', the first "
            f"one not a digit, and not pg_; found {url.namespace[:60]!r}"
        )
    if scheme == _SQLITE:
        _check_file(name, url)
    return url


def _check_file(name: str, url: OutboxUrl) -> None:
    path, _, options = url.database.removeprefix("sqlite://").partition("?")
    if options:
        option = options.partition("=")[0]
        raise ValueError(f"{name} knows the option namespace after sqlite:///, found {option}")
    if not path.startswith("/") or not path.strip("/"):
        raise ValueError(f"{name} must have three slashes before the path, as in {EXPECTED}")
    if path == "/:memory:":
        raise ValueError(f"{name} must be a file, found a database in memory: no worker sees it")


def _scheme_of(url: str) -> str:
    return url.partition("://")[0].lower()

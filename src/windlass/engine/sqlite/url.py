"""The database file, read from a URL: `sqlite:///`, with the options after the question mark; and
the default URL when none is set."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from windlass.errors import EngineError

_SCHEME: Final = "sqlite:///"
_MEMORY: Final = ":memory:"


class SQLiteAddress(msgspec.Struct, frozen=True):
    """A file, or None for a database in memory, and the durability."""

    path: Path | None
    durability: str


def read_address(url: str) -> SQLiteAddress:
    parts = urlsplit(url)
    if parts.netloc or not parts.path.strip("/"):
        login, at, _host = parts.netloc.rpartition("@")
        found = url.replace(login + at, "***@", 1) if at else url
        raise EngineError(
            f"Expected sqlite:///relative/path.db or sqlite:////absolute/path.db, found "
            f"{found!r}. Three slashes come before the path."
        )
    path = parts.path[1:]
    return SQLiteAddress(None if path == _MEMORY else Path(unquote(path)), _durability(parts.query))


def _durability(query: str) -> str:
    given = dict(parse_qsl(query, keep_blank_values=True))
    durability = given.pop("durability", "full")
    if given:
        raise EngineError(
            f"A sqlite url knows the option durability, found {', '.join(sorted(given))}."
        )
    if durability not in ("full", "normal"):
        raise EngineError(
            f"Expected durability=full or durability=normal in the url, found {durability!r}."
        )
    return durability


def default_url(folder: Path | None = None) -> str:
    """Return the URL of a database next to the nearest pyproject.toml at or above `folder`, else in
    `folder`. `folder` defaults to the current folder."""
    start = Path.cwd() if folder is None else folder
    candidates = (start, *start.parents)
    home = next((path for path in candidates if (path / "pyproject.toml").is_file()), start)
    return f"{_SCHEME}{quote(str(home / 'windlass.db'))}"


def absolute_url(url: str) -> str:
    """Resolve the relative path of a URL against the current folder."""
    if not url.lower().startswith(_SCHEME):
        return url
    rest = url[len(_SCHEME) :]
    path = unquote(rest.partition("?")[0])
    if path in ("", _MEMORY) or Path(path).is_absolute():
        return url
    return f"{_SCHEME}{quote(str(Path.cwd()))}/{rest}"

"""From a URL to an engine. Drivers are imported only here, and only the one that is asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from windlass.errors import EngineError, SettingError

if TYPE_CHECKING:
    from windlass.engine.contract import Engine, EngineOptions

_MEMORY: Final = "/:memory:"
REDIS: Final = frozenset({"redis", "rediss", "unix"})
#: Engines that this version does not have yet.
PLANNED: Final = frozenset({"postgres", "postgresql"})


def check_url(url: str) -> None:
    """Refuse a setting by which no engine can be opened. Imports no engine and no driver."""
    try:
        _check(url)
    except EngineError as error:
        raise SettingError(str(error)) from None
    except ValueError as error:
        raise SettingError(
            f"The url cannot be read: {error}. Write for example sqlite:///jobs.db."
        ) from None


def _check(url: str) -> None:
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        _sqlite_path(url)
        _sqlite_options(url)
    elif scheme in REDIS:
        from windlass.engine.redis.address import read_address

        read_address(url)
    else:
        raise _refusal(scheme, url)


def open_engine(url: str, options: EngineOptions) -> Engine:
    """The engine that `url` names; it connects at its first use."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return _open_sqlite(url, options)
    if scheme in REDIS:
        return _open_redis(url, options)
    raise _refusal(scheme, url)


def _refusal(scheme: str, url: str) -> EngineError:
    if scheme in PLANNED:
        return EngineError(
            f"This version keeps jobs in SQLite or Redis; {scheme} urls such as {_safe(url)!r} are "
            "planned. Write for example sqlite:///jobs.db (a file in the current folder)."
        )
    return EngineError(
        f"Expected a url that begins with sqlite:///, redis://, rediss:// or unix://, found "
        f"{_safe(url)!r}. Write for example sqlite:///jobs.db (a file in the current folder) or "
        "redis://localhost:6379/0."
    )


def _open_redis(url: str, options: EngineOptions) -> Engine:
    try:
        from windlass.engine.redis.engine import RedisEngine
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise EngineError(
            f"The url {_safe(url)!r} needs the Redis driver, which is not installed here. "
            "Install it with: pip install 'windlass[redis]'"
        ) from error
    except RuntimeError as error:  # of a module of Python that registers itself with the exit
        raise EngineError(
            f"The Redis driver cannot be loaded for {_safe(url)!r} any more: the interpreter is "
            f"ending ({error}). A program that enqueues for the first time at its very end opens "
            "the engine before: write app.engine where the app is made."
        ) from error
    from windlass.engine.redis.address import read_address

    return RedisEngine(read_address(url), options)


def _open_sqlite(url: str, options: EngineOptions) -> Engine:
    from windlass.engine.sqlite.engine import SQLiteEngine

    path, durability = _sqlite_path(url), _sqlite_options(url)
    return SQLiteEngine(path, options, durability=durability)


def _sqlite_path(url: str) -> Path | None:
    """Of the file; None for a database in memory."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.strip("/"):
        raise EngineError(
            f"Expected sqlite:///relative/path.db or sqlite:////absolute/path.db, found "
            f"{_safe(url)!r}. Three slashes come before the path."
        )
    return None if parts.path == _MEMORY else Path(unquote(parts.path[1:]))


def _sqlite_options(url: str) -> str:
    given = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
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


def _safe(url: str) -> str:
    """The url as it was given, without what may be a password."""
    return re.sub(r"//[^/@]*@", "//***@", url)

"""Open the engine that a URL names. Only this module imports engines, and only the requested one.
To read a URL takes neither a driver nor another slow import.

1. `check_url` refuses a URL that names no engine; `open_engine` opens the engine.
2. `default_url` says where jobs are stored when no URL is set. `absolute_url` makes a URL
   independent of the current folder, because an app may change its folder and its supervisor does
   not.
3. `migration_sql` prints migrations for other migration tools.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from windlass.core import install_command
from windlass.errors import EngineError, SettingError

if TYPE_CHECKING:
    from windlass.engine.contract import Engine, EngineOptions
    from windlass.engine.postgres.engine import PostgresEngine

SQLITE: Final = "sqlite"
REDIS: Final = frozenset({"redis", "rediss", "unix"})
POSTGRES: Final = frozenset({"postgres", "postgresql"})
IN_MEMORY: Final = "sqlite:///:memory:"

#: Set by `windlass.testing`: why only engines in memory may be opened in this process.
why_memory_only = ""


def check_url(url: str) -> None:
    """Refuse a URL that names no engine. Imports no engine and no driver."""
    try:
        _check(url)
    except EngineError as error:
        raise SettingError(str(error)) from None
    except ValueError as error:
        raise SettingError(
            f"The url cannot be read: {error}. Write for example sqlite:///jobs.db."
        ) from None


def _check(url: str) -> None:
    scheme = _scheme_of(url)
    if scheme == SQLITE:
        from windlass.engine.sqlite.url import read_address as read_sqlite

        read_sqlite(url)
    elif scheme in REDIS:
        from windlass.engine.redis.url import read_address as read_redis

        read_redis(url)
    elif scheme in POSTGRES:
        from windlass.engine.postgres.url import read_address as read_postgres

        read_postgres(url)
    else:
        raise _refusal(url)


def open_engine(url: str, options: EngineOptions) -> Engine:
    """Make the engine that `url` names; it connects at its first use."""
    if why_memory_only and not url.startswith(IN_MEMORY):
        raise EngineError(f"The engine at {_safe(url)!r} was not opened: {why_memory_only}")
    scheme = _scheme_of(url)
    if scheme == SQLITE:
        return _open_sqlite(url, options)
    if scheme in REDIS:
        return _open_redis(url, options)
    if scheme in POSTGRES:
        return _open_postgres(url, options)
    raise _refusal(url)


def migration_sql(url: str, after: int | None) -> str:
    """Return the SQL that brings the tables at a URL forward, from their format or a given one; ""
    if nothing is missing. Without a given format the server is asked."""
    if not is_postgres(url):
        raise EngineError(
            f"Expected a url that begins with postgresql://, found {_safe(url)!r}. Only PostgreSQL "
            "has tables that other tools can migrate: leave out --sql."
        )
    from windlass.engine.contract import EngineOptions

    engine = _open_postgres(url, EngineOptions())
    try:
        return engine.migration_sql(after)
    finally:
        engine.shutdown()


def is_postgres(url: str) -> bool:
    return _scheme_of(url) in POSTGRES


def joins_transactions(url: str) -> bool:
    """Whether the engine can store jobs in a transaction of its caller. Opens nothing."""
    return is_postgres(url)


def default_url() -> str:
    """Place a database next to the nearest pyproject.toml upwards, else in the current folder."""
    from windlass.engine.sqlite import url as sqlite_url

    return sqlite_url.default_url()


def absolute_url(url: str) -> str:
    """Resolve the relative path of a file URL against the current folder."""
    if _scheme_of(url) != SQLITE:
        return url
    from windlass.engine.sqlite import url as sqlite_url

    return sqlite_url.absolute_url(url)


def _scheme_of(url: str) -> str:
    return url.partition(":")[0].lower()


def _refusal(url: str) -> EngineError:
    scheme, _, driver = _scheme_of(url).partition("+")
    if driver and scheme in POSTGRES | REDIS | {SQLITE}:
        return EngineError(
            f"Expected a url without a driver: write {scheme}://, found {scheme}+{driver}://."
        )
    return EngineError(
        "Expected a url that begins with sqlite:///, redis://, rediss://, unix:// or "
        f"postgresql://, found {_safe(url)!r}. Write for example sqlite:///jobs.db (a file in the "
        "current folder), redis://localhost:6379/0 or postgresql://localhost/shop."
    )


def _open_redis(url: str, options: EngineOptions) -> Engine:
    try:
        from windlass.engine.redis.engine import RedisEngine
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("redis", "hiredis"):
            raise
        other = getattr(sys.modules.get(missing), "__file__", None)
        if other is not None:
            raise EngineError(
                f"The url {_safe(url)!r} needs the Redis driver, and {other} is imported in its "
                "place. Give that file another name."
            ) from error
        raise EngineError(
            f"The url {_safe(url)!r} needs the Redis driver, which is not installed here. "
            f"Install it with: {install_command('redis')}"
        ) from error
    except RuntimeError as error:  # at exit, a Python module cannot register its exit handler
        raise EngineError(
            f"The Redis driver cannot be loaded for {_safe(url)!r} any more: the interpreter is "
            f"ending ({error}). A program that enqueues for the first time at its very end opens "
            "the engine before: write app.engine where the app is made."
        ) from error
    from windlass.engine.redis.url import read_address

    return RedisEngine(read_address(url), options)


def _open_postgres(url: str, options: EngineOptions) -> PostgresEngine:
    try:
        from windlass.engine.postgres.engine import PostgresEngine
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_binary", "psycopg_c"):
            raise
        raise EngineError(
            f"The url {_safe(url)!r} needs the PostgreSQL driver, which is not installed here "
            f"({error}). Install it with: {install_command('postgres')}"
        ) from error
    from windlass.engine.postgres.url import read_address

    return PostgresEngine(read_address(url), options)


def _open_sqlite(url: str, options: EngineOptions) -> Engine:
    from windlass.engine.sqlite.engine import SQLiteEngine
    from windlass.engine.sqlite.url import read_address

    address = read_address(url)
    return SQLiteEngine(address.path, options, durability=address.durability)


def _safe(url: str) -> str:
    """Return the URL without a possible password."""
    return re.sub(r"//.*@", "//***@", url)

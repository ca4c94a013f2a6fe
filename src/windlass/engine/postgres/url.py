"""The address of a PostgreSQL server, read from a URL as libpq takes it, with options of our own.

libpq reads all other parts: several hosts, `sslmode`, `service`, and the `PG*` variables for what
the URL leaves out.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import msgspec

from windlass.errors import EngineError

DEFAULT_SCHEMA: Final = "windlass"
#: Options of this engine after the question mark; libpq gets the others.
OPTIONS: Final = ("schema", "pooler", "listen")
#: A schema is a plain name, so that nothing has to be escaped.
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: Parameters of libpq that name the place; the others may be secret.
_SHOWN: Final = ("host", "port", "dbname")


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server with a database, and the schema of the jobs."""

    conninfo: str  # for libpq; may have a password
    place: str  # for messages, without secrets
    schema: str = DEFAULT_SCHEMA
    #: Connections go through a pooler that gives each transaction another one of the server.
    is_pooled: bool = False
    #: How to reach the server itself behind a pooler, to be notified of new jobs; else poll.
    listen_conninfo: str | None = None

    def __str__(self) -> str:
        return self.place

    def __repr__(self) -> str:
        return f"<PostgresAddress {self}>"

    @property
    def with_schema(self) -> str:
        if self.schema == DEFAULT_SCHEMA:
            return self.place
        return f"{self.place} (schema {self.schema})"


def read_address(url: str) -> PostgresAddress:
    parts = urlsplit(url)
    _refuse_raw_password(parts)
    # A plus is a plus to libpq, and not a space.
    given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    own = {name: value for name, value in given if name in OPTIONS}
    others = [(name, value) for name, value in given if name not in OPTIONS]
    if any(name == "windlass" or name.startswith("windlass_") for name, _ in others):
        raise _unknown_option(next(name for name, _ in others if name.startswith("windlass")))
    is_pooled = _pooler(own.get("pooler", "none"))
    listen = own.get("listen")
    if listen is not None and not is_pooled:
        raise EngineError(
            "The option listen of a postgresql url is for connections through a pooler. Add "
            "pooler=transaction, or leave out listen."
        )
    conninfo = _rebuild(parts.netloc, parts.path, others)
    return PostgresAddress(
        conninfo=conninfo,
        place=_place(parts.netloc, parts.path, dict(others)),
        schema=_schema(own.get("schema", DEFAULT_SCHEMA)),
        is_pooled=is_pooled,
        listen_conninfo=_listen_conninfo(listen, parts.netloc, parts.path, others),
    )


def _refuse_raw_password(parts: SplitResult) -> None:
    """Refuse a password with an unescaped mark: libpq would read the rest as a host, a database or
    an option, which messages show."""
    if parts.fragment:
        found = "#"
    elif parts.netloc.count("@") > 1:  # libpq takes the first, and shows the rest as a host
        found = "second @"
    elif "@" in parts.path:
        found = "slash before the @"
    elif "@" in parts.query and "@" not in parts.netloc and ":" in parts.netloc:
        found = "question mark before the @"
    else:
        return
    raise EngineError(
        f"Expected a url such as postgresql://USER:PASSWORD@HOST:5432/DATABASE, found a {found}. "
        "In a password write %23 for #, %2F for /, %40 for @, %3A for : and %3F for ?."
    )


def _rebuild(netloc: str, path: str, options: list[tuple[str, str]]) -> str:
    query = urlencode(options, quote_via=quote)
    return f"postgresql://{netloc}{path}{'?' if query else ''}{query}"


def _place(netloc: str, path: str, options: dict[str, str]) -> str:
    """Name server and database, also from the variables that libpq reads for what is left out."""
    hosts = netloc.rpartition("@")[2] or options.get("host") or os.environ.get("PGHOST", "")
    port = options.get("port") or os.environ.get("PGPORT")
    if hosts and port and ":" not in hosts:
        hosts = f"{hosts}:{port}"
    database = path.strip("/") or options.get("dbname") or os.environ.get("PGDATABASE", "")
    return f"{hosts or 'local server'}/{database}".rstrip("/")


def _listen_conninfo(
    listen: str | None, netloc: str, path: str, options: list[tuple[str, str]]
) -> str | None:
    """The address of the server itself: the same login at another host and port."""
    if listen is None:
        return None
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise EngineError(
            f"Expected listen=HOST:PORT in the url, the PostgreSQL server behind the pooler, found "
            f"{listen!r}."
        )
    if host.startswith("/"):  # the folder of a unix socket
        kept = [(name, value) for name, value in options if name not in ("host", "port")]
        login = netloc.rpartition("@")[0]
        return _rebuild(f"{login}@" if login else "", path, [*kept, ("host", host), ("port", port)])
    login, at, _ = netloc.rpartition("@")
    return _rebuild(f"{login}{at}{listen}", path, options)


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_"):
        raise EngineError(
            "Expected a schema of 1 to 63 lower case letters, digits and underscores that does not "
            f"begin with a digit or pg_, found {text[:120]!r}."
        )
    return text


def _pooler(text: str) -> bool:
    if text not in ("none", "transaction"):
        raise EngineError(
            f"Expected pooler=none or pooler=transaction in the url, found {text!r}. PgBouncer in "
            "session mode needs no option."
        )
    return text == "transaction"


def _unknown_option(name: str) -> EngineError:
    return EngineError(unknown_option(name))


def unknown_option(name: str) -> str:
    """Say which options there are, and which one a mistyped name may mean."""
    from difflib import get_close_matches  # slow to import, and only needed for an error

    near = get_close_matches(name, OPTIONS, n=1)
    return (
        f"A postgresql url knows the options {', '.join(OPTIONS)} and those of libpq, found {name}."
        f"{f' Did you mean {near[0]}?' if near else ''}"
    )

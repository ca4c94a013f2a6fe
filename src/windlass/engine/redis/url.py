"""The address of a Redis server, read from a URL: `redis://`, `rediss://` (certificates verified)
or `unix://`, with the options after the question mark."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from windlass.core.ids import PARTITIONS
from windlass.errors import EngineError

DEFAULT_PORT: Final = 6379
DEFAULT_NAMESPACE: Final = "windlass"
#: The options after the question mark.
OPTIONS: Final = (
    *("namespace", "partitions", "allow_eviction", "ca_file", "cert_file", "key_file"),
    "database",
)
#: The options of TLS: paths of PEM files.
FILES: Final = ("ca_file", "cert_file", "key_file")
#: A brace or a colon would change the slot of a key, or the key itself.
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server, its login, and the namespace of the jobs."""

    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""  # path of a unix socket, instead of host and port
    database: int = 0
    username: str | None = None
    password: str | None = None
    is_encrypted: bool = False
    namespace: str = DEFAULT_NAMESPACE
    partitions: int = 1  # fixed permanently at the first use
    allow_eviction: bool = False
    ca_file: str | None = None  # certificates to trust, in addition to those of the system
    cert_file: str | None = None  # the certificate of this client, perhaps with its key
    key_file: str | None = None  # the key of that certificate

    def __str__(self) -> str:
        """Name the server for messages, without secrets."""
        place = self.path or f"{self.host}:{self.port}"
        return f"{place}/{self.database}"

    def __repr__(self) -> str:
        return f"<RedisAddress {self}>"

    @property
    def files(self) -> dict[str, str]:
        """The files of TLS by the names of their options."""
        given = {name: getattr(self, name) for name in FILES}
        return {name: file for name, file in given.items() if file is not None}

    @property
    def with_namespace(self) -> str:
        """Name the server and its namespace, to show a mistyped namespace, which has no jobs."""
        if self.namespace == DEFAULT_NAMESPACE:
            return str(self)
        return f"{self} (namespace {self.namespace})"


def read_address(url: str) -> RedisAddress:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    place = _socket_place(parts, options) if parts.scheme == "unix" else _network_place(parts)
    address = RedisAddress(
        **place,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        is_encrypted=parts.scheme == "rediss",
        namespace=_namespace(options.pop("namespace", DEFAULT_NAMESPACE)),
        partitions=_partitions(options.pop("partitions", "1")),
        allow_eviction=_flag(options.pop("allow_eviction", "0")),
        **_files(parts, options),
    )
    if options:
        raise EngineError(
            "A redis url knows the options namespace, partitions, allow_eviction, after rediss:// "
            "ca_file, cert_file and key_file, and after unix:// database; found "
            f"{', '.join(sorted(options))}."
            f"{_ask_after(min(options))}"
        )
    return address


def _ask_after(name: str) -> str:
    from difflib import get_close_matches  # slow to import, and only needed for an error

    near = get_close_matches(name, OPTIONS, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _network_place(parts: SplitResult) -> dict[str, Any]:
    database = parts.path.strip("/")
    try:
        port = parts.port
    except ValueError:
        port = -1
    is_place = parts.hostname and port != -1
    if "@" in parts.path or parts.fragment or (not is_place and "@" in parts.query):
        found = "slash" if "@" in parts.path else "#" if parts.fragment else "question mark"
        raise EngineError(
            f"Expected a url such as redis://USER:PASSWORD@HOST:6379/0, found a {found} before the "
            "@. In a password write %2F for /, %40 for @, %3A for :, %23 for # and %3F for ?."
        )
    if parts.hostname and port == -1:
        raise EngineError(
            "Expected a url such as redis://localhost:6379/0, found a port that is no number from "
            f"0 to 65535 after the host {parts.hostname!r}. Correct the port, or omit it for "
            f"{DEFAULT_PORT}."
        )
    if not parts.hostname or port == -1 or (database and not database.isdecimal()):
        raise EngineError(
            f"Expected a url such as redis://localhost:6379/0 (host, port, number of the "
            f"database), found host {parts.hostname!r} and path {parts.path!r}."
        )
    return {"host": parts.hostname, "port": port or DEFAULT_PORT, "database": int(database or 0)}


def _socket_place(parts: SplitResult, options: dict[str, str]) -> dict[str, Any]:
    database = options.pop("database", "0")
    if parts.hostname or not parts.path.strip("/") or not database.isdecimal():
        raise EngineError(
            "Expected a url such as unix:///run/redis/redis.sock?database=0, with three slashes "
            f"before the path, found host {parts.hostname!r} and path {parts.path!r}."
        )
    return {"path": unquote(parts.path), "database": int(database)}


def _files(parts: SplitResult, options: dict[str, str]) -> dict[str, Any]:
    """The files of TLS. They are read when a connection is made."""
    files: dict[str, Any] = {name: options.pop(name) for name in FILES if name in options}
    if files and parts.scheme != "rediss":
        raise EngineError(
            f"The option {min(files)} of a redis url is for TLS, found {parts.scheme}://. Write "
            f"rediss://, or leave out {min(files)}."
        )
    for name, file in files.items():
        if not file:
            raise EngineError(f"Expected the path of a file after {name}= in the url, found none.")
    if "key_file" in files and "cert_file" not in files:
        raise EngineError(
            "The url gives the key of a client certificate, and not the certificate: add "
            "cert_file=, the file with the certificate."
        )
    return files


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise EngineError(
            "Expected a namespace of 1 to 100 letters, digits, '-', '_' and '.', found "
            f"{text[:120]!r}."
        )
    return text


def _partitions(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS:
        raise EngineError(f"Expected partitions=1 to {PARTITIONS} in the url, found {text!r}.")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise EngineError(f"Expected allow_eviction=0 or allow_eviction=1, found {text!r}.")
    return text == "1"

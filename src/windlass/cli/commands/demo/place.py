"""Where the demos keep their data, and how to remove it."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from rich.console import Console

from windlass.errors import WindlassError
from windlass.settings import without_secrets

POSTGRES: Final = ("postgres", "postgresql")
#: Options of a PostgreSQL url that psql does not know.
OWN_OPTIONS: Final = frozenset({"schema", "pooler", "listen"})


def choose_url(given: str, folder: Path) -> str:
    """Return the url of an empty database, namespace or schema: existing data is never touched."""
    parts = urlsplit(given)
    if parts.scheme in ("", "sqlite"):
        return f"sqlite:///{folder / 'demo.db'}"
    number = secrets.token_hex(4)
    if parts.scheme in POSTGRES:
        own = {"schema": f"windlass_demo_{number}"}
    else:
        own = {"namespace": f"windlass-demo-{number}"}
    return _with_options(parts, dict(parse_qsl(parts.query)) | own)


def _with_options(parts: SplitResult, options: dict[str, str]) -> str:
    """Return a url with these options. Without a host, it keeps all slashes."""
    query = urlencode(options, quote_via=quote)
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")


@contextmanager
def removed_on_error(folder: Path) -> Iterator[None]:
    """Remove the folder, which has no jobs yet, if the engine cannot be used."""
    try:
        yield
    except WindlassError:
        shutil.rmtree(folder)
        raise


def print_removal(out: Console, url: str, folder: Path) -> None:
    """Print the commands that remove the data of a demo."""
    out.print("Delete everything that the demo made:", style="bold")
    for command in removals(url, folder):
        out.print(f"  {command}", markup=False)
    if "***" in without_secrets(url):
        out.print("Replace *** by the user of your url, with its password.", markup=False)


def removals(url: str, folder: Path) -> Iterator[str]:
    """Return commands that remove the data of the demo."""
    yield f"rm -r {folder}"
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme in POSTGRES:
        of_psql = {name: value for name, value in options.items() if name not in OWN_OPTIONS}
        place = shlex.quote(without_secrets(_with_options(parts, of_psql)))
        yield f"psql {place} -c 'DROP SCHEMA {options['schema']} CASCADE'"
    elif parts.scheme != "sqlite":
        client = f"redis-cli {redis_cli_options(parts)}"
        namespace = options["namespace"]
        yield f"{client} --scan --pattern '{namespace}:{{*' | xargs {client} unlink"


def redis_cli_options(parts: SplitResult) -> str:
    if parts.scheme == "unix":
        database = dict(parse_qsl(parts.query)).get("database", "0")
        return f"-s {shlex.quote(parts.path)} -n {database}"
    return f"-u {shlex.quote(without_secrets(parts._replace(query='').geturl()))}"

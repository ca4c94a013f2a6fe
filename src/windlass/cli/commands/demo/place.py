"""Where the demos keep their data, and how to remove it."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from rich.console import Console

from windlass.errors import WindlassError
from windlass.settings import without_secrets


def choose_url(given: str, folder: Path) -> str:
    """Return the url of an empty database or namespace: existing data is never touched."""
    parts = urlsplit(given)
    if parts.scheme in ("", "sqlite"):
        return f"sqlite:///{folder / 'demo.db'}"
    own = {"namespace": f"windlass-demo-{secrets.token_hex(4)}"}
    return parts._replace(query=urlencode(dict(parse_qsl(parts.query)) | own)).geturl()


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
        out.print("Replace *** by your password.", markup=False)


def removals(url: str, folder: Path) -> Iterator[str]:
    """Return commands that remove the data of the demo."""
    yield f"rm -r {folder}"
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        client = f"redis-cli {redis_cli_options(parts)}"
        namespace = dict(parse_qsl(parts.query))["namespace"]
        yield f"{client} --scan --pattern '{namespace}:{{*' | xargs {client} unlink"


def redis_cli_options(parts: SplitResult) -> str:
    if parts.scheme == "unix":
        database = dict(parse_qsl(parts.query)).get("database", "0")
        return f"-s {shlex.quote(parts.path)} -n {database}"
    return f"-u {shlex.quote(without_secrets(parts._replace(query='').geturl()))}"

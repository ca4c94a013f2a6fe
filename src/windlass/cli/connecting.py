"""Which app and which engine a command speaks to.

The app is `--app module:attr`, else `WINDLASS_APP`, else `[tool.windlass] app` of the nearest
pyproject.toml. Commands that only look at the engine need no app: a `--url`, or `WINDLASS_URL`, is
enough. The url in pyproject.toml is never read: it may hold a password.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.app import Windlass
from windlass.errors import AppNotFound
from windlass.loading import load_app

F = TypeVar("F", bound=Callable[..., Any])


def app_option(command: F) -> F:
    return click.option(
        "--app",
        "app_path",
        metavar="MODULE:ATTR",
        help="The app, for example shop.tasks:app. [default: WINDLASS_APP, then pyproject.toml]",
    )(command)


def url_option(command: F) -> F:
    return click.option(
        "--url",
        metavar="URL",
        help="The engine, for example sqlite:///jobs.db. [default: the app's, then WINDLASS_URL]",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(
        command
    )


def connection_options(command: F) -> F:
    return app_option(url_option(command))


def find_app_path(given: str | None) -> str | None:
    return given or os.environ.get("WINDLASS_APP") or _from_pyproject()


def require_app_path(given: str | None) -> str:
    path = find_app_path(given)
    if path is None:
        raise AppNotFound(
            "Expected an app, found none. Name it as module:attribute, for example "
            "`--app shop.tasks:app`, or set WINDLASS_APP, or write it as `app` under "
            "[tool.windlass] in pyproject.toml."
        )
    return path


def connect(app_path: str | None, url: str | None) -> Windlass:
    """The app that a command speaks to; with only a url, one that knows no tasks."""
    if url is not None:
        return Windlass(url)
    path = find_app_path(app_path)
    if path is None:
        return Windlass()
    return import_app(path)


def import_app(path: str) -> Windlass:
    """Import the app as `python -m` would: modules in the current folder are found."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    return load_app(path)


def _from_pyproject() -> str | None:
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            app: str | None = _read_toml(file).get("tool", {}).get("windlass", {}).get("app")
            return app
    return None


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(
            f"{file} is not valid TOML ({error}). Mend it, or give --app."
        ) from error

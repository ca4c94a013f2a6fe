"""`windlass config`: all settings, their values and sources.

The command imports the app, because its code may set some; it needs no engine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import click
import msgspec

from windlass.cli.support.connection import AppPath, find_app_path, import_app, override_url
from windlass.cli.support.output import print_json, print_table, say
from windlass.cli.support.parameters import connection_options, json_option
from windlass.core.durations import describe_ms
from windlass.engine.url import absolute_url
from windlass.settings import (
    PREFIX,
    SETTINGS,
    Settings,
    Source,
    find_overruled,
    mask_urls,
    read_settings,
)

#: The value of a setting as JSON.
JsonValue = str | int | bool | list[str] | dict[str, str] | None
#: Settings with secret values, shown only as set or not set.
_SECRETS: Final = frozenset({"secret"})


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    name: str
    value: JsonValue  # of its own type; durations, policies and secrets as text
    source: str
    overruled: str = ""  # an environment variable that the code overrides with another value


@click.command(short_help="Show all settings, their values and sources.")
@connection_options
@json_option
def config(app_path: str | None, url: str | None, as_json: bool) -> None:
    """Show all settings, their values and sources. It does not connect to the engine.

    An option overrides the code of the app, the code overrides the environment, and the environment
    overrides the default. Passwords and secrets are shown as ***.

    \b
    windlass config --app shop.tasks:app
    windlass config --json
    """
    path = find_app_path(app_path)
    settings = _settle(path, url)
    overruled = find_overruled(settings, os.environ)
    rows = [_row_of_app(path), *(_row(settings, name, overruled) for name in SETTINGS)]
    if as_json:
        print_json(rows)
        return
    # Long values come last: only that column is wrapped.
    print_table(
        ["setting", "source", "value"],
        ((row.name, _near(row.source), _text(row.value)) for row in rows),
    )
    for name, variable in overruled.items():
        say(f"{variable} ignored: overridden in code by {name}.")


def _settle(path: AppPath | None, url: str | None) -> Settings:
    """Return the settings of a worker with the same options."""
    url = url and absolute_url(url)  # first: importing the app may change the folder
    settings = read_settings({}, os.environ) if path is None else import_app(path).settings
    if url is None:
        return settings
    read_settings({"url": url}, {})  # raise an error for an invalid url
    return override_url(settings, url)


def _row_of_app(path: AppPath | None) -> Row:
    if path is None:
        return Row(name="app", value=None, source="not named")
    return Row(name="app", value=path.target, source=path.source)


def _row(settings: Settings, name: str, overruled: dict[str, str]) -> Row:
    return Row(
        name=name,
        value=_shown(name, getattr(settings, SETTINGS[name].field), SETTINGS[name].field),
        source=_source(settings.sources[name], name),
        overruled=overruled.get(name, ""),
    )


def _near(source: str) -> str:
    """Return a path relative to the current folder, if the file is below it."""
    below = os.getcwd() + os.sep
    return source.removeprefix(below) if os.path.isabs(source) else source


def _source(source: Source, name: str) -> str:
    match source:
        case Source.OPTION:
            return f"--{name}"
        case Source.ARGUMENT:
            return "code"
        case Source.ENVIRONMENT:
            return PREFIX + name.upper()
        case Source.DEFAULT:
            return "default"


def _shown(name: str, value: object, field: str) -> JsonValue:
    if name in _SECRETS:
        return "***" if value else ""
    if field.endswith("_ms"):
        return describe_ms(int(str(value)))
    match value:
        case int():  # bool as well
            return value
        case tuple():
            return [str(part) for part in value]
        case Mapping():
            return {str(key): str(part) for key, part in value.items()}
        case _:
            return mask_urls(str(value))


def _text(value: JsonValue) -> str:
    """Format a value as in the environment."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            return ",".join(value)
        case dict():
            return ",".join(f"{key}={part}" for key, part in value.items())
        case _:
            return str(value)

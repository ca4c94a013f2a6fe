"""Find the app and the engine of a command.

1. The app is `--app module:attr`, else `WINDLASS_APP`, else `[tool.windlass] app` of the nearest
   pyproject.toml. A url is never read from that file: it may contain a password.
2. `connect`, and `connected` as a decorator, are for commands that read or change stored data. They
   need no app: `--url` or `WINDLASS_URL` is enough, and with `--url` only an app that `--app` names
   is imported. With an app they know all its tasks, as a worker does. They never create a
   database: with a mistyped path, an empty database would report that all is well.
   After a command that changes something they add an entry to the audit trail (`audit_trail`).
3. `connect_to_enqueue` imports the app and its tasks, and may create a database.
4. The url is `--url`, else that of the code of the app, else `WINDLASS_URL`. A message reports an
   ignored `WINDLASS_URL`.

After an error nothing is closed: the process ends anyway, and closing an unavailable engine would
wait for it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import click
import msgspec

from windlass.app import Windlass
from windlass.app_loader import load_app, load_tasks
from windlass.cli.support.audit_trail import audited
from windlass.cli.support.output import say
from windlass.cli.support.parameters import connection_options
from windlass.core.foreign_words import nearest
from windlass.engine.contract import Capability
from windlass.engine.url import absolute_url
from windlass.errors import AppNotFound, EngineError, WindlassError
from windlass.settings import Settings, Source, find_overruled, without_secrets

T = TypeVar("T")


class AppPath(NamedTuple):
    """The name of an app, and the folder of the pyproject.toml or shell that names it."""

    target: str  # module:attribute
    folder: Path
    source: str  # the option, variable or file with the name


# ----------------------------------------------------------------------------------------- the app


def find_app_path(given: str | None) -> AppPath | None:
    for named, source in ((given, "--app"), (os.environ.get("WINDLASS_APP"), "WINDLASS_APP")):
        if named:
            return AppPath(named, Path.cwd(), source)
    return _from_pyproject()


def find_optional_app_path(given: str | None, url: str | None) -> AppPath | None:
    """Find the app of a command that works without one. `--url` without `--app` is the way to look
    at jobs when the app cannot be imported."""
    return None if url is not None and given is None else find_app_path(given)


def named_once(argument: str | None, option: str | None) -> str | None:
    """The app of a command that takes it as an argument or by --app."""
    if argument and option and argument != option:
        raise click.UsageError(
            f"Expected one app, found {argument} as the argument and {option} by --app."
        )
    return argument or option


def require_app_path(given: str | None) -> AppPath:
    path = find_app_path(given)
    if path is None:
        raise AppNotFound(
            "Expected an app, found none. Name it as module:attribute, for example "
            "`--app shop.tasks:app`, or set WINDLASS_APP, or write it as `app` under "
            "[tool.windlass] in pyproject.toml."
        )
    return path


def import_app(path: AppPath) -> Windlass:
    """Import the app like `python -m`: from the current folder, and from the folder of the
    pyproject.toml that names the app."""
    for folder in (path.folder, Path.cwd()):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    try:
        return load_app(path.target)
    except WindlassError:
        raise  # the message already says how to fix the error
    except (Exception, SystemExit) as error:  # a module can raise anything
        raise AppNotFound(_why_not_imported(path, error)) from error


def import_app_and_tasks(path: AppPath) -> Windlass:
    """Import the app and the modules of its setting `include`."""
    app = import_app(path)
    load_tasks(app)
    return app


def _import_to_look(path: AppPath) -> Windlass:
    """Import the app and its tasks for a command that works without them too."""
    app = import_app(path)
    try:
        load_tasks(app)
    except WindlassError as error:
        error.add_note("This command works without the app as well: give --url URL and no --app.")
        raise
    return app


def let_children_import(path: AppPath) -> None:
    """Let children of a worker import the app. They add the current folder themselves."""
    if path.folder != Path.cwd():
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(path.folder), *([known] if known else [])])


def _why_not_imported(path: AppPath, error: BaseException) -> str:
    module = path.target.partition(":")[0]
    cause = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    advice = f"Fix the error; `python -c 'import {module}'` shows the full traceback."
    said = " ".join(getattr(error, "__notes__", ())) or advice
    return f"Importing {module} failed with {cause}{_place_of(error, path.folder)}. {said}"


def _place_of(error: BaseException, folder: Path) -> str:
    """Return the innermost line of the traceback in the folder of the app."""
    if isinstance(error, SyntaxError):
        return ""  # the message of the error has the line
    import traceback  # slow to import, and needed only here

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    if not own:
        return ""
    return f" ({os.path.relpath(own[-1].filename)}, line {own[-1].lineno})"


# ---------------------------------------------------------------------------------- pyproject.toml


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """The content of [tool.windlass]."""

    app: str | None = None


class _Tools(msgspec.Struct):
    windlass: _Table = msgspec.field(default_factory=_Table)


class _Project(msgspec.Struct):
    tool: _Tools = msgspec.field(default_factory=_Tools)


def _from_pyproject() -> AppPath | None:
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            app = _read_project(file).tool.windlass.app
            return AppPath(app, folder, str(file)) if app else None
    return None


def _read_project(file: Path) -> _Project:
    import tomllib  # slow to import, and seldom needed

    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        return msgspec.convert(data, _Project)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} is not valid TOML ({error}). Fix the file.") from error
    except msgspec.ValidationError as error:
        unknown = re.search("unknown field `([^`]*)`", str(error))
        question = nearest(unknown[1], _Table.__struct_fields__) if unknown else ""
        raise click.UsageError(
            f'Expected in {file} under [tool.windlass] only app = "module:attribute", found '
            f"something else: {error}.{question} Remove it: settings belong into the code of "
            "the app, or into WINDLASS_* in the environment."
        ) from error


# -------------------------------------------------------------------------------------- the engine


@contextmanager
def connect(
    app_path: str | None,
    url: str | None,
    *,
    even_unused: bool = False,
) -> Iterator[Windlass]:
    """Connect to the engine of a command. With only a url, use an app without tasks. Refuse an
    engine that was never used, unless the command may look at one."""
    app, is_default_url = _find_app(app_path, url)
    _require_engine(app)
    if is_default_url or not even_unused:
        require_used(app, is_default_url=is_default_url)
    with audited(app):
        yield app
    app.close()


def find_settings(app_path: str | None, url: str | None) -> Settings:
    """Find the settings of the app of a command, without opening its engine."""
    return _find_app(app_path, url)[0].settings


def _find_app(app_path: str | None, url: str | None) -> tuple[Windlass, bool]:
    """Return the app of a command, and whether neither an app nor a url was given."""
    path = find_optional_app_path(app_path, url)
    url = url and absolute_url(url)  # first: importing the app may change the folder
    if path is None:
        app = Windlass(url)
        return app, app.settings.sources["url"] is Source.DEFAULT
    app = _import_to_look(path)
    _replace_url(app, url)
    _tell_overruled(app)
    return app, False


def require_used(app: Windlass, *, is_default_url: bool = False) -> None:
    """Refuse an engine that was never used."""
    if app.engine.is_used():
        return
    file, location = _sqlite_file(app.settings.url), app.engine.location
    told = _no_database(file, is_default_url=is_default_url) if file else _not_set_up(location)
    raise EngineError(told, location=str(file or location))


def connected(command: Callable[..., T]) -> Callable[..., T]:
    """Add the connection options to a command, and call it with the app."""

    @connection_options
    @wraps(command)
    def connecting(app_path: str | None, url: str | None, **given: Any) -> T:
        with connect(app_path, url) as app:
            return command(app=app, **given)

    return connecting


@contextmanager
def connect_to_enqueue(app_path: str | None, url: str | None) -> Iterator[Windlass]:
    """Import the app with its tasks. `url` overrides the url of the app."""
    url = url and absolute_url(url)  # first: importing the app may change the folder
    app = import_app_and_tasks(require_app_path(app_path))
    _replace_url(app, url)
    _tell_overruled(app)
    _require_engine(app)
    yield app
    app.close()


def _replace_url(app: Windlass, url: str | None) -> None:
    if url is not None:
        app.close()  # the module of the app may have opened the engine
        app.settings = override_url(app.settings, url)


def override_url(settings: Settings, url: str) -> Settings:
    sources = {**settings.sources, "url": Source.OPTION}
    return msgspec.structs.replace(settings, url=url, sources=sources)


def _tell_overruled(app: Windlass) -> None:
    """Report an ignored WINDLASS_URL. Other settings do not lead to another engine."""
    if "url" in find_overruled(app.settings, os.environ):
        url = without_secrets(app.settings.url)
        say(f"WINDLASS_URL ignored: overridden in code by {url}. --url overrides both.")


def _require_engine(app: Windlass) -> None:
    """Refuse an invalid url. The engine is not contacted: it connects at its first use."""
    try:
        engine = app.engine
    except EngineError as error:
        raise click.UsageError(str(error)) from error
    except ValueError as error:
        raise click.UsageError(
            f"The url cannot be read: {error}. Write for example sqlite:///jobs.db."
        ) from error
    if Capability.MANY_PROCESSES not in engine.capabilities:
        raise click.UsageError(
            f"Jobs at {engine.location} exist only in the process that enqueued them, and this is "
            "another process. Give a url that several processes can use, such as sqlite:///jobs.db."
        )


def _sqlite_file(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path[1:])).absolute() if parts.scheme == "sqlite" else None


def _not_set_up(location: str) -> str:
    return (
        f"windlass was never used at {location}, and this command does not set it up. Check the "
        "url: host, port, database, schema or namespace. The first worker or job sets it up."
    )


def _no_database(file: Path, *, is_default_url: bool) -> str:
    if is_default_url:
        return (
            f"Neither an app nor a url was given, and there is no database {file}. Name the app "
            "with --app or WINDLASS_APP, or the engine with --url or WINDLASS_URL."
        )
    return (
        f"There is no database {file}, and none was created. Check the url, and the folder from "
        "which a relative path starts. The first worker or job creates it."
    )

"""Which app and which engine a command speaks to.

1. The app is `--app module:attr`, else `WINDLASS_APP`, else `[tool.windlass] app` of the nearest
   pyproject.toml. A url is never read from there: it may hold a password.
2. `connect` is for commands that look at what is stored or change it. They need no app: a `--url`,
   or `WINDLASS_URL`, is enough. They never make a database: where a path is mistyped, an empty one
   would say that all is well.
3. `connect_to_enqueue` imports the app, and may make a database.
4. The url is `--url`, else what the code of the app says, else `WINDLASS_URL`. Where that one is
   set and not heeded, a sentence says so.

After an error nothing is closed: the process ends anyway, and to take leave of an engine that is
away would be to wait for it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import click
import msgspec

from windlass.app import Windlass
from windlass.app_loader import load_app, load_tasks
from windlass.cli.support.output import say
from windlass.engine.contract import Capability
from windlass.engine.url import absolute_url
from windlass.errors import AppNotFound, EngineError, WindlassError
from windlass.settings import Source, find_overruled, nearest, without_secrets


class AppPath(NamedTuple):
    """How an app is named, and the folder of whoever named it."""

    target: str  # module:attribute
    folder: Path
    source: str  # where the name is from


# ----------------------------------------------------------------------------------------- the app


def find_app_path(given: str | None) -> AppPath | None:
    for named, source in ((given, "--app"), (os.environ.get("WINDLASS_APP"), "WINDLASS_APP")):
        if named:
            return AppPath(named, Path.cwd(), source)
    return _from_pyproject()


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
    """Import the app as `python -m` would: modules in the current folder are found, and those
    beside a pyproject.toml that names the app."""
    for folder in (path.folder, Path.cwd()):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    try:
        return load_app(path.target)
    except WindlassError:
        raise  # says what to do
    except (Exception, SystemExit) as error:  # a module can raise anything
        raise AppNotFound(_why_not_imported(path, error)) from error


def import_app_and_tasks(path: AppPath) -> Windlass:
    """The app with the modules that its setting `include` names."""
    app = import_app(path)
    load_tasks(app)
    return app


def let_children_import(path: AppPath) -> None:
    """The same for the children of a worker, which put the current folder first by themselves."""
    if path.folder != Path.cwd():
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(path.folder), *([known] if known else [])])


def _why_not_imported(path: AppPath, error: BaseException) -> str:
    module = path.target.partition(":")[0]
    cause = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    advice = f"Mend it; `python -c 'import {module}'` shows the whole way there."
    said = " ".join(getattr(error, "__notes__", ())) or advice
    return f"Importing {module} failed with {cause}{_place_of(error, path.folder)}. {said}"


def _place_of(error: BaseException, folder: Path) -> str:
    """The innermost line inside the folder of the app: that is where mending begins."""
    if isinstance(error, SyntaxError):
        return ""  # its message names the place
    import traceback  # slow to import, and needed only here

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    if not own:
        return ""
    return f" ({os.path.relpath(own[-1].filename)}, line {own[-1].lineno})"


# ---------------------------------------------------------------------------------- pyproject.toml


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """What [tool.windlass] may contain."""

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
        raise click.UsageError(f"{file} cannot be read as TOML ({error}). Mend it.") from error
    except msgspec.ValidationError as error:
        unknown = re.search("unknown field `([^`]*)`", str(error))
        question = nearest(unknown[1], _Table.__struct_fields__) if unknown else ""
        raise click.UsageError(
            f'Expected in {file} under [tool.windlass] only app = "module:attribute", found '
            f"something else: {error}.{question} Take it away: settings belong into the code of "
            "the app, or into WINDLASS_* in the environment."
        ) from error


# -------------------------------------------------------------------------------------- the engine


@contextmanager
def connect(
    app_path: str | None, url: str | None, *, or_its_server: bool = False
) -> Iterator[Windlass]:
    """The app whose jobs a command looks at; with only a url, one that knows no tasks. A place that
    nobody has used is refused, unless there is a server to look at."""
    path = None if url is not None else find_app_path(app_path)
    app = Windlass(url) if path is None else import_app(path)
    if path is not None:
        _tell_overruled(app)
    _require_engine(app)
    file = _sqlite_file(app.settings.url)
    if not (or_its_server and file is None) and not app.engine.is_used():
        nobody_said = path is None and app.settings.sources["url"] is Source.DEFAULT
        location = app.engine.location
        told = _no_database(file, nobody_said=nobody_said) if file else _not_set_up(location)
        raise EngineError(told, location=str(file or location))
    yield app
    app.close()


@contextmanager
def connect_to_enqueue(app_path: str | None, url: str | None) -> Iterator[Windlass]:
    """The app that has the tasks; a url takes the place of its own."""
    url = url and absolute_url(url)  # before the app is imported, which may change the folder
    app = import_app_and_tasks(require_app_path(app_path))
    if url is not None:
        app.close()  # its module may have used the engine already
        sources = {**app.settings.sources, "url": Source.OPTION}
        app.settings = msgspec.structs.replace(app.settings, url=url, sources=sources)
    _tell_overruled(app)
    _require_engine(app)
    yield app
    app.close()


def _tell_overruled(app: Windlass) -> None:
    """The url only: the others do not lead a command to the wrong place."""
    if "url" in find_overruled(app.settings, os.environ):
        url = without_secrets(app.settings.url)
        say(
            f"WINDLASS_URL is not heeded: the code of the app says {url}, which comes first. "
            "--url comes before both."
        )


def _require_engine(app: Windlass) -> None:
    """An engine connects at its first use: only a wrong url is refused here."""
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
            f"Jobs at {engine.location} are kept by one process for itself, and this is another. "
            "Give a url that several can use, such as sqlite:///jobs.db."
        )


def _sqlite_file(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path[1:])).absolute() if parts.scheme == "sqlite" else None


def _not_set_up(location: str) -> str:
    return (
        f"Nobody has used windlass at {location}, and nothing was set up there. Check the url: "
        "host, port, number of the database, namespace. The first worker or job there sets it up."
    )


def _no_database(file: Path, *, nobody_said: bool) -> str:
    if nobody_said:
        return (
            f"Neither an app nor a url was given, and there is no database {file}. Name the app "
            "with --app or WINDLASS_APP, or the engine with --url or WINDLASS_URL."
        )
    return (
        f"There is no database {file}, and none was made. Check the url, and the folder from which "
        "a relative path starts. The first job that is enqueued there makes it."
    )

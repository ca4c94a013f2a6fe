"""Import the app, and the modules with its tasks, for workers and commands.

1. `load_app` goes from `module:attribute`, as written on a command line, to the app that it names.
2. `load_tasks` imports the modules of its setting `include`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from windlass.app import Windlass
from windlass.core.foreign_words import nearest
from windlass.errors import AppNotFound
from windlass.included_modules import import_included

_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
#: The line that makes an app.
_MADE: Final = re.compile(r"^(\w+)\b[^=\n]*= *(?:windlass\.)?Windlass\(", re.MULTILINE)


def load_app(target: str) -> Windlass:
    """Import the module and return its app.

    Raises `AppNotFound` when the module or the attribute does not exist, or is not an app. An error
    raised by the module itself passes unchanged: its traceback shows what to fix."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        advice = (
            " Write the module as Python imports it, a colon, and the variable that holds the app."
        )
        raise AppNotFound(
            f"Expected an app as module:attribute, such as shop.tasks:app, found {target!r}."
            f"{_app_of(module_name) or advice}"
        )
    found = _attribute(_import(module_name), attribute)
    if not isinstance(found, Windlass):
        hint = " Name the variable that holds the app."
        if isinstance(found, ModuleType):
            hint = _instead(found, "")
        raise AppNotFound(
            f"Expected {target} to be a windlass.Windlass, found {type(found).__name__}.{hint}"
        )
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            _advise_folder_above(name, error)
            raise  # the module exists; one of its imports does not
        raise AppNotFound(
            f"There is no module {missing}.{_modules_like(missing)} Looked in {os.getcwd()} and on "
            "the path of Python. Give the module as Python imports it (shop.tasks, not "
            "shop/tasks.py), from the folder that contains it."
        ) from None


def _advise_folder_above(name: str, error: ModuleNotFoundError) -> None:
    """Add a note if the current folder is the missing package."""
    here = Path.cwd().name
    if error.name and error.name.partition(".")[0] == here:
        error.add_note(
            f"The current folder is {here} itself: start from the folder above it, with the module "
            f"{here}.{name}."
        )


def _modules_like(name: str) -> str:
    """Suggest an existing module, in the current folder or in a package below it."""
    *packages, _ = name.split(".")
    prefix = "".join(f"{package}." for package in packages)
    found = pkgutil.iter_modules([os.path.join(os.getcwd(), *packages)], prefix)
    return nearest(name, (module.name for module in found))


def _attribute(module: ModuleType, path: str) -> object:
    value: object = module
    for name in path.split("."):
        if not hasattr(value, name):
            raise AppNotFound(f"{module.__name__} has no {path}.{_instead(module, name)}")
        value = getattr(value, name)
    return value


def _instead(module: ModuleType, name: str) -> str:
    for key, held in vars(module).items():
        if isinstance(held, Windlass):
            return f" It holds the app {key}: write {module.__name__}:{key}."
    below = _app_below(module)
    return below or nearest(name, vars(module)) or " It holds no app: name the module that does."


def _app_of(name: str) -> str:
    """Suggest the app of a module that was given without an attribute, if it can be imported."""
    if not _MODULE.fullmatch(name):
        return ""
    with suppress(Exception, SystemExit):  # a module can raise anything
        module = importlib.import_module(name)
        apps = [key for key, held in vars(module).items() if isinstance(held, Windlass)]
        if len(apps) == 1:
            return f" It holds the app {apps[0]}: write {name}:{apps[0]}."
        return "" if apps else _app_below(module)
    return ""


def _app_below(package: ModuleType) -> str:
    """Suggest an app in a module of the package.

    Reads the modules and does not import them: an import can have side effects."""
    for folder in getattr(package, "__path__", ()):
        for file in sorted(Path(folder).glob("*.py")):
            with suppress(OSError):  # the file may be unreadable
                if made := _MADE.search(file.read_text(encoding="utf-8", errors="replace")):
                    name = f"{package.__name__}.{file.stem}"
                    return f" {name} makes an app: write {name}:{made[1]}."
    return ""


def load_tasks(app: Windlass) -> None:
    """Import the modules that the setting `include` of the app names."""
    import_included(app.settings.include)

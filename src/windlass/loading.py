"""From `module:attribute`, as written on a command line, to the app that it names."""

from __future__ import annotations

import importlib
from types import ModuleType

from windlass.app import Windlass
from windlass.errors import AppNotFound
from windlass.settings import nearest


def load_app(target: str) -> Windlass:
    """Import the module and give its app.

    Raises `AppNotFound` when there is no such module or attribute, or when it is no app. An error
    raised by the module itself comes through as it is: its traceback says what to mend."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        raise AppNotFound(
            f"Expected an app as module:attribute, such as shop.tasks:app, found {target!r}. Write "
            "the module as Python imports it, a colon, and the variable that holds the app."
        )
    found = _attribute(_import(module_name), attribute)
    if not isinstance(found, Windlass):
        raise AppNotFound(
            f"Expected {target} to be a windlass.Windlass, found {type(found).__name__}. "
            f"Name the variable that holds the app."
        )
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise  # the module is there; something that it imports is not
        raise AppNotFound(
            f"There is no module {missing}.{_modules_like(missing)} Give the module as Python "
            "imports it (shop.tasks, not shop/tasks.py), from the folder that contains it."
        ) from None


def _modules_like(name: str) -> str:
    """A question about a module that is there, in the current folder or in a package below it."""
    import os
    import pkgutil  # slow to import, and needed only after a mistake

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
    return nearest(name, vars(module)) or " It holds no app: name the module that does."

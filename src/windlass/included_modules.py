"""Import the modules that the setting `include` names: those that declare tasks.

Workers and commands do so when they start. Producers need not: they import the tasks that they
enqueue.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType

from windlass.errors import IncludeFailed, WindlassError


def import_included(patterns: Sequence[str]) -> None:
    """Import the modules that these patterns name.

    Raises `IncludeFailed` when a module does not exist or raises an error, and when a pattern
    matches no module."""
    for pattern in patterns:
        names = list(_modules_for(pattern))
        if not names:
            raise IncludeFailed(
                f"include={pattern!r} matches no module. A * stands for one name below a package: "
                "'billing.*' is every module in billing, 'billing.*.tasks' the module tasks of "
                "every package in it.",
                module=pattern,
            )
        for name in names:
            _include(name, pattern)


def _modules_for(pattern: str) -> Iterator[str]:
    head, star, rest = pattern.partition(".*")
    if not star:
        yield pattern
        return
    for name in _names_in(_include(head, pattern), only_packages=bool(rest)):
        candidate = f"{head}.{name}{rest}"
        fixed = candidate.partition(".*")[0]
        if not rest or _is_there(fixed, pattern):
            yield from _modules_for(candidate)


def _names_in(package: ModuleType, *, only_packages: bool) -> list[str]:
    """The modules of the package except `__main__`, sorted: the same order on every machine."""
    found = pkgutil.iter_modules(getattr(package, "__path__", ()))
    fit = [module.name for module in found if module.ispkg or not only_packages]
    return sorted(name for name in fit if name != "__main__")


def _is_there(name: str, pattern: str) -> bool:
    """Find a module. Imports its packages: only they know where their modules are."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False  # its parent is a plain module, not a package
    except (Exception, SystemExit) as error:  # a package can raise anything
        parent = name.rpartition(".")[0]
        raise IncludeFailed(_why_not_included(parent, pattern, error), module=parent) from error


def _include(name: str, pattern: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except WindlassError as error:  # its message says how to fix it
        error.add_note(f"The module {name} (from include={pattern!r}) raised this.")
        raise
    except (Exception, SystemExit) as error:  # a module can raise anything
        failed = IncludeFailed(_why_not_included(name, pattern, error), module=name)
        if _missing(name, error):
            raise failed from None  # the traceback has no line of the app
        raise failed from error


def _missing(name: str, error: BaseException) -> str:
    """Return the module that does not exist: this one, or a package that it is in. Empty for any
    other error."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing if missing and f"{name}.".startswith(f"{missing}.") else ""


def _why_not_included(name: str, pattern: str, error: BaseException) -> str:
    named = f"The module {name} (from include={pattern!r})"
    missing = _missing(name, error)
    if missing:
        return (
            f"{named} does not exist: no module {missing} can be imported from here. Write it "
            "as Python imports it, and start from the folder that contains it."
        )
    cause = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    return f"{named} cannot be imported: {cause}. Fix the error, or remove it from include."

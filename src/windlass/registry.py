"""Turn functions into tasks, for an app and for a group of tasks.

1. `Registrar` has the decorator `task(...)`: it reads the options, makes the task, and passes it to
   the app or the group.
2. `Registry` keeps tasks by name and by alias.
3. `read_function` and `default_name` check the function and name the task.
"""

from __future__ import annotations

import inspect
import os.path
import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from windlass.client.options import TaskOptions, read_task_options
from windlass.context import Context
from windlass.core.unique import Unique
from windlass.errors import InvalidTask
from windlass.hooks import HOOK_NAMES, JobHook, read_hook
from windlass.task import AsyncTask, Home, SyncTask, Task

if TYPE_CHECKING:
    from windlass.core.schedules.triggers import Cron, Every

    Timing = Cron | Every | Sequence[Cron | Every]

P = ParamSpec("P")
R = TypeVar("R")

_TASK_NAME: Final = re.compile(r"[^\s\x00-\x1f]{1,200}")
#: The name of the main module of a process, or of a child of `multiprocessing`.
_MAIN: Final = ("__main__", "__mp_main__")


class Decorator(Protocol):
    """The decorator that `app.task(...)` returns: makes a task from a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the more special one comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


class ContextDecorator(Protocol):
    """The decorator for functions with the context as first parameter. Callers do not pass it."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the more special one comes first
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> SyncTask[P, R]: ...


class Registrar:
    """Base class of apps and groups of tasks, with the decorator `task`."""

    @overload
    def task(  # type: ignore[overload-overlap]  # the more special one comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        takes_context: Literal[True],
        name: str = ...,
        aliases: Sequence[str] = ...,
        run_in: Literal["process"] = ...,
        transaction: bool = ...,
        schedule: Timing = ...,
        unique: Unique = ...,
        on_success: JobHook = ...,
        on_retry: JobHook = ...,
        on_dead: JobHook = ...,
        **options: Unpack[TaskOptions],
    ) -> ContextDecorator: ...
    @overload
    def task(
        self,
        /,
        *,
        takes_context: Literal[False] = ...,
        name: str = ...,
        aliases: Sequence[str] = ...,
        run_in: Literal["process"] = ...,
        transaction: bool = ...,
        schedule: Timing = ...,
        unique: Unique = ...,
        on_success: JobHook = ...,
        on_retry: JobHook = ...,
        on_dead: JobHook = ...,
        **options: Unpack[TaskOptions],
    ) -> Decorator: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a task from a function: `@app.task`, or `@app.task(queue="mail", ...)`.

        Takes `name`, `aliases`, `takes_context`, `run_in`, `transaction`, `schedule`, `unique`,
        `on_success`, `on_retry`, `on_dead`, `queue`, `requires`, `priority`, `retry`, `timeout`,
        `expires`, `result_ttl` and `headers`."""
        name = checked_name(options.pop("name")) if "name" in options else None
        aliases = _checked_aliases(options.pop("aliases", ()))
        takes_context = _read_flag("takes_context", options)
        in_transaction = _read_flag("transaction", options)
        runs_alone = "run_in" in options and _is_process(options.pop("run_in"))
        unique = _checked_unique(options.pop("unique")) if "unique" in options else None
        schedule = options.pop("schedule", None)
        hooks: dict[str, JobHook] = {
            name: read_hook(name, options.pop(name)) for name in HOOK_NAMES if name in options
        }
        choices = read_task_options(options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            made_of = read_function(function, takes_context)
            if name is None:
                self._check_reachable(made_of)
            full_name = self._full_name(name, made_of)
            if full_name in aliases:
                raise InvalidTask(
                    f"{full_name} is the name of the task, not an alias: leave it out."
                )
            kind = AsyncTask if inspect.iscoroutinefunction(function) else SyncTask
            task: Task[..., Any] = kind(
                self._home(),
                made_of,
                name=full_name,
                aliases=aliases,
                takes_context=takes_context,
                runs_alone=runs_alone,
                in_transaction=in_transaction,
                unique=unique,
                schedule=schedule,
                hooks=hooks,
                declared=choices,
            )
            self._add(task)
            return task

        return register if function is None else register(function)

    def _full_name(self, name: str | None, function: FunctionType) -> str:
        """The name of the task. `name` is the argument of the decorator."""
        return name or default_name(function)

    def _check_reachable(self, function: FunctionType) -> None:
        """Check a function that is given without a name for its task."""
        refuse_unreachable(function, self)

    @abstractmethod
    def _home(self) -> Home: ...

    @abstractmethod
    def _add(self, task: Task[..., Any]) -> None: ...


class Registry:
    """Tasks with code by name (`tasks`), and by name and alias (`known`); and remote tasks."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self.known: dict[str, Task[..., Any]] = {}
        self.remote: dict[str, Task[..., Any]] = {}

    def find(self, name: str) -> Task[..., Any] | None:
        """The task with code of this name or alias, or the remote task of this name."""
        return self.known.get(name) or self.remote.get(name)

    def check(self, task: Task[..., Any]) -> None:
        """Raise if the name or an alias of the task is taken."""
        for name in (task.name, *task.aliases):
            other = self.known.get(name)
            if other is not None:
                raise InvalidTask(_clash(name, task, other))
            if name in self.remote:
                raise InvalidTask(_clash_with_remote(name, task))

    def add(self, task: Task[..., Any]) -> None:
        self.check(task)
        self.tasks[task.name] = task
        self.known.update(dict.fromkeys((task.name, *task.aliases), task))

    def add_remote(self, task: Task[..., Any]) -> None:
        """Add a remote task. A worker would run the jobs of a name that has code."""
        known = self.known.get(task.name)
        if known is not None:
            raise InvalidTask(_clash_with_remote(task.name, known))
        self.remote[task.name] = task

    def remove(self, task: Task[..., Any]) -> None:
        del self.tasks[task.name]
        for name in (task.name, *task.aliases):
            del self.known[name]


def _clash(name: str, task: Task[..., Any], other: Task[..., Any]) -> str:
    places = f"{_place_of(other.function)} and {_place_of(task.function)}"
    if name == task.name == other.name:
        return (
            f"Two functions have the same task name {name}: {places}. Rename one, or give it "
            "@app.task(name=...)."
        )
    return (
        f"Jobs stored as {name} could belong to two tasks: {places}. Each name and each alias "
        "belongs to one task: remove it from the aliases of the other."
    )


def _clash_with_remote(name: str, task: Task[..., Any]) -> str:
    return (
        f"{name} is declared twice: by task_named as a remote task, and with its code, "
        f"{_place_of(task.function)}. Use the task with the code, or rename one of them."
    )


# ---------------------------------------------------------------------------- functions and names


def read_function(function: object, takes_context: bool) -> FunctionType:
    if isinstance(function, MethodType | classmethod):
        raise InvalidTask(_why_no_method(function.__func__))
    if isinstance(function, staticmethod):
        raise InvalidTask(
            f"{_place_of(function.__func__)} is wrapped by @staticmethod: write @staticmethod "
            "above @app.task, or a function outside of the class."
        )
    if not isinstance(function, FunctionType):
        raise InvalidTask(
            f"A task is made of a function written with def or async def, found {function!r}. "
            "Options are given by name: @app.task(name=...)."
        )
    if function.__name__ == "<lambda>":
        raise InvalidTask(f"The lambda at {_place_of(function)} has no name: write it with def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTask(
            f"{_place_of(function)} is a generator, and a job has one result: return a list, or "
            "enqueue a job for each value."
        )
    if _is_method(function):
        raise InvalidTask(_why_no_method(function))
    if not takes_context and _begins_with_context(function):
        raise InvalidTask(
            f"The first parameter of {_place_of(function)} is the context: write "
            "@app.task(takes_context=True), so that callers need not pass it."
        )
    return function


def read_signature(function: object) -> FunctionType:
    """Check a function that describes a remote task. Its body never runs."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise InvalidTask(
            f"The signature of a remote task is a function written with def, whose body never "
            f"runs, found {function!r}."
        )
    if _begins_with_context(function):
        raise InvalidTask(
            f"The first parameter of {_place_of(function)} is the context, which callers do not "
            "pass: leave it out of the signature."
        )
    return read_function(function, takes_context=False)


def _why_no_method(function: Callable[..., Any]) -> str:
    return (
        f"{_place_of(function)} is a method, and a worker has no object to call it on: write a "
        "function outside of the class that gets what it needs as arguments."
    )


def _is_method(function: FunctionType) -> bool:
    within = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    return within != "" and not within.endswith("<locals>") and first in ("self", "cls")


def refuse_unreachable(function: FunctionType, home: Registrar) -> None:
    """Refuse a function inside a function, for an app or a group that its module holds or imports:
    a worker imports the module, and does not call the function around it. An app that is made in a
    function as well, as in a test or a factory, has such tasks in each process that makes it."""
    around = function.__qualname__.partition(".<locals>")[0]
    if around != function.__qualname__ and _is_held(home, function.__globals__):
        raise InvalidTask(
            f"{_place_of(function)} is defined inside {around}, which a worker does not call: it "
            "would not know the task. Move the function to the top level of its module; if each "
            f"process calls {around} when it starts, give the task a name: @app.task(name=...)."
        )


def _is_held(home: Registrar, names: Mapping[str, object]) -> bool:
    """Whether a module holds this app or group, itself or by a module that it has imported."""
    modules = [held for held in tuple(names.values()) if isinstance(held, ModuleType)]
    return any(held is home for held in chain(tuple(names.values()), *map(_values, modules)))


def _values(module: ModuleType) -> Iterator[object]:
    """The values of a module and of its submodules: `import shop.app` holds only `shop`."""
    for name, value in tuple(vars(module).items()):
        yield value
        if isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}":
            yield from _values(value)


def _read_flag(name: str, options: dict[str, Any]) -> bool:
    value = options.pop(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, found {value!r}")
    return value


def _is_process(run_in: object) -> bool:
    if run_in == "process":
        return True
    raise ValueError(
        f'run_in must be "process", for a process of its own, found {run_in!r}: without it plain '
        "functions run in threads and coroutines on an event loop."
    )


def _checked_unique(unique: object) -> Unique:
    if isinstance(unique, Unique):
        return unique
    raise TypeError(f"unique must be a windlass.Unique(...), found {unique!r}")


def _checked_aliases(aliases: object) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise TypeError(
            f"aliases must be a list of names that the task had before, found {aliases!r}: write "
            f'aliases=["shop.tasks.old_name"].'
        )
    return tuple(dict.fromkeys(checked_name(alias) for alias in aliases))


def _begins_with_context(function: FunctionType) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation in (Context, "Context", "windlass.Context")


def checked_name(name: object) -> str:
    if isinstance(name, str) and _TASK_NAME.fullmatch(name):
        return name
    raise InvalidTask(
        f"The name of a task must be text of 1 to 200 characters without spaces, found {name!r}."
    )


def default_name(function: FunctionType) -> str:
    """The default name of a task: `module.function`, or `module.outer.inner` if nested."""
    module = function.__module__
    if module in _MAIN or module.startswith("<"):  # of runpy: "<run_path>"
        module = _name_of_main(function)
    return checked_name(f"{module}.{local_name(function)}")


def local_name(function: FunctionType) -> str:
    return function.__qualname__.replace(".<locals>", "")


def _name_of_main(function: FunctionType) -> str:
    """The name under which a worker imports the `__main__` module of this process."""
    spec, file = function.__globals__.get("__spec__"), function.__globals__.get("__file__")
    if spec is not None and spec.name not in _MAIN:  # python -m package.module
        return str(spec.name)
    path = os.path.abspath(file or "")
    stem = os.path.splitext(os.path.basename(path))[0]
    names = [stem, *_packages_of(path)]
    if file and all(name.isidentifier() for name in names) and stem != "__main__":
        return ".".join(reversed(names))  # python module.py, python package/module.py
    raise InvalidTask(
        f"The task {function.__qualname__} is defined where a worker cannot import it from "
        f"({_place_of(function)}). Move it into a module, or give it @app.task(name=...)."
    )


def _packages_of(file: str) -> list[str]:
    """The packages that contain a file, the innermost first. A folder without `__init__.py` counts
    as the import root, because Python imports from the folder of a script."""
    packages = []
    outer, folder = os.path.split(os.path.dirname(file))
    while folder and os.path.isfile(os.path.join(outer, folder, "__init__.py")):
        packages.append(folder)
        outer, folder = os.path.split(outer)
    return packages


def _place_of(function: Callable[..., Any]) -> str:
    code = function.__code__ if isinstance(function, FunctionType) else None
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{function.__module__}.{function.__qualname__}{place}"

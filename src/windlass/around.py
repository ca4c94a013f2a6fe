"""What surrounds jobs: middleware around every run, and the lifespan of the process they run in.

1. `read_middleware` and `read_lifespan` check what an app was given, where it was given.
2. `Surrounded` is one run inside all middleware of an app. The first one declared is the outermost.
   Each may see the error of the task, or replace it by its own; none can make it unseen, because a
   job that has no value has not succeeded.

A generator function that yields once is a context manager in its shortest form; anything else that
is called and gives one will do.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from windlass.context import Context
from windlass.errors import InvalidSurroundings

#: What `@app.around_run` decorates.
AroundRun: TypeAlias = Callable[[Context], Iterator[None] | AbstractContextManager[Any]]
#: What `Windlass(lifespan=...)` takes.
LifespanFunction: TypeAlias = Callable[
    [],
    Iterator[Any]
    | AsyncIterator[Any]
    | AbstractContextManager[Any]
    | AbstractAsyncContextManager[Any],
]


class Middleware(NamedTuple):
    """One function declared with `@app.around_run`."""

    name: str
    open: Callable[[Context], Any]


class Lifespan(NamedTuple):
    """The function given as `Windlass(lifespan=...)`."""

    name: str
    open: Callable[[], Any]


# ---------------------------------------------------------------------------------------- checking


def read_middleware(function: object) -> Middleware:
    name = _name_of(function)
    if not callable(function):
        raise InvalidSurroundings(
            f"@app.around_run is for a function that takes the context and yields once, found "
            f"{function!r}."
        )
    if _is_async(function):
        raise InvalidSurroundings(
            f"The middleware {name} is written with async def. One form serves plain functions and "
            "coroutines alike: write it with def, and yield where the task runs."
        )
    return Middleware(name, _as_manager(function))


def read_lifespan(function: object) -> Lifespan:
    name = _name_of(function)
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidSurroundings(
            f"lifespan must be a function that yields once, written with def or async def, or one "
            f"that gives a context manager, found {function!r}."
        )
    if inspect.isasyncgenfunction(function):
        return Lifespan(name, asynccontextmanager(function))
    return Lifespan(name, _as_manager(function))


def _as_manager(function: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.isgeneratorfunction(function):
        return function
    manager: Callable[..., Any] = contextmanager(function)
    return manager


def _is_async(function: Callable[..., Any]) -> bool:
    """Also below `asynccontextmanager`."""
    plain = inspect.unwrap(function)
    return inspect.isasyncgenfunction(plain) or inspect.iscoroutinefunction(plain)


def _name_of(function: object) -> str:
    named = inspect.unwrap(function) if callable(function) else function
    module = getattr(named, "__module__", type(function).__module__)
    return f"{module}.{getattr(named, '__qualname__', type(function).__qualname__)}"


# ---------------------------------------------------------------------------------------- running


class Surrounded:
    """A context manager for one run. A class and no generator: it is made for every job."""

    __slots__ = ("_context", "_entered", "_middleware")

    def __init__(self, middleware: Sequence[Middleware], context: Context) -> None:
        self._middleware = middleware
        self._context = context
        self._entered: list[tuple[str, AbstractContextManager[Any]]] = []

    def __enter__(self) -> None:
        for name, open_manager in self._middleware:
            try:
                manager = open_manager(self._context)
                manager.__enter__()
            except BaseException as error:
                error.add_note(f"Raised by the middleware {name}, before the task.")
                self._leave(error)
                raise
            self._entered.append((name, manager))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._leave(error)
        except BaseException as raised:
            # An interruption may have met the loop itself, between two of them.
            self._leave(raised)
            raise

    def _leave(self, error: BaseException | None) -> None:
        """The innermost first. Each is shown the error as those inside it have left it; that it
        wants to hide it (by returning True) is not heeded."""
        came = error
        while self._entered:
            name, manager = self._entered.pop()
            try:
                if error is None:
                    manager.__exit__(None, None, None)
                else:
                    manager.__exit__(type(error), error, error.__traceback__)
            except BaseException as raised:  # noqa: BLE001  # the next one is left all the same
                if raised is not error:
                    raised.add_note(f"Raised by the middleware {name}, after the task.")
                    error = raised
        if error is not None and error is not came:
            raise error

"""What surrounds jobs: middleware around every run and every enqueue, and the lifespan of the
process they run in.

1. `Outgoing` is what middleware is told of a call that is enqueued.
2. `read_middleware` and `read_lifespan` check what an app was given, where it was given.
3. `Surrounded` is one run, or one enqueue, inside all middleware of an app. The first one declared
   is the outermost. Each may see the error of what is inside, or replace it by its own; none can
   make it unseen, because a job that has no value has not succeeded, and a call that was not stored
   has no job.

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
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from windlass.context import Context
from windlass.errors import InvalidSurroundings

if TYPE_CHECKING:
    from windlass.job import Job


class Outgoing:
    """A call on its way into its queue. `headers` may be changed until it is stored; `job` is the
    handle on it afterwards."""

    __slots__ = ("headers", "job", "priority", "queue", "task")

    def __init__(self, task: str, queue: str, priority: int, headers: dict[str, str]) -> None:
        self.task = task
        self.queue = queue
        self.priority = priority
        self.headers = headers
        self.job: Job[Any] | None = None

    def __repr__(self) -> str:
        return f"<Outgoing call of {self.task} to {self.queue}>"


#: What a run is called in the notes of middleware.
RUN: Final = "the task"

#: What `@app.around_run` decorates.
AroundRun: TypeAlias = Callable[[Context], Iterator[None] | AbstractContextManager[Any]]
#: What `@app.around_enqueue` decorates.
AroundEnqueue: TypeAlias = Callable[[Outgoing], Iterator[None] | AbstractContextManager[Any]]
#: What `Windlass(lifespan=...)` takes.
LifespanFunction: TypeAlias = Callable[
    [],
    Iterator[Any]
    | AsyncIterator[Any]
    | AbstractContextManager[Any]
    | AbstractAsyncContextManager[Any],
]


class Middleware(msgspec.Struct, frozen=True):
    """One function declared with `@app.around_run` or `@app.around_enqueue`."""

    name: str
    open: Callable[[Any], Any]


class Lifespan(msgspec.Struct, frozen=True):
    """The function given as `Windlass(lifespan=...)`."""

    name: str
    open: Callable[[], Any]


# ---------------------------------------------------------------------------------------- checking


def read_middleware(
    function: object, decorator: str = "around_run", takes: str = "the context"
) -> Middleware:
    name = _name_of(function)
    if not callable(function):
        raise InvalidSurroundings(
            f"@app.{decorator} is for a function that takes {takes} and yields once, found "
            f"{function!r}."
        )
    if _is_async(function):
        place = "the task runs" if decorator == "around_run" else "the call is stored"
        raise InvalidSurroundings(
            f"The middleware {name} is written with async def. One form serves plain functions and "
            f"coroutines alike: write it with def, and yield where {place}."
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
    """A context manager for one run. A class and no generator: it is made for every job. `what` it
    surrounds is for the notes on errors."""

    __slots__ = ("_entered", "_middleware", "_subject", "_what")

    def __init__(
        self, middleware: Sequence[Middleware], subject: Context | Outgoing, what: str = RUN
    ) -> None:
        self._middleware = middleware
        self._subject = subject
        self._what = what
        self._entered: list[tuple[str, AbstractContextManager[Any]]] = []

    def __enter__(self) -> None:
        for middleware in self._middleware:
            try:
                manager = middleware.open(self._subject)
                manager.__enter__()
            except BaseException as error:
                error.add_note(f"Raised by the middleware {middleware.name}, before {self._what}.")
                self._leave(error)
                raise
            self._entered.append((middleware.name, manager))

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
                    raised.add_note(f"Raised by the middleware {name}, after {self._what}.")
                    error = raised
        if error is not None and error is not came:
            raise error

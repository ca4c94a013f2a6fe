"""Middleware around every run and every enqueue, and the lifespan of a worker's child process.

1. `EnqueueCall` is the argument of middleware around an enqueue.
2. `EnqueueTracing` is what tracing needs in addition: a scope around many enqueues.
3. `read_middleware` and `read_lifespan` check the functions when they are declared.
4. `MiddlewareStack` enters all middleware of an app around one run or one enqueue. The middleware
   declared first is the outermost. Each middleware gets the error of the run or enqueue, and may
   replace the error but not suppress it: then there is no result, or no job, to return.

Middleware is a generator function that yields once, or any callable that returns a context manager.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from windlass.context import Context
from windlass.errors import InvalidMiddleware

if TYPE_CHECKING:
    from windlass.job import Job


class EnqueueCall:
    """A call that is being enqueued. Middleware may change `headers` until the call is stored.
    Afterwards `job` is the handle on the new job. `run_after` is the option of the caller.

    `trace_headers` are for tracing alone. They are stored only if all of them fit: they neither
    replace a header nor make the headers too large."""

    __slots__ = ("headers", "job", "priority", "queue", "run_after", "task", "trace_headers")

    def __init__(
        self,
        task: str,
        queue: str,
        priority: int,
        headers: dict[str, str],
        run_after: datetime | timedelta | None = None,
    ) -> None:
        self.task = task
        self.queue = queue
        self.priority = priority
        self.headers = headers
        self.run_after = run_after
        self.trace_headers: Mapping[str, str] = {}
        self.job: Job[Any] | None = None

    def __repr__(self) -> str:
        return f"<EnqueueCall of {self.task} to {self.queue}>"


class EnqueueTracing(Protocol):
    """What tracing adds to middleware, which gets single calls only."""

    def bulk(self, jobs: Sequence[Job[Any]]) -> AbstractContextManager[object]:
        """Surround an enqueue of many calls. `jobs` grows with each job that is stored."""

    def request(self, headers: Mapping[str, str], count: int) -> AbstractContextManager[object]:
        """Surround the enqueues of an HTTP request with these headers for `count` jobs."""


#: The name of a run in notes on errors.
RUN: Final = "the task"

#: A function that `@app.around_run` decorates.
AroundRun: TypeAlias = Callable[[Context], Iterator[None] | AbstractContextManager[Any]]
#: A function that `@app.around_enqueue` decorates.
AroundEnqueue: TypeAlias = Callable[[EnqueueCall], Iterator[None] | AbstractContextManager[Any]]
#: The argument of `Windlass(lifespan=...)`.
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
        raise InvalidMiddleware(
            f"@app.{decorator} is for a function that takes {takes} and yields once, found "
            f"{function!r}."
        )
    if _is_async(function):
        place = "the task runs" if decorator == "around_run" else "the call is stored"
        raise InvalidMiddleware(
            f"The middleware {name} is written with async def. One form serves plain functions and "
            f"coroutines alike: write it with def, and yield where {place}."
        )
    return Middleware(name, _as_manager(function))


def read_lifespan(function: object) -> Lifespan:
    name = _name_of(function)
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidMiddleware(
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
    """Whether the function is async, also when `asynccontextmanager` wraps it."""
    plain = inspect.unwrap(function)
    return inspect.isasyncgenfunction(plain) or inspect.iscoroutinefunction(plain)


def _name_of(function: object) -> str:
    named = inspect.unwrap(function) if callable(function) else function
    module = getattr(named, "__module__", type(function).__module__)
    return f"{module}.{getattr(named, '__qualname__', type(function).__qualname__)}"


# ---------------------------------------------------------------------------------------- running


class MiddlewareStack:
    """Context manager that enters all middleware around one run or one enqueue. `what` names the
    run or enqueue in notes on errors. A class is faster than a generator: every job makes one."""

    __slots__ = ("_entered", "_middleware", "_subject", "_what")

    def __init__(
        self, middleware: Sequence[Middleware], subject: Context | EnqueueCall, what: str = RUN
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
            # An interruption can hit the loop itself, between two middlewares.
            self._leave(raised)
            raise

    def _leave(self, error: BaseException | None) -> None:
        """Leave the middleware, the innermost first. Each gets the error of the previous one. True
        from `__exit__` is ignored: no middleware can suppress the error."""
        came = error
        while self._entered:
            name, manager = self._entered.pop()
            try:
                if error is None:
                    manager.__exit__(None, None, None)
                else:
                    manager.__exit__(type(error), error, error.__traceback__)
            except BaseException as raised:  # noqa: BLE001  # the outer ones must be left too
                if raised is not error:
                    raised.add_note(f"Raised by the middleware {name}, after {self._what}.")
                    error = raised
        if error is not None and error is not came:
            raise error

"""Twins: a blocking method and its async version, both made from one generator.

1. `Steps` is the type of the generator. It yields each operation that takes time, a `TwinStep`, and
   gets the answer. Steps are calls of the engine, pauses, and waits for the end of a job.
2. `run` runs the steps in the thread of the caller, and `arun` on its event loop: a coroutine calls
   the engine through the batcher of the app, together with other coroutines.
3. `twins` makes the blocking method from the generator. Its `awaited` is the async twin.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    cast,
    overload,
)

import msgspec

from windlass.engine.contract import Engine
from windlass.errors import EngineUnavailable

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="OfApp")
Value = TypeVar("Value")
Answer = TypeVar("Answer")
Values = TypeVarTuple("Values")
#: A function of the engine that returns one answer for each value, in order.
Verb: TypeAlias = Callable[[Engine, Sequence[Value]], Sequence[Answer]]


class OfApp(Protocol):
    """An object with an app."""

    @property
    def _app(self) -> Windlass: ...


class TwinStep(Protocol):
    """An operation that takes time, for threads (`run`) and for coroutines (`arun`)."""

    def run(self, app: Windlass, /) -> Any: ...

    def arun(self, app: Windlass, /) -> Awaitable[Any]: ...


class EngineCall(msgspec.Struct, frozen=True):
    """Call a verb of the engine with one value, and return the answer for this value."""

    verb: Verb[Any, Any]
    value: Any
    size: int = 0  # in bytes, if the call must wait for room in the batcher

    def run(self, app: Windlass) -> Any:
        return self.verb(app.engine, [self.value])[0]

    def arun(self, app: Windlass) -> Awaitable[Any]:
        return app.batcher.call(self.verb, self.value, self.size)


class Pause(msgspec.Struct, frozen=True):
    """Wait for some seconds."""

    pause_s: float

    def run(self, _app: Windlass) -> None:
        time.sleep(self.pause_s)

    def arun(self, _app: Windlass) -> Awaitable[None]:
        from asyncio import sleep  # slow to import, and the caller has imported it already

        return sleep(self.pause_s)


Steps: TypeAlias = Generator[TwinStep, Any, R]


def ask(verb: Verb[Value, Answer], value: Value, size: int = 0) -> Steps[Answer]:
    """Yield an `EngineCall`, and return its answer with the right type."""
    answer: Answer = yield EngineCall(verb, value, size)
    return answer


def verb(method: Verb[Value, Answer]) -> Verb[Value, Answer]:
    """Turn a method of the engine into a `Verb` for steps and the batcher: `verb(Engine.get)`."""
    name = method.__name__
    return lambda engine, values: getattr(engine, name)(values)


def act(action: Callable[[Engine, *Values], Answer], *values: *Values) -> Steps[Answer]:
    """Run an action with several calls of the engine. The batcher never repeats the action."""
    answer, error = yield EngineCall(_attempt_each, (action, values))
    if error is not None:
        raise error
    return cast(Answer, answer)


def _attempt_each(
    engine: Engine, actions: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]
) -> Sequence[tuple[Any, Exception | None]]:
    """Run each action; return its result or error. So one error does not repeat other actions. The
    actions after one that found the engine unavailable fail without a try. If that was the first
    action, raise its error: all other pending calls of the batcher then fail as well."""
    replies: list[tuple[Any, Exception | None]] = []
    away: EngineUnavailable | None = None
    for action, values in actions:
        if away is not None:
            from copy import copy  # slow to import, and seldom needed

            replies.append((None, copy(away)))
            continue
        try:
            replies.append((action(engine, *values), None))
        except EngineUnavailable as error:
            if not replies:
                raise
            away = error
            replies.append((None, error))
        except Exception as error:  # noqa: BLE001  # raised again for the caller of the action
            replies.append((None, error))
    return replies


def run(app: Windlass, steps: Steps[R]) -> R:
    try:
        step = next(steps)
        while True:
            try:
                answer = step.run(app)
            except BaseException as error:  # noqa: BLE001  # the steps raise it, or another one
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return cast(R, done.value)


async def arun(app: Windlass, steps: Steps[R]) -> R:
    try:
        step = next(steps)
        while True:
            try:
                answer = await step.arun(app)
            except BaseException as error:  # noqa: BLE001  # the steps raise it, or another one
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return cast(R, done.value)


class Twins(Generic[S, P, R]):
    """The type of a method made by `twins`, for type checkers. At run time it is a function."""

    awaited: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]

    @overload
    def __get__(self, instance: None, owner: object) -> Callable[Concatenate[S, P], R]: ...
    @overload
    def __get__(self, instance: S, owner: object) -> Callable[P, R]: ...
    def __get__(self, instance: S | None, owner: object) -> Callable[..., R]:
        raise NotImplementedError


def twins(steps: Callable[Concatenate[S, P], Steps[R]]) -> Twins[S, P, R]:
    """Make a blocking method from steps. Its attribute `awaited` is the async version."""
    annotations = steps.__annotations__
    annotations["return"] = annotations["return"].removeprefix("Steps[").removesuffix("]")

    @wraps(steps)
    def blocking(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(self._app, steps(self, *args, **kwargs))

    @wraps(steps)
    async def awaited(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        return await arun(self._app, steps(self, *args, **kwargs))

    awaited.__doc__ = f"`{steps.__name__}`, for coroutines."
    awaited.__name__ = f"a{steps.__name__}"
    awaited.__qualname__ = steps.__qualname__.replace(steps.__name__, awaited.__name__)
    vars(blocking)["awaited"] = awaited
    return cast("Twins[S, P, R]", blocking)

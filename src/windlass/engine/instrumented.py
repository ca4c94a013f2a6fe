"""An engine whose calls are timed, for metrics.

Only the calls that a worker makes are timed. A call that waits for jobs is not: its time says
nothing about the engine. Calls in which an error is raised are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, Protocol, cast

from windlass.engine.contract import Engine

#: The timed verbs. Their order is part of the layout of shared memory.
TIMED_VERBS: Final = (
    "turn",
    "finish",
    "release",
    "beat",
    "adopt",
    "tend",
    "record",
    "close",
    "lose",
    "stats",
    "sessions",
    "introductions",
    "get",
    "due_schedules",
    "get_schedules",
    "change_schedules",
)


class CallObserver(Protocol):
    """Takes the time of each call. `verb` is a position in `TIMED_VERBS`."""

    def observe(self, verb: int, is_ok: bool, seconds: float) -> None: ...


def instrument(engine: Engine, observer: CallObserver) -> Engine:
    """Return an engine that makes the same calls, and reports their times."""
    return cast(Engine, _InstrumentedEngine(engine, observer))


class _InstrumentedEngine:
    """An engine with timed verbs. Each wrapper is cached at its first use."""

    def __init__(self, engine: Engine, observer: CallObserver) -> None:
        self._engine = engine
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if name not in TIMED_VERBS:
            return value
        call = self.__dict__[name] = _timed(value, TIMED_VERBS.index(name), self._observer)
        return call


def _timed(call: Callable[..., Any], verb: int, observer: CallObserver) -> Callable[..., Any]:
    observe = observer.observe

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            result = call(*args, **kwargs)
        except BaseException:
            observe(verb, False, perf_counter() - began)
            raise
        observe(verb, True, perf_counter() - began)
        return result

    return timed

"""Faults in front of a real engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from windlass.engine.contract import Engine
from windlass.errors import EngineUnavailable


class Faulty:
    """A real engine with faults in front of it. A fault is given the call and what would answer
    it; it answers by it, raises, or does both."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.faults: dict[str, Callable[[Callable[[], Any], tuple[Any, ...]], Any]] = {}
        self.calls: list[str] = []
        self.capabilities = engine.capabilities

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._engine, name)
        if not callable(real):
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            fault = self.faults.get(name)
            if fault is None:
                return real(*arguments, **named)
            return fault(lambda: real(*arguments, **named), arguments)

        return call


def once(fault: Callable[[Callable[[], Any]], Any], on: int = 1) -> Any:
    """A fault in the given call, the first being 1, and in no other."""
    calls = iter(range(1, 1_000_000))

    def apply(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        return fault(real) if next(calls) == on else real()

    return apply


def lose_reply(real: Callable[[], Any]) -> NoReturn:
    real()
    raise EngineUnavailable("the reply was lost")


def lose_request(real: Callable[[], Any]) -> NoReturn:
    raise EngineUnavailable("the request was lost")

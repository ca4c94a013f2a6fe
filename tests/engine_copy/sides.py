"""A source and a target, and copies from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from windlass.engine.contract import Engine
from windlass.engine_copy.copier import Copier, CopyReport, CopyStep
from windlass.engine_copy.undo import undo
from windlass.testing.contract.world import World
from windlass.testing.faults import VERBS


class Sides:
    """Two places whose clocks move together. Files of theirs are in folders of their names."""

    def __init__(self, source: World, target: World, folder: Path = Path()) -> None:
        self.source = source
        self.target = target
        self.source_file = folder / "source" / "jobs.db"
        self.target_file = folder / "target" / "jobs.db"

    def advance(self, by_ms: int) -> None:
        for world in (self.source, self.target):
            world.advance(by_ms)

    def meet(self) -> None:
        """Let the clock of the target show the time of the source."""
        self.target.move_clock(self.source.now_ms)

    def copy(
        self, *, drains: bool = False, between: Callable[[CopyStep], None] = lambda _step: None
    ) -> CopyReport:
        """Copy to the end. `between` is called after each step."""
        copier = Copier(self.source.engine, self.target.engine, drains=drains)
        for step in moving(self, copier.run()):
            between(step)
        return copier.report()

    def undo(self) -> None:
        for _ in undo(self.source.engine, self.target.engine):
            pass


class KilledError(BaseException):
    """The end of a process between two calls, or after a call took effect."""


class MortalEngines:
    """Wraps engines, and ends the process at one of their calls, counted over all of them."""

    def __init__(self, at_call: int | None = None, *, is_after: bool = False) -> None:
        self._at_call = at_call
        self._is_after = is_after
        self.calls = 0

    def wrap(self, engine: Engine) -> Engine:
        return cast(Engine, _MortalEngine(engine, self._call))

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        is_last = self.calls == self._at_call
        if is_last and not self._is_after:
            raise KilledError
        answer = call(*args, **kwargs)
        if is_last:
            raise KilledError
        return answer


class _MortalEngine:
    def __init__(self, engine: Engine, call: Callable[..., Any]) -> None:
        self._engine = engine
        self._call = call

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if name not in VERBS:
            return value
        return lambda *args, **kwargs: self._call(value, *args, **kwargs)


class HookedEngine:
    """Wraps an engine, and acts once before the next call of a verb."""

    def __init__(self, engine: Engine, verb: str, act: Callable[[], object]) -> None:
        self._engine = engine
        self._verb = verb
        self._act: Callable[[], object] | None = act

    def __getattr__(self, name: str) -> Any:
        if name == self._verb and self._act is not None:
            act, self._act = self._act, None
            act()
        return getattr(self._engine, name)


def steps_of(sides: Sides, mortal: MortalEngines) -> Iterator[CopyStep]:
    """The steps of a copy, through engines that may end it."""
    copier = Copier(mortal.wrap(sides.source.engine), mortal.wrap(sides.target.engine))
    return moving(sides, copier.run())


def moving(sides: Sides, steps: Iterator[CopyStep]) -> Iterator[CopyStep]:
    """Let time pass while a copy waits."""
    for step in steps:
        if step.is_waiting:
            sides.advance(1)
        yield step

"""Pause and resume tasks, in bounded steps."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.engine.contract import Engine
from windlass.twins import Steps, act


def pausing(names: Iterable[str]) -> Steps[None]:
    """Let no job start that is stored under one of these names."""
    for name in names:
        yield from act(_pause, name)


def resuming(names: Iterable[str]) -> Steps[int]:
    """Let them start again; return the number of jobs that were held."""
    resumed = 0
    for name in names:
        while number := (yield from act(_resume, name)):
            resumed += number
    return resumed


def _pause(engine: Engine, task: str) -> None:
    engine.pause_task(task)


def _resume(engine: Engine, task: str) -> int:
    return engine.resume_task(task)

"""Methods for threads and for coroutines, made of the same steps."""

from __future__ import annotations

import inspect

import pytest

from windlass import Job
from windlass.dead_letters import DeadLetters
from windlass.jobs import Jobs
from windlass.schedules import Schedules

TWINS = [
    (kind, name)
    for kind in (Job, Jobs, Schedules, DeadLetters)
    for name in vars(kind)
    if f"a{name}" in vars(kind) and (kind, name) not in ((DeadLetters, "list"), (Jobs, "list"))
]


def test_they_are_found() -> None:
    assert len(TWINS) == 20


@pytest.mark.parametrize(("kind", "name"), TWINS)
def test_both_have_the_signature_and_a_docstring(kind: type, name: str) -> None:
    blocking, awaited = getattr(kind, name), getattr(kind, f"a{name}")
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert "Steps" not in str(inspect.signature(blocking))
    assert blocking.__doc__
    assert awaited.__doc__ == f"`{name}`, for coroutines."
    assert (awaited.__name__, awaited.__qualname__) == (f"a{name}", f"{kind.__name__}.a{name}")
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)

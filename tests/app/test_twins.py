"""Methods for threads and for coroutines, made of the same steps."""

from __future__ import annotations

import inspect

import pytest

from windlass import Job, Task, Windlass
from windlass.dead_letters import DeadLetters
from windlass.queue import Queue
from windlass.schedules import Schedules

#: Methods that make no call to the engine, and those for other parts of windlass.
WITHOUT_ENGINE: dict[type, set[str]] = {
    DeadLetters: {"retrying", "discarding", "replacing_call"},
    Task: {"using", "bind", "job", "entry", "unfit_for_schedules"},
    Windlass: {
        *("include", "add_tasks", "task_named", "queue", "job", "queue_for", "name_of", "worker"),
        *("around_run", "around_enqueue", "on_dead_alert", "declared_schedules", "decode_result"),
        *("close", "wrap_engine", "replace_engine"),
    },
}
TWINS = [
    (kind, name)
    for kind in (Job, Schedules, DeadLetters, Queue)
    for name in vars(kind)
    if f"a{name}" in vars(kind) and (kind, name) != (DeadLetters, "list")
]


def test_they_are_found() -> None:
    assert len(TWINS) == 22


@pytest.mark.parametrize("kind", [Windlass, Task, Job, Queue, Schedules, DeadLetters])
def test_every_public_method_that_calls_the_engine_has_a_twin(kind: type) -> None:
    methods = {name for name, one in vars(kind).items() if inspect.isroutine(one)}
    public = {name for name in methods if not name.startswith("_")}
    alone = {name for name in public if not {f"a{name}", name[1:]} & public}
    assert alone == WITHOUT_ENGINE.get(kind, set())


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

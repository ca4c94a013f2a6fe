"""Hooks are checked where they are declared."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import JobEvent, Tasks, Windlass


def nothing() -> None:
    """A task that does nothing."""


def hook(event: JobEvent) -> None:
    """A hook that does nothing."""


def without_argument() -> None:
    """No hook."""


WRONG: dict[str, tuple[Any, str]] = {
    "text": ("shop.hooks.report", "a function that takes a windlass.JobEvent, found 'shop"),
    "no argument": (without_argument, "takes one argument.*found without_argument: too many"),
    "a task": (Windlass().task(name="other")(nothing), "found the task <Task other>.*enqueues it"),
}


@pytest.mark.parametrize("name", ["on_success", "on_retry", "on_dead"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_hook_is_refused(name: str, wrong: str) -> None:
    app, (given, said) = Windlass(), WRONG[wrong]
    with pytest.raises(TypeError, match=f"^{name} must .*{said}"):
        app.task(name="nothing", **{name: given})(nothing)
    with pytest.raises(TypeError, match=f"^@app.{name} must .*{said}"):
        getattr(app, name)(given)
    assert not app.hooks.is_used
    assert not app.tasks


def test_a_call_takes_no_hook() -> None:
    task = Windlass().task(name="nothing", on_dead=hook)(nothing)
    with pytest.raises(TypeError, match=r"on_dead belongs to the task: write @app.task\(on_dead="):
        task.using(on_dead=hook)  # type: ignore[call-arg]  # it is what is tested
    assert task.using(priority=1).hooks == {"on_dead": hook}


def test_a_decorator_gives_the_function_back() -> None:
    app = Windlass()
    assert app.on_success(hook) is app.on_retry(hook) is app.on_dead(hook) is hook
    assert app.on_dead(print) is print, "without a signature"


def test_a_group_that_is_included_later() -> None:
    app, group = Windlass(), Tasks()
    group.task(name="nothing", on_dead=hook)(nothing)
    assert not app.hooks.is_used
    app.include(group)
    assert app.hooks.is_used

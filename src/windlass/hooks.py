"""Hooks: functions that a worker calls after a job has succeeded, failed or died.

1. `JobEvent` is the argument of a hook.
2. `read_hook` checks a hook when it is declared.
3. `AppHooks` keeps the hooks of an app. A hook of a task replaces those of the app.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from windlass.core.alerts.rules import AlertEvent
from windlass.core.failures import FailureText
from windlass.core.states import Reason

#: The decorators of an app, and the options of a task.
HOOK_NAMES: Final = ("on_success", "on_retry", "on_dead")


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a hook: a job, and how its last attempt ended.

    `args` and `kwargs` are decoded once more, without the context: changes that the task made to
    them are not visible. They are empty if the call cannot be decoded."""

    kind: Literal["success", "retry", "dead"]
    job_id: str
    task: str
    queue: str
    attempt: int  # starts at 1
    max_attempts: int
    headers: Mapping[str, str]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any = None  # of a success: what the task returned
    error: BaseException | None = None  # None if the job did not raise it in this process
    failure: FailureText | None = None  # the stored text of the error; None for a success
    retry_in: timedelta | None = None  # of a retry: until the next attempt
    reason: Reason | None = None  # of a dead job


#: Plain functions, or coroutine functions.
JobHook: TypeAlias = Callable[[JobEvent], object]
AlertHook: TypeAlias = Callable[[AlertEvent], object]


class AppHooks:
    """The hooks of an app. `is_used` is False while neither the app nor a task has any."""

    def __init__(self) -> None:
        self.is_used = False
        self._defaults: dict[str, tuple[JobHook, ...]] = {}

    def add(self, name: str, hook: JobHook) -> None:
        self._defaults[name] = (*self._defaults.get(name, ()), hook)
        self.is_used = True

    def find(self, own: Mapping[str, JobHook], name: str) -> tuple[JobHook, ...]:
        """The hooks to call; `own` are those of the task."""
        return (own[name],) if name in own else self._defaults.get(name, ())

    def concern(self, own: Mapping[str, JobHook]) -> bool:
        """Whether any hook may be called for a task."""
        return bool(own or self._defaults)


def read_hook(name: str, hook: object, event: str = "JobEvent") -> Callable[[Any], object]:
    """Check a hook, which takes one argument: an `event`."""
    if not callable(hook):
        raise TypeError(f"{name} must be a function that takes a windlass.{event}, found {hook!r}")
    if hasattr(hook, "enqueue"):
        raise TypeError(
            f"{name} must be a function, found the task {hook!r}, which a worker would call here "
            "without a queue: write a function that enqueues it."
        )
    try:
        inspect.signature(hook).bind(None)
    except ValueError:
        return hook  # written in C, without a signature
    except TypeError as error:
        raise TypeError(
            f"{name} must be a function that takes one argument, a windlass.{event}, found "
            f"{getattr(hook, '__qualname__', hook)}: {error}"
        ) from error
    return hook

"""Groups of tasks (`Tasks`), declared without an app. An app includes them later.

A library, or a part of a large program, declares its tasks in a group, and the app includes the
group. A group belongs to one app, because `task.enqueue()` needs the engine of that app. Tasks
declared after the include join the app at once, so the order of imports does not matter.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from windlass.client.options import read_queue
from windlass.errors import InvalidTask
from windlass.registry import (
    Registrar,
    Registry,
    checked_name,
    local_name,
    refuse_unreachable,
)
from windlass.task import DEFAULT_QUEUE, Home, Task

if TYPE_CHECKING:
    from windlass.app import Windlass


class Tasks(Registrar):
    """A group of tasks: `tasks = Tasks(prefix="billing", queue="billing")`, `@tasks.task`.

    With a `prefix` the names of its tasks are `prefix.function`, in any module. Without a prefix
    the names are `module.function`, as in an app. `queue` is for tasks that name no queue and match
    no route of the app."""

    def __init__(self, *, prefix: str | None = None, queue: str | None = None) -> None:
        self.prefix = None if prefix is None else checked_name(prefix)
        self.queue = None if queue is None else read_queue("queue", queue)
        self._registry = Registry()
        self._unnamed: list[FunctionType] = []  # functions of tasks declared without a name
        self._app: Windlass | None = None

    def join(self, app: Windlass) -> None:
        """Add the tasks of this group to an app. `app.include(tasks)` calls this method."""
        if self._app is app:
            return
        if self._app is not None:
            raise InvalidTask(
                f"{self!r} is included in {self._app!r} already, and cannot be included in {app!r} "
                "too: a task belongs to one app, because enqueue() needs the engine of that app. "
                "Make a group for each app, for example in a function that declares the tasks; to "
                "enqueue elsewhere, use that app's task_named(...)."
            )
        for function in self._unnamed:
            refuse_unreachable(function, app)
        app.add_tasks(tuple(self._registry.tasks.values()))
        self._app = app

    def _check_reachable(self, function: FunctionType) -> None:
        """Check the function for the group, and for the app that includes it: the group may be made
        in the same function, and the app at the top level of the module."""
        super()._check_reachable(function)
        if self._app is not None:
            refuse_unreachable(function, self._app)
        self._unnamed.append(function)

    def _home(self) -> Home:
        return Home(None, self.queue or DEFAULT_QUEUE, repr(self))

    def _add(self, task: Task[..., Any]) -> None:
        if task.declared_schedule is not None:
            from windlass.schedules import read_declared

            list(read_declared(task, task.declared_schedule))  # raises if a schedule is invalid
        self._registry.check(task)
        if self._app is not None:
            self._app.add_tasks((task,))
        self._registry.add(task)

    def _full_name(self, name: str | None, function: FunctionType) -> str:
        if self.prefix is None:
            return super()._full_name(name, function)
        return checked_name(f"{self.prefix}.{name or local_name(function)}")

    def __repr__(self) -> str:
        given = {"prefix": self.prefix, "queue": self.queue}
        said = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        return f"Tasks({said})"

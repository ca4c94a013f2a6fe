"""Tasks of the app, with the schemas of their arguments; pause and resume them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.app import Windlass
from windlass.calls.task_schema import task_schema
from windlass.core.foreign_words import suggest_dotted
from windlass.engine.contract import Filter
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType
from windlass.http.resources.fields import PlainName
from windlass.http.resources.scope import require_all_queues
from windlass.http.routes import JOB_READERS, OPERATORS, ApiRequest, route
from windlass.task import Task
from windlass.task_pause import pausing, resuming
from windlass.twins import run


class TaskPath(msgspec.Struct, frozen=True, kw_only=True):
    name: PlainName


class TaskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A task that jobs can be enqueued for."""

    name: str
    aliases: tuple[str, ...]  # former names
    queue: str
    requires: tuple[str, ...]  # labels that a worker must have
    is_remote: bool  # its code is in another program
    schema: dict[str, Any]  # JSON Schemas of its parameters and its result
    paused: bool


class TaskList(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of the app, by name."""

    tasks: tuple[TaskAnswer, ...]


class PauseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a task is paused."""

    name: str
    paused: bool


@route("GET", "/v1/tasks", roles=JOB_READERS)
async def list_tasks(call: ApiRequest) -> TaskList:
    """List the tasks of the app, and remote tasks that it declares.

    A caller for some queues sees the tasks of these queues."""
    return await call.gateway.call(_list, call.gateway.app, call.principal)


@route("POST", "/v1/tasks/{name}/pause", roles=OPERATORS)
async def pause_task(call: ApiRequest, path: TaskPath) -> PauseAnswer:
    """Start no more jobs of a task, in any queue and on any worker.

    Running jobs continue; waiting jobs keep their place, and other jobs of the same queues run."""
    require_all_queues(call.principal, "To pause a task")
    await call.gateway.call(_pause, call.gateway.app, path.name)
    return PauseAnswer(name=path.name, paused=True)


@route("POST", "/v1/tasks/{name}/resume", roles=OPERATORS)
async def resume_task(call: ApiRequest, path: TaskPath) -> PauseAnswer:
    """Let workers start jobs of a task again."""
    require_all_queues(call.principal, "To resume a task")
    await call.gateway.call(_resume, call.gateway.app, path.name)
    return PauseAnswer(name=path.name, paused=False)


def _list(app: Windlass, principal: Principal) -> TaskList:
    paused = set(app.engine.paused_tasks())
    found = {**app.tasks, **app.remote_tasks}
    visible = (found[name] for name in sorted(found) if principal.may_use(found[name].queue))
    return TaskList(tasks=tuple(_describe(task, paused) for task in visible))


def _pause(app: Windlass, name: str) -> None:
    run(app, pausing(_names(app, name)))


def _resume(app: Windlass, name: str) -> None:
    run(app, resuming(_names(app, name)))


def _names(app: Windlass, name: str) -> Iterable[str]:
    """All names of a task: jobs may be stored under its aliases. A task without code exists if it
    is paused or has jobs."""
    task = app.find_task(name)
    if task is not None:
        return (task.name, *task.aliases)
    paused = app.engine.paused_tasks()
    if name in paused or app.engine.find(Filter(task=name), None, 1).records:
        return (name,)
    known = {*app.known_tasks, *app.remote_tasks, *paused}
    raise Problem(
        ProblemType.NOT_FOUND,
        f"There is no task {name}: the app does not declare it, and it has no jobs."
        f"{suggest_dotted(name, known)}",
    )


def _describe(task: Task[..., Any], paused: set[str]) -> TaskAnswer:
    return TaskAnswer(
        name=task.name,
        aliases=task.aliases,
        queue=task.queue,
        requires=task.requires,
        is_remote=task.is_remote,
        schema=task_schema(task),
        paused=not paused.isdisjoint((task.name, *task.aliases)),
    )

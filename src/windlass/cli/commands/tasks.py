"""`windlass tasks`: the tasks of an app."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from windlass.app import Windlass
from windlass.cli.support.connection import import_app_and_tasks, require_app_path
from windlass.cli.support.output import print_list
from windlass.cli.support.parameters import app_option, json_option
from windlass.core.durations import describe_ms
from windlass.core.retry import Growing, Retry
from windlass.schedules import Cron, Every, in_zone
from windlass.task import Task


@click.command()
@app_option
@json_option
def tasks(app_path: str | None, as_json: bool) -> None:
    """List the tasks of an app, as a worker knows them. It does not connect to the engine.

    The runner is where a job runs: a thread, the event loop, or its own process. The jobs of a
    remote task run in another program, which also decides on retries unless the task has a policy.

    \b
    windlass tasks --app shop.tasks:app
    """
    app = import_app_and_tasks(require_app_path(app_path))
    known = {**app.tasks, **app.remote_tasks}
    found = [_describe(app, known[name]) for name in sorted(known)]
    print_list(
        found,
        list,
        list(found[0]) if found else [],
        lambda task: [_cell(value) for value in task.values()],
        none="The app has no tasks. Name the modules that declare them with "
        "Windlass(include=[...]), or import them where the app is made.",
        as_json=as_json,
    )


def _describe(app: Windlass, task: Task[..., Any]) -> dict[str, object]:
    return {
        "name": task.name,
        "queue": task.queue,
        "requires": list(task.requires),
        "runner": _runner(task),
        "schedule": [in_zone(schedule, app).describe() for schedule in _schedules(task)],
        "retry": _policy_of(app, task),
        "aliases": list(task.aliases),
    }


def _runner(task: Task[..., Any]) -> str:
    if task.is_remote:
        return "remote"
    if task.runs_alone:
        return "process"
    return "loop" if task.is_async else "thread"


def _schedules(task: Task[..., Any]) -> Iterator[Cron | Every]:
    declared = task.declared_schedule
    if isinstance(declared, list | tuple):
        yield from declared
    elif declared is not None:
        yield declared


def _policy_of(app: Windlass, task: Task[..., Any]) -> str:
    if task.is_remote and task.retry is None:
        return ""
    return _policy(task.retry or app.settings.retry)


def _policy(policy: Retry) -> str:
    backoff = policy.backoff
    if policy.max_attempts == 1:
        return "never"
    if isinstance(backoff, Growing):
        return f"{policy.max_attempts} attempts, {describe_ms(backoff.base_ms)} and more apart"
    delays = ", ".join(map(describe_ms, backoff.delays_ms))
    return f"{policy.max_attempts} attempts, after {delays}"


def _cell(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else value

"""`windlass task`: pause and resume tasks."""

from __future__ import annotations

import click

from windlass.app import Windlass
from windlass.cli.support.connection import connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import report, say
from windlass.cli.support.parameters import json_option
from windlass.cli.support.task_names import declares_tasks, pausable_name, why_unknown


@click.group(cls=SuggestingGroup, short_help="Pause or resume tasks.")
def task() -> None:
    """Pause or resume a task, in all its queues. `windlass tasks` lists the tasks of an app. The
    end of a name is enough, such as `charge` for shop.tasks.charge, if no other task has that end.

    \b
    windlass task pause shop.tasks.charge
    windlass task resume shop.tasks.charge
    """


@task.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Also if the task is unknown.")
@connected
@json_option
def pause(app: Windlass, name: str, yes: bool, as_json: bool) -> None:
    """Start no more jobs of a task, on any worker. Running jobs continue; waiting jobs keep their
    place, and other jobs of the same queues run.

    \b
    windlass task pause shop.tasks.charge
    """
    name = pausable_name(app, name)
    unknown = _why_unknown(app, name)
    if unknown and not yes:
        raise click.ClickException(f"{unknown} Give --yes to pause it anyway.")
    if unknown:
        say(unknown)
    app.task_named(name).pause()
    report({"task": name, "paused": True}, f"The task {name} is paused.", as_json)


@task.command()
@click.argument("name")
@connected
@json_option
def resume(app: Windlass, name: str, as_json: bool) -> None:
    """Let workers start jobs of a task again.

    \b
    windlass task resume shop.tasks.charge
    """
    name = pausable_name(app, name)
    unknown = _why_unknown(app, name)
    # Without the app, only a task with jobs or with a pause is known.
    if unknown and declares_tasks(app):
        raise click.ClickException(f"{unknown} Nothing was resumed.")
    if unknown:
        say(unknown)
    app.task_named(name).resume()
    report({"task": name, "paused": False}, f"The task {name} is open.", as_json)


def _why_unknown(app: Windlass, name: str) -> str:
    """A task is also known by its pause."""
    return why_unknown(app, name, app.engine.paused_tasks())

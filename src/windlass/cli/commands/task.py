"""`windlass task`: pause and resume tasks."""

from __future__ import annotations

import click

from windlass.app import Windlass
from windlass.app_loader import load_tasks
from windlass.cli.support.connection import connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import report, say
from windlass.cli.support.parameters import json_option
from windlass.core.foreign_words import nearest
from windlass.engine.contract import Filter


@click.group(cls=SuggestingGroup, short_help="Pause or resume tasks.")
def task() -> None:
    """Pause or resume a task, in all its queues. `windlass tasks` lists the tasks of an app.

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
    _require_known(name, app, yes=yes)
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
    _require_known(name, app, yes=True)  # an unknown task is not paused
    app.task_named(name).resume()
    report({"task": name, "paused": False}, f"The task {name} is open.", as_json)


def _require_known(name: str, app: Windlass, *, yes: bool) -> None:
    """Refuse an unknown task unless `yes`: it is probably a typo. A task is also known by its jobs
    and by its pause."""
    load_tasks(app)
    known = {*app.known_tasks, *app.engine.paused_tasks()}
    if name in known or app.engine.find(Filter(task=name), None, 1).records:
        return
    unknown = f"Unknown task {name}: the app does not declare it, and it has no jobs."
    question = nearest(name, known)
    if not yes:
        raise click.ClickException(f"{unknown}{question} Give --yes to pause it anyway.")
    say(f"{unknown}{question}")

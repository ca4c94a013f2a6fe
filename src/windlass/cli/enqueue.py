"""`windlass enqueue`: put one job in line by hand."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import Any

import click
import msgspec

from windlass.app import Windlass
from windlass.cli.connecting import app_option, import_app, json_option, require_app_path
from windlass.cli.output import print_json, say
from windlass.errors import DecodeError, InvalidTask, JobError
from windlass.options import CallOptions
from windlass.task import Task


@click.command()
@click.argument("task_name", metavar="TASK")
@app_option
@click.option("--args", "args_text", default="[]", metavar="JSON", help="Positional arguments.")
@click.option("--kwargs", "kwargs_text", default="{}", metavar="JSON", help="Named arguments.")
@click.option("--in", "delay", metavar="DURATION", help="Run it this much later, for example 10m.")
@click.option("--at", "instant", metavar="ISO", help="Run it at 2030-01-31T08:00+01:00.")
@click.option("--priority", type=click.IntRange(-100, 100), help="Higher runs first.")
@click.option("--queue", metavar="NAME", help="Another queue than the task's own.")
@click.option("--wait", is_flag=True, help="Wait for the job to end and print its result.")
@json_option
def enqueue(
    task_name: str,
    app_path: str | None,
    args_text: str,
    kwargs_text: str,
    delay: str | None,
    instant: str | None,
    priority: int | None,
    queue: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Enqueue one call of TASK and print the id of the job.

    \b
    windlass enqueue shop.tasks.resize --app shop.tasks:app --args '["cat.jpg", [100]]'
    windlass enqueue shop.tasks.clean_up --in 10m --priority 10
    """
    with import_app(require_app_path(app_path)) as app:
        task = _find_task(app, task_name)
        args, kwargs = _decode_call(task, args_text, kwargs_text)
        options: CallOptions = {}
        run_after = _run_after(delay, instant)
        if run_after is not None:
            options["run_after"] = run_after
        if priority is not None:
            options["priority"] = priority
        if queue is not None:
            options["queue"] = queue
        chosen = task.using(**options) if options else task
        job = chosen.enqueue(*args, **kwargs)
        if not as_json:
            click.echo(job.id)
        shown: dict[str, object] = {"id": job.id, "task": task.name}
        if wait:
            shown["result"] = _wait(job)
        if as_json:
            print_json(shown)
        elif wait:
            print_json(shown["result"])


def _wait(job: Any) -> object:
    try:
        return job.result()
    except JobError as error:
        raise click.ClickException(str(error)) from error


def _find_task(app: Windlass, name: str) -> Task[..., Any]:
    task = app.tasks.get(name)
    if task is None:
        near = difflib.get_close_matches(name, app.tasks, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(app.tasks)) or "none"
        raise InvalidTask(f"The app knows no task {name!r}.{hint} It knows: {known}.")
    return task


def _decode_call(
    task: Task[..., Any], args_text: str, kwargs_text: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as the worker would rebuild them, so that a date given as text becomes a date."""
    args = _parse("--args", args_text, list)
    kwargs = _parse("--kwargs", kwargs_text, dict)
    encoded = msgspec.json.encode({"args": args, "kwargs": kwargs})
    try:
        positional, named = task.codec.decode(encoded)
    except DecodeError as error:
        raise click.UsageError(f"The arguments do not fit {task.name}: {error}") from error
    return tuple(positional), dict(named)


def _parse(option: str, text: str, kind: type) -> Any:
    shape = "a JSON array" if kind is list else "a JSON object"
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option} expects {shape}, found {text!r} ({error}).") from error
    if not isinstance(value, kind):
        raise click.UsageError(f"{option} expects {shape}, found {text!r}.")
    return value


def _run_after(delay: str | None, instant: str | None) -> str | datetime | None:
    if delay is not None and instant is not None:
        raise click.UsageError("Give --in or --at, not both.")
    if instant is None:
        return delay
    try:
        moment = datetime.fromisoformat(instant)
    except ValueError as error:
        raise click.UsageError(
            f"--at expects an ISO time such as 2030-01-31T08:00+01:00, found {instant!r}."
        ) from error
    if moment.tzinfo is None:
        moment = moment.astimezone()
        say(f"--at has no offset: taken as local time, {moment.isoformat()}.")
    return moment

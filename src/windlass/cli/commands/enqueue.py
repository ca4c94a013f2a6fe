"""`windlass enqueue`: enqueue one job by hand.

1. Read the call by the annotations of the task, so that a date given as text becomes a date. A
   value that does not fit is a usage error; a field without effect is reported.
2. Store the job, and print its id.
3. With `--wait`, wait for the end of the job and print its result.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, cast

import click
import msgspec

from windlass.app import Windlass
from windlass.calls.json_calls import read_call, unread_fields
from windlass.cli.support import parameters
from windlass.cli.support.calls import fitting, parse
from windlass.cli.support.connection import connect_to_enqueue
from windlass.cli.support.output import print_json, say
from windlass.cli.support.parameters import connection_options, json_option
from windlass.cli.support.task_names import full_name
from windlass.cli.support.wording import program, sentence
from windlass.client.options import HIGHEST_PRIORITY, LOWEST_PRIORITY, CallOptions
from windlass.core.failures import FailureText
from windlass.core.foreign_words import suggest_dotted
from windlass.core.states import State
from windlass.errors import (
    EngineUnavailable,
    InvalidTask,
    JobCancelled,
    JobFailed,
    ResultExpired,
)
from windlass.job import Job
from windlass.task import Task

#: An error shows at most this many characters of the refused text.
_SHOWN: Final = 200
#: Examples for errors, quoted for a shell.
_ARGS: Final = """--args '["cat.jpg", 100]'"""
_KWARGS: Final = """--kwargs '{"path": "cat.jpg"}'"""
#: Python advice in errors, replaced by the name of the option.
_KEY: Final = "using(idempotency_key=...)"


@click.command()
@click.argument("task_name", metavar="TASK")
@connection_options
@click.option("--args", "args_text", default="[]", metavar="JSON", help="Positional arguments.")
@click.option("--kwargs", "kwargs_text", default="{}", metavar="JSON", help="Named arguments.")
@click.option(
    "--in",
    "delay",
    type=parameters.duration,
    metavar="DURATION",
    help="Run it after this delay, such as 10m.",
)
@click.option(
    "--at",
    "instant",
    type=parameters.instant,
    metavar="ISO",
    help="Run it at 2030-01-31T08:00+01:00.",
)
@click.option(
    "--priority",
    type=parameters.WholeNumber(LOWEST_PRIORITY, HIGHEST_PRIORITY),
    metavar="N",
    help="Higher runs first.",
)
@click.option(
    "--queue", type=parameters.queue_name, metavar="NAME", help="Override the queue of the task."
)
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Enqueue it once: for a day the same key returns the same job.",
)
@click.option("--wait", is_flag=True, help="Wait for the job to end and print its result.")
@json_option
def enqueue(
    task_name: str,
    app_path: str | None,
    url: str | None,
    args_text: str,
    kwargs_text: str,
    delay: timedelta | None,
    instant: datetime | None,
    priority: int | None,
    queue: str | None,
    idempotency_key: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Enqueue one call of TASK and print the id of the job. The end of its name is enough, such as
    `resize` for shop.tasks.resize, if no other task has that end.

    \b
    windlass enqueue shop.tasks.resize --app shop.tasks:app --args '["cat.jpg", [100]]'
    windlass enqueue shop.tasks.clean_up --in 10m --priority 10
    windlass enqueue shop.tasks.welcome --args '[42]' --idempotency-key signup-42 --wait
    """
    options = _options(delay, instant, priority, queue, idempotency_key)
    args = _parse("--args", args_text, list[msgspec.Raw], _ARGS)
    kwargs = _parse("--kwargs", kwargs_text, dict[str, msgspec.Raw], _KWARGS)
    with connect_to_enqueue(app_path, url) as app:
        task = _choose(_find_task(app, task_name), options)
        positional, named = _decode_call(task, args, kwargs)
        job = _enqueue(task, positional, named)
        if not as_json:
            click.echo(job.id)
        if not job.created:
            say(f"Job {job.id} already exists for this call: no new job was enqueued.")
        if wait:
            _wait(app, job, as_json)
        elif as_json:
            print_json({"id": job.id, "task": task.name, "created": job.created})


def _enqueue(task: Task[..., Any], positional: tuple[Any, ...], named: dict[str, Any]) -> Job[Any]:
    try:
        return task.enqueue(*positional, **named)
    except EngineUnavailable as error:  # the advice of the error is Python code
        notes = getattr(error, "__notes__", [])
        error.__notes__ = [note.replace(_KEY, "--idempotency-key KEY") for note in notes]
        raise


def _options(
    delay: timedelta | None,
    instant: datetime | None,
    priority: int | None,
    queue: str | None,
    idempotency_key: str | None,
) -> CallOptions:
    if delay is not None and instant is not None:
        raise click.UsageError("Give --in or --at, not both.")
    options = {
        "run_after": delay if instant is None else instant,
        "priority": priority,
        "queue": queue,
        "idempotency_key": idempotency_key,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return cast(CallOptions, given)


# ---------------------------------------------------------------------------------------- the call


def _parse(option: str, text: str, kind: Any, example: str) -> Any:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return parse(option, text, kind, shown=shown, advice=f" Write for example {example}.")


def _find_task(app: Windlass, name: str) -> Task[..., Any]:
    task = app.find_task(full_name(app, name))
    if task is None:
        names = sorted([*app.tasks, *app.remote_tasks])
        known = ", ".join(names) or "none"
        hint = suggest_dotted(name, names)
        raise InvalidTask(f"The app has no task {name!r}.{hint} It has: {known}.")
    return task


def _choose(task: Task[..., Any], options: CallOptions) -> Task[..., Any]:
    try:
        return task.using(**options)
    except ValueError as error:  # the options conflict with those of the task
        raise click.UsageError(f"The options do not fit: {sentence(error)}") from error


def _decode_call(
    task: Task[..., Any], args: list[msgspec.Raw], kwargs: dict[str, msgspec.Raw]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Decode the arguments as a worker would."""
    with fitting():
        positional, named = read_call(task, args, kwargs, allow_unread=True)
    unread = unread_fields(task, args, kwargs)
    if unread:
        say(f"No argument of {task.name} has a field {' or '.join(unread)}: it was ignored.")
    return positional, named


# --------------------------------------------------------------------------------------- the result


def _wait(app: Windlass, job: Job[Any], as_json: bool) -> None:
    """Wait for the end, print the result, and fail if the job failed."""
    try:
        state, result, problem = _await_end(app, job)
    except KeyboardInterrupt:
        raise click.ClickException(
            f"Stopped waiting; the job continues. `{program()} job show {job.id}` shows its state."
        ) from None
    if as_json:
        about = {"id": job.id, "task": job.task, "created": job.created}
        print_json({**about, "state": state, "result": result})
    elif state is State.SUCCEEDED and not problem:
        print_json(result)
    if state is not State.SUCCEEDED:
        raise click.ClickException(problem)
    if problem:
        say(problem)


def _await_end(app: Windlass, job: Job[Any]) -> tuple[State, object, str]:
    """Return the final state, the result, and a message."""
    if not any(session.expires_in_ms >= 0 for session in app.engine.sessions()):
        say(f"No worker is running at {app.engine.location}; the job waits for one.")
    try:
        return State.SUCCEEDED, job.result(), ""
    except ResultExpired:
        return State.SUCCEEDED, None, "The job succeeded; its result is not stored."
    except JobFailed as error:
        return State.DEAD, None, _describe_death(error)
    except JobCancelled as error:
        return State.CANCELLED, None, f"Job {job.id} ended as cancelled ({error.reason})."


def _describe_death(error: JobFailed) -> str:
    cause = str(FailureText(error.type, error.message, error.traceback))
    # A job that ended outside its code, for example by a crash, has no traceback.
    shown = "the traceback" if error.traceback else "its history"
    return (
        f"Job {error.job_id} of task {error.task} is dead ({error.reason}): {cause}\n"
        f"`{program()} dead show {error.job_id}` has {shown}; after fixing the cause, "
        f"`{program()} dead retry {error.job_id}` makes the job ready again."
    )

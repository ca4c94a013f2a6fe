"""`windlass job edit`, `run-now` and `move`: change jobs that wait.

1. `edit` replaces the arguments of one job, and also of a dead or cancelled one.
2. `run-now` and `move` change jobs by id, with a verdict for each, or by filter, in bounded steps
   with progress.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import click

from windlass.app import Windlass
from windlass.cli.commands.dead_edit import new_arguments
from windlass.cli.commands.queue import require_known, why_unknown_queue
from windlass.cli.support import bulk
from windlass.cli.support.calls import fitting
from windlass.cli.support.connection import connect
from windlass.cli.support.holds import why_paused
from windlass.cli.support.output import FAILED, ask, report, say
from windlass.cli.support.parameters import (
    F,
    connection_options,
    ids_argument,
    job_id,
    json_option,
    queue_name,
    yes_option,
)
from windlass.cli.support.task_names import declares_tasks, stored_name, why_unknown
from windlass.cli.support.verdicts import exit_code, print_codes
from windlass.cli.support.wording import count
from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.dead_letters import read_task
from windlass.engine.contract import BATCH, ChangeCode, JobChange, JobRecord
from windlass.errors import JobNotFound
from windlass.jobs import CHANGEABLE, JobChoice, now, to_queue
from windlass.twins import run

T = TypeVar("T")


def _state_option(*states: State) -> Callable[[F], F]:
    choices = click.Choice([str(state) for state in states])
    return click.option("--state", type=choices, help="Only jobs in this state.")


@click.command(short_help="Replace the arguments of a job that does not run.")
@click.argument("job_id", type=job_id, metavar="ID")
@click.option("--args", "args_text", metavar="JSON", help="The new arguments, as a JSON array.")
@click.option("--kwargs", "kwargs_text", metavar="JSON", help="The new keyword arguments.")
@click.option("--unchecked", is_flag=True, help="Do not check these arguments against the task.")
@connection_options
@json_option
def edit(
    job_id: str,
    args_text: str | None,
    kwargs_text: str | None,
    unchecked: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Replace the arguments of a job that does not run and has not succeeded.

    A waiting job keeps its place; a dead or cancelled job becomes ready again. Arguments that are
    not given stay, and so do headers and the unique key. The arguments must fit the task;
    --unchecked is for a task whose code is not here.

    \b
    windlass job edit 01m7gk6tx900smjc57av0rnpgb --args '["cat.jpg"]'
    windlass job edit 01m7gk6tx900smjc57av0rnpgb --kwargs '{"width": 100}'
    """
    if args_text is None and kwargs_text is None:
        raise click.UsageError("Expected new arguments: give --args, --kwargs or both.")
    with connect(app_path, url) as app:
        record = _read(app, job_id)
        with fitting():
            args, kwargs = new_arguments(app, record, args_text, kwargs_text, unchecked=unchecked)
            is_done = run(app, app.jobs.editing(job_id, args, kwargs, unchecked=unchecked))
        if not is_done:
            raise click.ClickException(
                f"Job {job_id} was not changed: it is {_read(app, job_id).state}. Only jobs that "
                "are ready, scheduled, retrying, dead or cancelled can be edited."
            )
        info = app.job(job_id).info()
    report(info, f"Job {job_id} has new arguments; it is {info.state}.", as_json)


def _read(app: Windlass, job_id: str) -> JobRecord:
    (record,) = app.engine.get([job_id])
    if record is None:
        raise JobNotFound(job_id, app.engine.location)
    return app.packing.reveal(record)


# ----------------------------------------------------------------------------- starting and moving

_WAITS: Final = "Only jobs that are ready, scheduled or retrying can be changed"


@click.command("run-now", short_help="Let scheduled and retrying jobs start at once.")
@ids_argument(required=False)
@click.option("--task", metavar="NAME", help="Only waiting jobs of this task.")
@click.option("--queue", type=queue_name, metavar="NAME", help="Only waiting jobs of this queue.")
@_state_option(State.SCHEDULED, State.RETRYING)
@yes_option
@connection_options
@json_option
def run_now(
    ids: Sequence[str],
    task: str | None,
    queue: str | None,
    state: str | None,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Let scheduled and retrying jobs start at once: by ID, or all that match the options.

    Asks for confirmation on a terminal when a filter matches more than one job.

    \b
    windlass job run-now 01m7gk6tx900smjc57av0rnpgb
    windlass job run-now --task shop.tasks.charge --state retrying
    """
    _choice(ids, task=task, queue=queue, state=state)
    with connect(app_path, url) as app:
        task = task and stored_name(app, task)
        choice = _choice(ids, task=task, queue=queue, state=state)
        if ids:
            changes = [JobChange(id=job_id, run_in_ms=0) for job_id in ids]
            codes = [code for some in _parts(changes) for code in app.engine.change_jobs(some)]
            print_codes(app, ids, codes, as_json, _WAITS)
            pairs = zip(ids, codes, strict=True)
            _tell_paused(app, [job_id for job_id, code in pairs if code is ChangeCode.DONE])
            return exit_code(codes, {ChangeCode.DONE})
        change = _Bulk("Starting", "started", now, choice)
        return change.run(app, yes, as_json)


def _tell_paused(app: Windlass, ids: Sequence[str]) -> None:
    """Report jobs that do not start, because their task is paused."""
    paused = set(app.engine.paused_tasks())
    for some in _parts(ids if paused else ()):
        for record in app.engine.get(some):
            if record is not None and record.task in paused:
                say(f"Job {record.id} does not start yet: {why_paused(record.task)}.")


@click.command(short_help="Move waiting jobs to another queue.")
@ids_argument(required=False)
@click.option(
    "--queue", "to", type=queue_name, required=True, metavar="NAME", help="The new queue."
)
@click.option("--from", "queue", type=queue_name, metavar="NAME", help="Only jobs of this queue.")
@click.option("--task", metavar="NAME", help="Only waiting jobs of this task.")
@_state_option(*CHANGEABLE)
@click.option("--yes", is_flag=True, help="Do not ask, also if the queue is unknown.")
@connection_options
@json_option
def move(
    ids: Sequence[str],
    to: str,
    queue: str | None,
    task: str | None,
    state: str | None,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Move waiting jobs to another queue: by ID, or all that match the options.

    They keep their priority, their age and their labels. Asks for confirmation on a terminal when a
    filter matches more than one job.

    \b
    windlass job move 01m7gk6tx900smjc57av0rnpgb --queue bulk
    windlass job move --from default --task shop.tasks.report --queue bulk
    """
    _choice(ids, task=task, queue=queue, state=state)
    with connect(app_path, url) as app:
        task = task and stored_name(app, task)
        choice = _choice(ids, task=task, queue=queue, state=state)
        require_known(to, app, yes)
        if ids:
            codes = [code for some in _parts(ids) for code in _move(app, some, to)]
            print_codes(app, ids, codes, as_json, _WAITS)
            return exit_code(codes, {ChangeCode.DONE})
        change = _Bulk("Moving", "moved", partial(_elsewhere, to), choice)
        return change.run(app, yes, as_json)


def _choice(ids: Sequence[str], **given: Any) -> JobChoice:
    """The filter of jobs; refused together with ids, or without both."""
    choice = {name: value for name, value in given.items() if value is not None}
    if bool(ids) is bool(choice):
        raise click.UsageError(
            "Choose jobs by ID, or by the queue, task and state that they have: exactly one of "
            "these two ways."
        )
    return cast(JobChoice, choice)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts that an engine takes in one step."""
    return (items[at : at + BATCH] for at in range(0, len(items), BATCH))


def _move(app: Windlass, ids: Sequence[str], to: str) -> Iterator[ChangeCode]:
    """Move jobs by id. Their lines are read first, since the labels stay."""
    known = {record.id: record for record in app.engine.get(ids) if record is not None}
    changes = [to_queue(record, to) for record in known.values()]
    codes = dict(zip(known, app.engine.change_jobs(changes), strict=True))
    return (codes.get(job_id, ChangeCode.UNKNOWN) for job_id in ids)


def _elsewhere(to: str, record: JobRecord) -> JobChange | None:
    """The change that moves a job; None if it is there already."""
    return None if queue_of(record.queue) == to else to_queue(record, to)


class _Bulk(NamedTuple):
    """A change of all jobs that match a filter."""

    doing: str
    done: str
    change_of: Callable[[JobRecord], JobChange | None]
    choice: JobChoice

    def run(self, app: Windlass, yes: bool, as_json: bool) -> int:
        number = sum(info.state in CHANGEABLE for info in app.jobs.list(**self.choice))
        if number > 1 and not yes and sys.stdin.isatty():
            question = f"Change {count(number, 'waiting job')} of {app.engine.location}?"
            ask(question, f"Nothing was {self.done}. Give --yes to skip the prompt.")
        with bulk.showing(self.doing, number) as show_progress:
            steps = app.jobs.changing(self.change_of, **self.choice)
            ended = bulk.run(self.done, steps, show_progress)
        changed = ended.changed
        report({self.done: changed.done}, f"{count(changed.done, 'job')} {self.done}.", as_json)
        if changed.left:
            say(f"{count(changed.left, 'job')} skipped: changed meanwhile.")
        task = read_task(self.choice.get("task")) or ""
        if self.done == "started" and changed.done and task in app.engine.paused_tasks():
            say(f"None of them starts yet: {why_paused(task)}.")
        unknown = "" if number else self._why_none(app, task)
        if unknown:
            say(unknown)
        if ended.was_stopped:
            raise click.ClickException(
                "Stopped: the other jobs are unchanged. Run the same command to continue."
            )
        return FAILED if unknown else 0

    def _why_none(self, app: Windlass, task: str) -> str:
        """Report a task or a queue that does not exist: probably a typo. Without an app, no task is
        known."""
        unknown = why_unknown(app, task) if task and declares_tasks(app) else ""
        queue = self.choice.get("queue")
        return unknown or ("".join(why_unknown_queue(queue, app)) if queue else "")

"""`windlass job`: list, show, explain, cancel and retry jobs. `job_change` has the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from windlass.app import Windlass
from windlass.cli.commands.job_change import edit, move, run_now
from windlass.cli.support.connection import connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.holds import is_unroutable, why_held
from windlass.cli.support.output import print_json, print_list, say, tell
from windlass.cli.support.parameters import (
    header,
    ids_argument,
    job_id,
    json_option,
    limit_option,
    moment,
    queue_name,
)
from windlass.cli.support.records import describe, print_record
from windlass.cli.support.task_names import declares_tasks, stored_name, why_unknown
from windlass.cli.support.verdicts import exit_code, print_codes
from windlass.cli.support.wording import age, count, span
from windlass.core.foreign_words import nearest
from windlass.core.queues.labels import queue_of
from windlass.core.states import Hold, State
from windlass.engine.contract import CancelCode, ChangeCode, JobRecord, Revival
from windlass.errors import JobNotFound
from windlass.fleet import read_fleet
from windlass.job import JobInfo


@click.group(cls=SuggestingGroup)
def job() -> None:
    """List, explain, cancel, retry, edit, start or move jobs.

    \b
    windlass job list --state retrying
    windlass job show 01m7gk6tx900smjc57av0rnpgb
    """


for command in (edit, run_now, move):
    job.add_command(command)


@job.command("list")
@click.option(
    "--state", type=click.Choice([str(state) for state in State]), help="Only jobs in this state."
)
@click.option("--queue", type=queue_name, metavar="NAME", help="Only jobs of this queue.")
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@click.option(
    "--since", type=moment, metavar="AGE|TIME", help="Only jobs enqueued since then: 1h is an age."
)
@click.option("--until", type=moment, metavar="AGE|TIME", help="Only jobs enqueued before then.")
@click.option(
    "--header",
    "headers",
    type=header,
    multiple=True,
    metavar="NAME=VALUE",
    help="Only jobs with this header. May be repeated.",
)
@limit_option
@connected
@json_option
def list_(
    app: Windlass,
    state: str | None,
    queue: str | None,
    task: str | None,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    headers: Sequence[tuple[str, str]],
    limit: int,
    as_json: bool,
) -> None:
    """List jobs, state by state.

    Running jobs come first, then ready ones in the order in which they start, then waiting ones by
    due time, then dead, cancelled and succeeded ones, each latest first. The column "ran" says how
    long a job has run, or took, from its claim to its stored end; the log of the worker has the
    time of the task alone.

    \b
    windlass job list --state retrying
    windlass job list --task shop.tasks.charge --since 1h --limit 10
    windlass job list --header user=ann --until 2030-01-31T08:00+01:00
    """
    if since is not None and until is not None and _ago(since) < _ago(until):
        raise click.UsageError(
            "--since is later than --until, and no job can match: swap them. An age counts back "
            "from now, so that 1h is before 10s."
        )
    task = task and stored_name(app, task)
    try:
        jobs = app.jobs.list(
            state=state,
            queue=queue,
            task=task,
            since=since,
            until=until,
            headers=dict(headers),
            limit=limit + 1,
        )
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    found = list(jobs)
    question = "" if found else _ask_after(app, task, queue)
    print_list(
        found,
        list,
        ["id", "task", "queue", "state", "held", ">attempts", "enqueued", "ran"],
        _row,
        none=f"No such jobs.{question}",
        as_json=as_json,
        limit=limit,
    )


def _ago(moment: datetime | timedelta) -> timedelta:
    return moment if isinstance(moment, timedelta) else datetime.now(UTC) - moment


def _ask_after(app: Windlass, task: str | None, queue: str | None) -> str:
    """Report an unknown task, or suggest a known name for an unknown queue."""
    unknown = why_unknown(app, task) if task and declares_tasks(app) else ""
    if unknown:
        return f" {unknown}"
    queues = {queue_of(line) for line in app.engine.stats().queues}
    return nearest(queue, queues) if queue and queue not in queues else ""


def _row(info: JobInfo) -> tuple[object, ...]:
    held = "" if info.hold is Hold.NONE else info.hold
    enqueued = age(info.enqueued_at)
    ran = _ran(info)
    return (info.id, info.task, info.queue, info.state, held, info.attempts, enqueued, ran)


def _ran(info: JobInfo) -> str:
    """How long a job has run, or how long its last attempt took. A cancelled job may have waited
    between its start and its end."""
    if info.started_at is None or info.state not in (State.RUNNING, State.SUCCEEDED, State.DEAD):
        return ""
    ran = (info.finished_at or datetime.now(UTC)) - info.started_at
    return span(max(0, ran // timedelta(milliseconds=1)))


@job.command()
@click.argument("job_id", type=job_id, metavar="ID")
@connected
@json_option
def why(app: Windlass, job_id: str, as_json: bool) -> None:
    """Say why a job does not run.

    Lists what holds the job, in the order in which to resolve it, with a command for each.

    \b
    windlass job why 01m7gk6tx900smjc57av0rnpgb
    """
    found = app.jobs.why(job_id)
    if as_json:
        print_json(found)
        return
    for hold in found.holds:
        tell(hold.text)
        if hold.command is not None:
            tell(f"    {hold.command}")


@job.command()
@ids_argument(required=True)
@connected
@json_option
def show(app: Windlass, ids: Sequence[str], as_json: bool) -> int:
    """Show all details of jobs.

    \b
    windlass job show 01m7gk6tx900smjc57av0rnpgb
    """
    records = app.engine.get(ids)
    fleet = read_fleet(app.engine) if any(map(_is_held, records)) else []
    found = [
        (app.packing.reveal(record), why_held(app.packing.reveal_failures(record), fleet))
        for record in records
        if record is not None
    ]
    if as_json:
        print_json([describe(app, record, why) for record, why in found])
    else:
        _print_all(app, found)
    for id, record in zip(ids, records, strict=True):
        if record is None:
            say(f"Error: {JobNotFound(id, app.engine.location)}")
    return 0 if len(found) == len(ids) else 1


def _is_held(record: JobRecord | None) -> bool:
    return record is not None and is_unroutable(record)


def _print_all(app: Windlass, found: Sequence[tuple[JobRecord, str | None]]) -> None:
    for number, (record, why) in enumerate(found):
        if number:
            click.echo()
        print_record(app, record, why)


@job.command(short_help="Cancel jobs that have not ended.")
@ids_argument(required=True)
@connected
@json_option
def cancel(app: Windlass, ids: Sequence[str], as_json: bool) -> int:
    """Cancel jobs that have not ended.

    A waiting job is cancelled at once. The worker interrupts a running job a moment later, and the
    job ends as cancelled unless it succeeds.

    \b
    windlass job cancel 01m7gk6tx900smjc57av0rnpgb
    """
    codes = app.engine.cancel(ids)
    print_codes(app, ids, codes, as_json)
    running = codes.count(CancelCode.REQUESTED)
    if running:
        say(f"{count(running, 'job')} running: will end as cancelled unless the run succeeds.")
    return exit_code(codes, {CancelCode.CANCELLED, CancelCode.REQUESTED})


@job.command(short_help="Make dead or cancelled jobs ready again.")
@ids_argument(required=True)
@connected
@json_option
def retry(app: Windlass, ids: Sequence[str], as_json: bool) -> int:
    """Make dead or cancelled jobs ready again, with fresh attempts.

    \b
    windlass job retry 01m7gk6tx900smjc57av0rnpgb
    """
    codes = app.engine.revive([Revival(id=job_id) for job_id in ids])
    print_codes(app, ids, codes, as_json, "Only jobs that are dead or cancelled can be retried")
    return exit_code(codes, {ChangeCode.DONE})

"""`windlass job`: list, show, cancel and retry jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import click

from windlass.app import Windlass
from windlass.cli.support.connection import connected
from windlass.cli.support.fleet import is_unroutable, read_fleet, why_held
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import print_json, print_list, print_table, say
from windlass.cli.support.parameters import (
    ids_argument,
    json_option,
    limit_option,
    queue_name,
)
from windlass.cli.support.records import describe, find_all, print_record
from windlass.cli.support.task_names import stored_name
from windlass.cli.support.wording import age, count
from windlass.core.foreign_words import nearest
from windlass.core.queues.labels import queue_of
from windlass.core.states import Hold, State
from windlass.engine.contract import CancelCode, ChangeCode, Filter, JobRecord, Revival
from windlass.errors import JobNotFound
from windlass.job import JobInfo


@click.group(cls=SuggestingGroup)
def job() -> None:
    """List jobs; show, cancel or retry single ones by id.

    \b
    windlass job list --state retrying
    windlass job show 01m7gk6tx900smjc57av0rnpgb
    """


@job.command("list")
@click.option(
    "--state", type=click.Choice([str(state) for state in State]), help="Only jobs in this state."
)
@click.option("--queue", type=queue_name, metavar="NAME", help="Only jobs of this queue.")
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@limit_option
@connected
@json_option
def list_(
    app: Windlass,
    state: str | None,
    queue: str | None,
    task: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    \b
    windlass job list --state retrying
    windlass job list --task shop.tasks.charge --limit 10
    """
    task = task and stored_name(app, task)
    wanted = Filter(state=State(state) if state else None, queue=queue, task=task)
    found = list(islice(find_all(app.engine, wanted), limit + 1))
    question = "" if found else _ask_after(app, task, queue)
    print_list(
        found,
        lambda shown: [JobInfo.of(record) for record in shown],
        ["id", "task", "queue", "state", "held", ">attempts", "enqueued"],
        _row,
        none=f"No such jobs.{question}",
        as_json=as_json,
        limit=limit,
    )


def _ask_after(app: Windlass, task: str | None, queue: str | None) -> str:
    """Suggest a known name for an unknown task or queue."""
    queues = {queue_of(line) for line in app.engine.stats().queues}
    asked = nearest(task, app.tasks) if task and task not in app.tasks else ""
    return asked or (nearest(queue, queues) if queue and queue not in queues else "")


def _row(record: JobRecord) -> tuple[object, ...]:
    info = JobInfo.of(record)
    held = "" if info.hold is Hold.NONE else info.hold
    enqueued = age(info.enqueued_at)
    return (info.id, info.task, info.queue, info.state, held, info.attempts, enqueued)


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
        (app.packing.reveal(record), why_held(record, fleet))
        for record in records
        if record is not None
    ]
    if as_json:
        print_json([describe(record, why) for record, why in found])
    else:
        _print_all(found)
    for job_id, record in zip(ids, records, strict=True):
        if record is None:
            say(f"Error: {JobNotFound(job_id, app.engine.location)}")
    return 0 if len(found) == len(ids) else 1


def _is_held(record: JobRecord | None) -> bool:
    return record is not None and is_unroutable(record)


def _print_all(found: Sequence[tuple[JobRecord, str | None]]) -> None:
    for number, (record, why) in enumerate(found):
        if number:
            click.echo()
        print_record(record, why)


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
    _print_codes(app, ids, codes, as_json)
    running = codes.count(CancelCode.REQUESTED)
    if running:
        say(f"{count(running, 'job')} running: will end as cancelled unless the run succeeds.")
    return _exit_code(codes, {CancelCode.CANCELLED, CancelCode.REQUESTED})


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
    _print_codes(app, ids, codes, as_json)
    return _exit_code(codes, {ChangeCode.DONE})


_Codes = Sequence[CancelCode] | Sequence[ChangeCode]


def _print_codes(app: Windlass, ids: Sequence[str], codes: _Codes, as_json: bool) -> None:
    """Print the outcome for each id."""
    verdicts = dict(zip(ids, codes, strict=True))
    if as_json:
        print_json(verdicts)
    else:
        print_table(["id", "verdict"], verdicts.items())
    for job_id, code in verdicts.items():
        if code in (CancelCode.UNKNOWN, ChangeCode.UNKNOWN):
            say(f"Error: {JobNotFound(job_id, app.engine.location)}")
        if code is ChangeCode.REFUSED:
            say(f"Job {job_id} was not changed: only dead and cancelled jobs can be retried.")
        if code is ChangeCode.DUPLICATE:
            say(f"Job {job_id} was not changed: another job holds its unique key.")


def _exit_code(codes: _Codes, successes: set[CancelCode] | set[ChangeCode]) -> int:
    failed = sum(code not in successes for code in codes)
    if failed:
        say(f"Not changed: {failed} of {len(codes)}.")
    return 1 if failed else 0

"""`windlass workers`: the live workers and their running jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from windlass.app import Windlass
from windlass.cli.support.connection import connected
from windlass.cli.support.output import print_json, print_table, say
from windlass.cli.support.parameters import json_option
from windlass.cli.support.wording import age, count
from windlass.core.queues.plans import describe_tiers
from windlass.fleet import WorkerInfo, read_fleet

#: The most running jobs to list.
LISTED: Final = 50


@click.command(short_help="List live workers and their running jobs.")
@connected
@json_option
def workers(app: Windlass, as_json: bool) -> None:
    """List live workers and their running jobs. Stopped and dead workers are not shown.

    \b
    windlass workers --app shop.tasks:app
    """
    fleet = read_fleet(app.engine)
    if as_json:
        print_json(fleet)
    elif not fleet:
        say("No workers.")
    else:
        _print_workers(fleet)
        _print_running(fleet)


def _print_workers(fleet: Sequence[WorkerInfo]) -> None:
    print_table(
        ["host", ">pid", ">children", ">slots", ">jobs", "started", "app", "queues"],
        (
            (
                worker.host,
                str(worker.pid),
                len(worker.children),
                worker.slots,
                worker.jobs,
                age(worker.started_at),
                worker.app,
                queues_of(worker),
            )
            for worker in fleet
        ),
    )


def queues_of(worker: WorkerInfo) -> str:
    queues = describe_tiers(worker.queues) or "every queue"
    return f"{queues}; labels {', '.join(worker.labels)}" if worker.labels else queues


def _print_running(fleet: Sequence[WorkerInfo]) -> None:
    rows = list(running_jobs(fleet))
    if rows:
        say("")
        print_table(["job", "task", "queue", ">attempt", "claimed", "by"], rows[:LISTED])
    if len(rows) > LISTED:
        say(f"And {count(len(rows) - LISTED, 'more job')}: --json shows them.")


def running_jobs(fleet: Sequence[WorkerInfo]) -> Iterator[tuple[object, ...]]:
    """The running jobs, the longest-running first."""
    found = [
        (job.started_at, job, f"{worker.host} {child.pid}")
        for worker in fleet
        for child in worker.children
        for job in child.running
    ]
    for started_at, job, place in sorted(
        found, key=lambda one: (one[0] is None, one[0], one[1].id)
    ):
        yield job.id, job.task, job.queue, job.attempt, age(started_at), place

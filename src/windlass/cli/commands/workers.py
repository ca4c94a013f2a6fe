"""`windlass workers`: list the live workers and their running jobs, and command workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click

from windlass.app import Windlass
from windlass.cli.support.audit_trail import note
from windlass.cli.support.connection import connect, connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.lost_workers import print_lost
from windlass.cli.support.output import FAILED, ask, print_json, print_table, say, tell
from windlass.cli.support.parameters import connection_options, json_option, yes_option
from windlass.cli.support.wording import age, count, span
from windlass.core.queues.plans import describe_tiers
from windlass.engine.contract import SessionCommand
from windlass.fleet import WorkerInfo, WorkerState, read_fleet

#: The most running jobs to list.
LISTED: Final = 50
#: Heartbeats in one lease.
_BEATS: Final = 3


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    short_help="List live workers, or make them quiet, resume or stop.",
)
@click.option("--lost", is_flag=True, help="List lost sessions and crash suspects instead.")
@connection_options
@json_option
@click.pass_context
def workers(
    ctx: click.Context, lost: bool, app_path: str | None, url: str | None, as_json: bool
) -> None:
    """List live workers and their running jobs, or command workers. Stopped and dead workers are
    not shown: --lost lists those that died, with their jobs.

    \b
    windlass workers --app shop.tasks:app
    windlass workers --lost
    windlass workers quiet web-1:4711
    """
    if ctx.invoked_subcommand is None:
        with connect(app_path, url) as app:
            if lost:
                print_lost(app, as_json)
            else:
                _list(read_fleet(app.engine), as_json=as_json)
        return
    options = {"--lost": lost, "--app": app_path, "--url": url, "--json": as_json}
    for name, given in options.items():
        if given:
            if name == "--lost":
                raise click.UsageError(f"--lost is not for {ctx.invoked_subcommand}: leave it out.")
            raise click.UsageError(f"Write {name} after {ctx.invoked_subcommand}.")


def _list(fleet: Sequence[WorkerInfo], *, as_json: bool) -> None:
    if as_json:
        print_json(fleet)
    elif not fleet:
        say("No workers.")
    else:
        _print_workers(fleet)
        _print_running(fleet)


def _print_workers(fleet: Sequence[WorkerInfo]) -> None:
    has_releases = any(worker.release for worker in fleet)
    release = ["release"] if has_releases else []
    print_table(
        [
            "host",
            ">pid",
            "state",
            ">children",
            ">slots",
            ">jobs",
            "started",
            "app",
            *release,
            "queues",
        ],
        (
            (
                worker.host,
                worker.place,
                worker.state,
                children_of(worker),
                worker.slots,
                worker.jobs,
                age(worker.started_at),
                worker.app,
                *([worker.release or "-"] if has_releases else []),
                queues_of(worker),
            )
            for worker in fleet
        ),
    )


def children_of(worker: WorkerInfo) -> str:
    number = str(len(worker.children))
    if not worker.most_children:
        return number
    return f"{number} of {worker.least_children}..{worker.most_children}"


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
        (job.started_at, job, f"{worker.host} {worker.kind or child.pid}")
        for worker in fleet
        for child in worker.children
        for job in child.running
    ]
    for started_at, job, place in sorted(
        found, key=lambda one: (one[0] is None, one[0], one[1].id)
    ):
        yield job.id, job.task, job.queue, job.attempt, age(started_at), place


# ---------------------------------------------------------------------------------------- commands


def _command_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the workers that a command is for, and the options of all commands."""
    names = click.argument("names", nargs=-1, metavar="[HOST:PID|SESSION]...")
    everything = click.option("--all", "everything", is_flag=True, help="All live workers.")
    return names(everything(yes_option(connected(json_option(command)))))


@workers.command(short_help="Let workers finish their jobs and claim no more.")
@_command_options
def quiet(app: Windlass, names: Sequence[str], everything: bool, yes: bool, as_json: bool) -> int:
    """Let workers finish their running jobs and claim no more. They stay alive: `resume` lets them
    claim again. A worker obeys with its next heartbeat, after a third of its lease at most.

    \b
    windlass workers quiet web-1:4711 web-2:4711
    windlass workers quiet --all --yes
    """
    chosen = _choose(app, names, everything, yes, "Make {} quiet?")
    return _command(app, chosen, SessionCommand.QUIET, as_json)


@workers.command(short_help="Let quiet workers claim jobs again.")
@_command_options
def resume(app: Windlass, names: Sequence[str], everything: bool, yes: bool, as_json: bool) -> int:
    """Let quiet workers claim jobs again.

    \b
    windlass workers resume web-1:4711
    windlass workers resume --all --yes
    """
    chosen = _choose(app, names, everything, yes, "Resume {}?")
    return _command(app, chosen, SessionCommand.RUN, as_json)


@workers.command(short_help="Let workers finish their jobs and end.")
@_command_options
def stop(app: Windlass, names: Sequence[str], everything: bool, yes: bool, as_json: bool) -> int:
    """Let workers end as SIGTERM does: running jobs have the grace period to finish, and are handed
    back after it. This cannot be undone. A service manager may start a worker again.

    \b
    windlass workers stop web-1:4711
    windlass workers stop --all
    """
    chosen = _choose(app, names, everything, yes, "Stop {}? This cannot be undone.")
    return _command(app, chosen, SessionCommand.STOP, as_json)


def _choose(
    app: Windlass, names: Sequence[str], everything: bool, yes: bool, question: str
) -> Sequence[str]:
    """Return the names that were given, or those of all workers after a confirmation."""
    fleet = read_fleet(app.engine)
    known = [worker.name for worker in fleet]
    if bool(names) is everything:
        listed = ", ".join(known[:10]) or "none"
        raise click.UsageError(
            f"Expected workers, as HOST:PID or by a session, or --all. Live workers: {listed}."
        )
    if names:
        return names
    chosen = [worker.name for worker in fleet if worker.state is not WorkerState.STOPPING]
    if chosen and not yes:
        whom = f"{count(len(chosen), 'worker')} of {app.engine.location}"
        ask(question.format(whom), "Nothing was changed. Give --yes to skip the prompt.")
    return chosen


def _command(app: Windlass, names: Sequence[str], command: SessionCommand, as_json: bool) -> int:
    told = app.command_workers(names, command)
    refused = [
        worker
        for worker in told
        if worker.state is WorkerState.STOPPING and command is not SessionCommand.STOP
    ]
    obeying = [worker.name for worker in told if worker not in refused]
    note(workers=obeying, done=len(obeying), refused=len(refused))
    if as_json:
        print_json(told)
    for worker in () if as_json else told:
        tell(_describe_command(worker, command))
    if not names:
        say("No workers.")
    for name in names:
        if not any(name == one.name or name in _sessions(one) for one in told):
            say(f"Worker {name} has ended meanwhile.")
    return FAILED if refused else 0


def _sessions(worker: WorkerInfo) -> set[str]:
    return {child.session for child in worker.children}


def _describe_command(worker: WorkerInfo, command: SessionCommand) -> str:
    lease_ms = max(child.lease_ms for child in worker.children)
    when = f"within {span(lease_ms // _BEATS)}" if lease_ms else "with its next heartbeat"
    jobs = f" and finishes {count(worker.jobs, 'job')}" if worker.jobs else ""
    if command is SessionCommand.STOP:
        return f"Worker {worker.name} begins to stop {when}{jobs}."
    if worker.state is WorkerState.STOPPING:
        return f"Worker {worker.name} is stopping, which cannot be undone: start another one."
    if command is SessionCommand.QUIET:
        return f"Worker {worker.name} claims no more jobs {when}{jobs}."
    return f"Worker {worker.name} claims jobs again {when}."

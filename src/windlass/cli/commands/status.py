"""`windlass status`: the number of jobs by queue and state.

With `--since`: what queues and tasks did since then, and the load of queues now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import click

from windlass.app import Windlass
from windlass.cli.support.checks import RUN_ELSEWHERE, remote_lines
from windlass.cli.support.connection import connected
from windlass.cli.support.holds import find_held, what_was_cut, why_held
from windlass.cli.support.loads import (
    QUEUE_COLUMNS,
    TASK_COLUMNS,
    describe_stats,
    queue_row,
    task_rows,
)
from windlass.cli.support.outbox import describe_state, read_state
from windlass.cli.support.output import print_json, print_table, say
from windlass.cli.support.parameters import json_option, moment, queue_name
from windlass.cli.support.wording import count, has_stored, never_stored, program, sentence, span
from windlass.core.history import KEEP_MINUTES_MS
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import labels_of, may_take, queue_of
from windlass.core.queues.load import QueueLoad
from windlass.core.states import WAITING, State
from windlass.engine.contract import (
    Engine,
    JobRecord,
    QueueRecord,
    SessionCommand,
    SessionRecord,
    Stats,
)
from windlass.engine_copy.documents import target_of_copy
from windlass.errors import EngineError
from windlass.fleet import read_fleet
from windlass.history import StepName, choose_history, read_window
from windlass.outbox.rows import OutboxState
from windlass.outbox.url import OutboxUrl
from windlass.queue_loads import read_loads


@click.command(short_help="Show the number of jobs by queue and state.")
@connected
@click.option(
    "--since",
    type=moment,
    metavar="AGE|TIME",
    help="Show what queues and tasks did since then: an age such as 1h, at most 30d, or an ISO "
    "time.",
)
@click.option(
    "--queue", type=queue_name, metavar="NAME", help="With --since: show this queue only."
)
@click.option("--task", metavar="NAME", help="With --since: show this task only.")
@json_option
def status(
    app: Windlass,
    since: datetime | timedelta | None,
    queue: str | None,
    task: str | None,
    as_json: bool,
) -> None:
    """Show the number of jobs by queue and state, and the active sessions.

    With --since, show rates, the time that jobs waited and ran (p50 and p99) and the share of
    failed attempts, by queue and by task.

    \b
    windlass status --app shop.tasks:app
    windlass status --url sqlite:///jobs.db --json
    windlass status --app shop.tasks:app --since 1h
    windlass status --app shop.tasks:app --since 1h --queue mail
    """
    if since is not None:
        _show_history(app, since, queue, task, as_json=as_json)
    elif queue is not None or task is not None:
        name = "--queue" if queue is not None else "--task"
        raise click.UsageError(
            f"Expected --since with {name}: add --since 1h, or use `{program()} job list {name} "
            f"{queue or task}` for the jobs themselves."
        )
    else:
        _show_now(app, as_json=as_json)


def _show_now(app: Windlass, *, as_json: bool) -> None:
    stats, sessions, queues = app.engine.stats(), app.engine.sessions(), app.engine.queues()
    location, paused_tasks = app.engine.location, app.engine.paused_tasks()
    outbox = _read_outbox(app)
    if as_json:
        found = {"stats": describe_stats(stats), "sessions": sessions, "queues": queues}
        known = {"error": outbox} if isinstance(outbox, str) else outbox
        print_json({"engine": location, **found, "paused_tasks": paused_tasks, "outbox": known})
    else:
        say(f"Engine: {location}")
        _print_queues(stats, location)
        _print_paused(app.engine, queues)
        _print_paused_tasks(paused_tasks)
        _print_unserved(stats, sessions, remote_lines(app))
        _print_held(app, stats)
        _print_sessions(sessions)
        _print_orphans(stats)
        _print_outbox(app.settings.outbox, outbox)


def _read_outbox(app: Windlass) -> OutboxState | str | None:
    """What waits in the outbox, or why that is not known; None without an outbox."""
    try:
        return read_state(app.settings.outbox) if app.settings.outbox else None
    except EngineError as error:
        return str(error)


def _print_outbox(url: OutboxUrl, found: OutboxState | str | None) -> None:
    if found is not None:
        text = found if isinstance(found, str) else describe_state(url, found)
        say(f"Outbox: {sentence(text)}")


def _show_history(
    app: Windlass,
    since: datetime | timedelta,
    queue: str | None,
    task: str | None,
    *,
    as_json: bool,
) -> None:
    """Show the history. Beyond a day it is read by the hour."""
    now = datetime.now(UTC)
    age = since if isinstance(since, timedelta) else now - since
    step: StepName = "hour" if age > timedelta(milliseconds=KEEP_MINUTES_MS) else "minute"
    try:
        window = read_window(app.engine, choose_history(since, queue, task, step))
    except ValueError as error:
        raise click.UsageError(f"Cannot read --since: {error}.") from error
    queues = {name: window.activity(own) for name, own in window.queues.items()}
    tasks = {name: window.activity(own) for name, own in window.tasks.items()}
    loads = [
        load
        for load in _read_all_loads(app, queues)
        if queue in (None, load.queue) and (task is None or load.queue in queues)
    ]
    location = app.engine.location
    if as_json:
        names = {load.queue for load in loads}
        peaks = {name: peak for name, peak in window.peaks.items() if name in names}
        shown = {"queues": queues, "tasks": tasks, "peaks": peaks}
        print_json({"engine": location, "step": step, "loads": loads, **shown})
        return
    say(f"Engine: {location}")
    if not loads and not queues:
        about = f" of the task {task}" if task is not None else ""
        say(f"No jobs{about}, and no history since then.")
        return
    print_table(QUEUE_COLUMNS, (queue_row(load, queues.get(load.queue)) for load in loads))
    if tasks:
        click.echo()
        print_table(TASK_COLUMNS, task_rows(tasks))
    _print_paused(app.engine, app.engine.queues())
    _print_paused_tasks(app.engine.paused_tasks())
    if any(load.held for load in loads):
        _print_held(app, app.engine.stats())
    _print_sessions(app.engine.sessions())


def _read_all_loads(app: Windlass, queues: Collection[str]) -> list[QueueLoad]:
    """The loads of all known queues, also of those that only the history knows."""
    loads = read_loads(app.engine)
    known = {load.queue for load in loads}
    return [*loads, *(QueueLoad(queue=name) for name in sorted(set(queues) - known))]


def _print_orphans(stats: Stats) -> None:
    dropped = stats.totals.get("orphans", 0)
    if dropped:
        entries = count(dropped, "entry", "entries")
        say(
            f"Dropped from indexes so far, because their jobs are missing: {entries}. "
            f"`{program()} check --repair` shows what is left to repair."
        )


def _print_queues(stats: Stats, location: str) -> None:
    if not stats.queues:
        say(_why_empty(stats, location))
        return
    states = [state for state in State if any(state in counts for counts in stats.queues.values())]
    print_table(
        ["queue", *(f">{state}" for state in states), ">next waits"],
        (
            (queue, *(counts.get(state, 0) for state in states), _age(stats, queue))
            for queue, counts in sorted(stats.queues.items())
        ),
    )


def _why_empty(stats: Stats, location: str) -> str:
    advice = f"Enqueue one from your code, or with `{program()} enqueue`."
    if has_stored(stats):
        return f"No jobs. {advice}"
    return f"No jobs; {never_stored(location)}. {advice}"


def _print_paused(engine: Engine, queues: Sequence[QueueRecord]) -> None:
    paused = [record.queue for record in queues if record.paused]
    if not paused:
        return
    target = target_of_copy(engine)
    if target is None:
        say(f"Paused: {', '.join(paused)}. `{program()} queue resume NAME` resumes a queue.")
    else:
        say(
            f"Paused: {', '.join(paused)}. Jobs of this engine are copied to {target}: do not "
            "resume queues here, or jobs run twice."
        )


def _print_paused_tasks(tasks: Sequence[str]) -> None:
    if tasks:
        names = ", ".join(tasks)
        say(f"Paused tasks: {names}. `{program()} task resume NAME` resumes a task.")


def _print_unserved(
    stats: Stats, sessions: Sequence[SessionRecord], remote: Collection[str]
) -> None:
    """Report jobs that no live worker may claim, because no worker has their labels."""
    known = [Introduction.unpack(one.info) for one in sessions if one.expires_in_ms >= 0]
    for line, counts in sorted(stats.queues.items()):
        labels, waiting = labels_of(line), sum(counts.get(state, 0) for state in WAITING)
        if labels and waiting and not any(may_take(line, one.labels) for one in known):
            options = " ".join(f"--label {label}" for label in labels)
            start = RUN_ELSEWHERE if line in remote else f"start a worker with {options}"
            say(
                f"In the queue {queue_of(line)}, waiting for {' and '.join(labels)}, which no "
                f"worker has: {count(waiting, 'job')}. {start[0].upper()}{start[1:]}."
            )


def _print_held(app: Windlass, stats: Stats) -> None:
    """Report ready jobs that no worker can run, with the reason of the first one of each task."""
    held: dict[str, list[JobRecord]] = {}
    found = find_held(app.engine, stats)
    for job in found:
        held.setdefault(job.task, []).append(job)
    if cut := what_was_cut(found):
        say(f"{cut.capitalize()}.")
    if not held:
        return
    firsts = app.engine.get([jobs[0].id for jobs in held.values()])
    fleet = read_fleet(app.engine)
    for (task, jobs), record in zip(held.items(), firsts, strict=True):
        why = record and why_held(app.packing.reveal_failures(record), fleet)
        if why:
            say(f"Held, of the task {task}: {count(len(jobs), 'job')}. {jobs[0].id}: {why}.")


def _age(stats: Stats, queue: str) -> str:
    age_ms = stats.oldest_ready_ms.get(queue)
    return "" if age_ms is None else span(age_ms)


def _print_sessions(sessions: Sequence[SessionRecord]) -> None:
    """Print active sessions, and separately sessions with an expired lease, which may be dead."""
    silent = [session for session in sessions if session.expires_in_ms < 0]
    at_work = [session for session in sessions if session.expires_in_ms >= 0]
    say(f"Active sessions: {_holding(at_work)}.")
    _print_commanded(at_work)
    if silent:
        say(
            f"Silent sessions: {_holding(silent)}. Their lease has expired; a worker gives their "
            "jobs to others."
        )


def _print_commanded(sessions: Sequence[SessionRecord]) -> None:
    """Print the sessions that claim no jobs, because an operator or a signal says so."""
    quiet = [one for one in sessions if one.command is SessionCommand.QUIET]
    stopping = [one for one in sessions if one.command is SessionCommand.STOP]
    if quiet:
        say(
            f"Quiet sessions: {_holding(quiet)}. They claim no jobs: `{program()} workers` names "
            f"their workers, and `{program()} workers resume NAME` resumes one."
        )
    if stopping:
        say(f"Stopping sessions: {_holding(stopping)}.")


def _holding(sessions: Sequence[SessionRecord]) -> str:
    jobs = sum(session.jobs for session in sessions)
    return f"{len(sessions)}, holding {count(jobs, 'job')}" if sessions else "none"

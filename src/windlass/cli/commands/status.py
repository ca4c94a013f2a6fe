"""`windlass status`: the number of jobs by queue and state."""

from __future__ import annotations

from collections.abc import Sequence

import click

from windlass.app import Windlass
from windlass.cli.support.connection import connected
from windlass.cli.support.holds import find_held, what_was_cut, why_held
from windlass.cli.support.output import print_json, print_table, say
from windlass.cli.support.parameters import json_option
from windlass.cli.support.wording import count, never_stored, program, span
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import labels_of, may_take, queue_of
from windlass.core.states import WAITING, State
from windlass.engine.contract import JobRecord, QueueRecord, SessionRecord, Stats
from windlass.fleet import read_fleet


@click.command(short_help="Show the number of jobs by queue and state.")
@connected
@json_option
def status(app: Windlass, as_json: bool) -> None:
    """Show the number of jobs by queue and state, and the active sessions.

    \b
    windlass status --app shop.tasks:app
    windlass status --url sqlite:///jobs.db --json
    """
    stats, sessions, queues = app.engine.stats(), app.engine.sessions(), app.engine.queues()
    location, paused_tasks = app.engine.location, app.engine.paused_tasks()
    if as_json:
        found = {"stats": stats, "sessions": sessions, "queues": queues}
        print_json({"engine": location, **found, "paused_tasks": paused_tasks})
    else:
        say(f"Engine: {location}")
        _print_queues(stats, location)
        _print_paused(queues)
        _print_paused_tasks(paused_tasks)
        _print_unserved(stats, sessions)
        _print_held(app, stats)
        _print_sessions(sessions)
        _print_orphans(stats)


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
    if stats.totals.get("enqueued"):
        return f"No jobs. {advice}"
    return f"No jobs; {never_stored(location)}. {advice}"


def _print_paused(queues: Sequence[QueueRecord]) -> None:
    paused = [record.queue for record in queues if record.paused]
    if paused:
        say(f"Paused: {', '.join(paused)}. `{program()} queue resume NAME` resumes a queue.")


def _print_paused_tasks(tasks: Sequence[str]) -> None:
    if tasks:
        names = ", ".join(tasks)
        say(f"Paused tasks: {names}. `{program()} task resume NAME` resumes a task.")


def _print_unserved(stats: Stats, sessions: Sequence[SessionRecord]) -> None:
    """Report jobs that no live worker may claim, because no worker has their labels."""
    known = [Introduction.unpack(one.info) for one in sessions if one.expires_in_ms >= 0]
    for line, counts in sorted(stats.queues.items()):
        labels, waiting = labels_of(line), sum(counts.get(state, 0) for state in WAITING)
        if labels and waiting and not any(may_take(line, one.labels) for one in known):
            say(
                f"In the queue {queue_of(line)}, waiting for {' and '.join(labels)}, which no "
                f"worker has: {count(waiting, 'job')}. Start a worker with "
                f"{' '.join(f'--label {label}' for label in labels)}."
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
    if silent:
        say(
            f"Silent sessions: {_holding(silent)}. Their lease has expired; a worker gives their "
            "jobs to others."
        )


def _holding(sessions: Sequence[SessionRecord]) -> str:
    jobs = sum(session.jobs for session in sessions)
    return f"{len(sessions)}, holding {count(jobs, 'job')}" if sessions else "none"

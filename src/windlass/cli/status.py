"""`windlass status`: what is in the queues, at a glance."""

from __future__ import annotations

import click

from windlass.cli.connecting import connect, connection_options, json_option
from windlass.cli.output import print_json, print_table, say
from windlass.core.durations import describe_ms
from windlass.core.states import State
from windlass.engine.contract import SessionRecord, Stats


@click.command()
@connection_options
@json_option
def status(app_path: str | None, url: str | None, as_json: bool) -> None:
    """Show how many jobs each queue has in each state, and who is working.

    \b
    windlass status --app shop.tasks:app
    windlass status --url sqlite:///jobs.db --json
    """
    with connect(app_path, url) as app:
        stats, sessions = app.engine.stats(), app.engine.sessions()
        location = app.engine.location
    if as_json:
        print_json({"engine": location, "stats": stats, "sessions": sessions})
    else:
        _print(location, stats, sessions)


def _print(location: str, stats: Stats, sessions: list[SessionRecord]) -> None:
    say(f"Engine: {location}")
    if not stats.queues:
        say("No jobs yet. Enqueue one from your code, or with `windlass enqueue`.")
        return
    states = [state for state in State if any(state in counts for counts in stats.queues.values())]
    print_table(
        ["queue", *(f">{state}" for state in states), ">next waits"],
        (
            (queue, *(counts.get(state, 0) for state in states), _age(stats, queue))
            for queue, counts in sorted(stats.queues.items())
        ),
    )
    running = sum(session.jobs for session in sessions)
    say(f"Sessions at work: {len(sessions)}, holding {running} jobs.")


def _age(stats: Stats, queue: str) -> str:
    age_ms = stats.oldest_ready_ms.get(queue)
    return "" if age_ms is None else describe_ms(age_ms // 1000 * 1000)

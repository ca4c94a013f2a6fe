"""`windlass queue`: list, pause, resume, configure and purge queues."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import click

from windlass.app import Windlass
from windlass.cli.support.audit_trail import note_done
from windlass.cli.support.connection import connect, connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import ask, print_list, progress, report, say
from windlass.cli.support.parameters import (
    connection_options,
    duration_or_off,
    json_option,
    number_or_off,
    queue_name,
    yes_option,
)
from windlass.cli.support.wording import count
from windlass.core.durations import describe_ms
from windlass.core.foreign_words import nearest
from windlass.core.queues.labels import queue_of
from windlass.core.states import WAITING, State
from windlass.engine.contract import Engine
from windlass.engine_copy.documents import target_of_copy
from windlass.queue import QueueInfo


@click.group(cls=SuggestingGroup, short_help="List, pause, configure or purge queues.")
def queue() -> None:
    """List, pause, resume, configure or purge queues.

    \b
    windlass queue list --app shop.tasks:app
    windlass queue pause mail
    """


_name = click.argument("name", type=queue_name)
_consent = click.option("--yes", is_flag=True, help="Also if the queue is unknown.")


@queue.command("list")
@connected
@json_option
def list_(app: Windlass, as_json: bool) -> None:
    """List queues with their settings and their number of jobs.

    \b
    windlass queue list --app shop.tasks:app
    windlass queue list --url redis://localhost:6379/0 --json
    """
    found = [app.queue(name).info() for name in _names(app.engine)]
    states = [state for state in State if any(state in info.jobs for info in found)]
    print_list(
        found,
        list,
        ["queue", "settings", *(f">{state}" for state in states)],
        lambda info: (info.name, settings_of(info), *(info.jobs.get(one, 0) for one in states)),
        none="No queues: nothing was enqueued yet.",
        as_json=as_json,
    )


def _names(engine: Engine) -> Iterator[str]:
    used = {queue_of(line) for line in engine.stats().queues}
    yield from sorted(used | {record.queue for record in engine.queues()})


def settings_of(info: QueueInfo) -> str:
    """Describe the settings that are not default."""
    words = ["paused"] if info.paused else []
    if info.ageing:
        words.append(f"ages by {describe_ms(info.ageing // timedelta(milliseconds=1))}")
    if info.max_waiting:
        words.append(f"at most {info.max_waiting:,} wait")
    return ", ".join(words)


@queue.command()
@_name
@_consent
@connected
@json_option
def pause(app: Windlass, name: str, yes: bool, as_json: bool) -> None:
    """Stop all claims from a queue. Running jobs continue; waiting jobs keep their place.

    \b
    windlass queue pause mail
    windlass queue pause to-come --yes
    """
    require_known(name, app, yes)
    app.queue(name).pause()
    report(app.queue(name).info(), f"The queue {name} is paused.", as_json)


@queue.command()
@_name
@click.option("--yes", is_flag=True, help="Also resume a queue of the source of a copy.")
@connected
@json_option
def resume(app: Windlass, name: str, yes: bool, as_json: bool) -> None:
    """Let workers claim from a queue again.

    \b
    windlass queue resume mail
    """
    target = target_of_copy(app.engine)
    if target is not None and not yes:
        raise click.ClickException(
            f"`windlass copy` has copied the jobs of this engine to {target}: jobs of the queue "
            f"{name} would run on both sides. Give --yes if those on the other side never run."
        )
    require_known(name, app, yes=True)  # an unknown queue is not paused
    app.queue(name).resume()
    report(app.queue(name).info(), f"The queue {name} is open.", as_json)


def require_known(name: str, app: Windlass, yes: bool) -> None:
    """Refuse an unknown queue unless `yes`: it is probably a typo, but a queue may be changed
    before its first job."""
    unknown, question = why_unknown_queue(name, app)
    if unknown and not yes:
        raise click.ClickException(f"{unknown}{question} Give --yes to change it anyway.")
    if question:
        say(f"{unknown}{question}")


def why_unknown_queue(name: str, app: Windlass) -> tuple[str, str]:
    """Return a message and a suggestion; both empty for a known queue."""
    tasks = (*app.tasks.values(), *app.remote_tasks.values())
    known = {*_names(app.engine), *(task.queue for task in tasks)}
    if name in known:
        return "", ""
    unknown = f"Unknown queue {name}: it has no jobs, and no known task uses it."
    return unknown, nearest(name, known)


@queue.command("set", short_help="Change the settings of a queue.")
@_name
@click.option(
    "--ageing",
    type=duration_or_off,
    metavar="DURATION|off",
    help="Waiting time worth one level of priority, for example 1m.",
)
@click.option(
    "--max-waiting",
    type=number_or_off,
    metavar="N|off",
    help="Refuse new jobs while this many wait.",
)
@_consent
@connection_options
@json_option
def set_(
    name: str,
    ageing: timedelta | None,
    max_waiting: int | None,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Change the settings of a queue. Settings that are not given stay.

    \b
    windlass queue set default --ageing 1m
    windlass queue set default --ageing off --max-waiting 100000
    """
    if ageing is None and max_waiting is None:
        raise click.UsageError("Expected something to change: give --ageing or --max-waiting.")
    with connect(app_path, url) as app:
        require_known(name, app, yes)
        try:
            app.queue(name).set(ageing=ageing, max_waiting=max_waiting)
        except ValueError as error:
            raise click.UsageError(f"{error}.") from error
        info = app.queue(name).info()
    report(info, f"The queue {name}: {settings_of(info) or 'default settings'}.", as_json)


@queue.command(short_help="Remove all waiting jobs of a queue permanently.")
@_name
@yes_option
@connected
@json_option
def purge(app: Windlass, name: str, yes: bool, as_json: bool) -> None:
    """Remove all waiting jobs of a queue permanently: ready, scheduled and retrying ones. Running
    jobs continue.

    \b
    windlass queue purge mail
    windlass queue purge mail --yes
    """
    unknown, question = why_unknown_queue(name, app)
    if unknown and (question or not yes):  # a script may purge an empty queue
        raise click.ClickException(f"{unknown}{question} Nothing was removed.")
    if not yes:
        _confirm(app.queue(name).info(), app.engine.location)
    # The result is printed below: without a handler Python would print the log line too.
    logging.getLogger("windlass").addHandler(logging.NullHandler())
    with progress(f"Purging {name}") as advance:

        def count_batch(number: int) -> None:
            note_done(number)
            advance(number)

        removed = app.queue(name).purge(count_batch)
    report({"purged": removed}, f"{count(removed, 'job')} removed from the queue {name}.", as_json)


def _confirm(info: QueueInfo, location: str) -> None:
    waiting = sum(info.jobs.get(state, 0) for state in WAITING)
    what_waits = count(waiting, "job that waits", "jobs that wait")
    question = f"Remove {what_waits} in {info.name} of {location} permanently?"
    ask(question, "Nothing was removed. Give --yes to skip the prompt.")

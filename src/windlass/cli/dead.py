"""`windlass dead`: the dead letters: look, retry, discard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import click

from windlass.cli.connecting import connect
from windlass.cli.group import SuggestingGroup
from windlass.cli.output import print_json, print_table, printable, progress, say, tell
from windlass.cli.parameters import (
    connection_options,
    id_argument,
    ids_argument,
    json_option,
    limit_option,
)
from windlass.cli.records import PAGE, call_text, describe, find_all, print_record
from windlass.cli.wording import age, count, summary_of
from windlass.core.states import State
from windlass.engine.contract import ChangeCode, Engine, Filter, JobRecord
from windlass.errors import JobNotFound
from windlass.job import JobInfo


@click.group(cls=SuggestingGroup)
def dead() -> None:
    """Look at dead jobs, retry them, or discard them."""


# ----------------------------------------------------------------------------------------- looking


@dead.command("list")
@click.option("--task", metavar="NAME", help="Only dead jobs of this task.")
@limit_option
@connection_options
@json_option
def list_(
    task: str | None, limit: int, app_path: str | None, url: str | None, as_json: bool
) -> None:
    """List dead jobs, newest first."""
    with connect(app_path, url) as app:
        found = [record.id for record in islice(_find(app.engine, task), limit + 1)]
        full = [
            app.packing.reveal(record)
            for record in app.engine.get(found[:limit])
            if record is not None
        ]
    if as_json:
        print_json([describe(record) for record in full])
    elif full:
        print_table(["id", "task", ">attempts", "died", "reason", "error"], map(_row, full))
    else:
        say("No dead jobs." if task is None else f"No dead jobs of the task {task}.")
    if len(found) > limit:
        say(f"There are more than these {limit:,}: give a larger --limit to see them.")


def _row(record: JobRecord) -> tuple[object, ...]:
    info = JobInfo.of(record)
    error = summary_of(info.error) if info.error else ""
    return (info.id, info.task, info.attempts, age(info.finished_at), info.reason, error)


@dead.command()
@id_argument
@connection_options
@json_option
def show(job_id: str, app_path: str | None, url: str | None, as_json: bool) -> None:
    """Show one dead job with its arguments, error and history."""
    with connect(app_path, url) as app:
        [record] = map(app.packing.reveal, _by_id(app.engine, [job_id]))
    if as_json:
        print_json(describe(record))
    else:
        print_record(record)


# ---------------------------------------------------------------------------------------- choosing


class _Selection(NamedTuple):
    """Which dead jobs are meant: these ids, those of a task, or all."""

    ids: Sequence[str]
    task: str | None
    everything: bool


def _selection(command: Any) -> Any:
    """The options by which dead jobs are chosen."""
    command = click.option("--all", "everything", is_flag=True, help="All dead jobs.")(command)
    command = click.option("--task", metavar="NAME", help="Only dead jobs of this task.")(command)
    return ids_argument(required=False)(command)


def _chosen(ids: Sequence[str], task: str | None, everything: bool) -> _Selection:
    if bool(ids) + (task is not None) + everything != 1:
        raise click.UsageError(
            "Choose jobs by ID, by --task NAME, or with --all: one of the three."
        )
    return _Selection(ids, task, everything)


def _chunks(engine: Engine, chosen: _Selection) -> Iterator[list[JobRecord]]:
    """The chosen jobs, a bounded number at a time."""
    records = iter(_by_id(engine, chosen.ids)) if chosen.ids else _find(engine, chosen.task)
    while chunk := list(islice(records, PAGE)):
        yield chunk


def _by_id(engine: Engine, ids: Sequence[str]) -> list[JobRecord]:
    """All of them, or none: a wrong id is found before anything is changed."""
    records = []
    for job_id, record in zip(ids, engine.get(ids), strict=True):
        if record is None:
            raise JobNotFound(job_id, engine.location)
        if record.state is not State.DEAD:
            raise click.ClickException(f"Job {job_id} is {record.state}, not dead.")
        records.append(record)
    return records


def _find(engine: Engine, task: str | None) -> Iterator[JobRecord]:
    return find_all(engine, Filter(state=State.DEAD, task=task))


# ---------------------------------------------------------------------------------------- changing


@dead.command()
@_selection
@connection_options
@json_option
def retry(
    ids: Sequence[str],
    task: str | None,
    everything: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make dead jobs ready again, with fresh attempts.

    \b
    windlass dead retry 01m7gk6tx900smjc57av0rnpgb
    windlass dead retry --task shop.tasks.charge
    windlass dead retry --all
    """
    chosen = _chosen(ids, task, everything)
    done = duplicates = 0
    with connect(app_path, url) as app, progress("Retrying") as advance:
        for chunk in _chunks(app.engine, chosen):
            codes = app.engine.retry([record.id for record in chunk])
            done += _count(codes)
            duplicates += codes.count(ChangeCode.DUPLICATE)
            advance(len(chunk))
    _report(done, "retried", as_json)
    if duplicates:
        say(f"{count(duplicates, 'dead job')} left as it was: another job holds its unique key.")


@dead.command(short_help="Remove dead jobs for good.")
@_selection
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def discard(
    ids: Sequence[str],
    task: str | None,
    everything: bool,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Remove dead jobs for good. Each one is printed with its call and reason as it goes.

    \b
    windlass dead discard 01m7gk6tx900smjc57av0rnpgb
    windlass dead discard --task shop.tasks.charge --yes
    """
    chosen = _chosen(ids, task, everything)
    with connect(app_path, url) as app:
        if not yes:
            _confirm(app.engine, chosen)
        done = 0
        for chunk in _chunks(app.engine, chosen):
            done += _discard(app.engine, chunk, as_json)
    _report(done, "discarded", as_json)


def _confirm(engine: Engine, chosen: _Selection) -> None:
    question = f"Remove {_words(engine, chosen)} of {engine.location} for good?"
    try:
        agreed = click.confirm(printable(question), err=True)
    except click.Abort:  # nobody there to answer
        agreed = False
        click.echo(err=True)
    if not agreed:
        raise click.ClickException("Nothing was discarded. With --yes nobody is asked.")


def _words(engine: Engine, chosen: _Selection) -> str:
    if chosen.task is not None:
        return f"all dead jobs of the task {chosen.task}"
    if chosen.everything:
        counts = engine.stats().queues.values()
        return f"all {count(sum(states.get(State.DEAD, 0) for states in counts), 'dead job')}"
    return count(len(_by_id(engine, chosen.ids)), "dead job")


def _discard(engine: Engine, chunk: Sequence[JobRecord], as_json: bool) -> int:
    """Nothing leaves without a line of what it was: after this nobody can look it up."""
    full = engine.get([record.id for record in chunk])
    codes = engine.discard([record.id for record in chunk])
    for record, code in zip(full, codes, strict=True):
        if record is not None and code is ChangeCode.DONE:
            line = f"discarded {record.id} {record.task} {record.reason} {call_text(record)}"
            tell(line.replace("\n", "\\n"), err=as_json)
    return _count(codes)


def _count(codes: Sequence[ChangeCode]) -> int:
    return sum(code is ChangeCode.DONE for code in codes)


def _report(done: int, verb: str, as_json: bool) -> None:
    if as_json:
        print_json({verb: done})
    else:
        tell(f"{count(done, 'dead job')} {verb}.")

"""`windlass dead`: the dead letters: look, retry, discard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from windlass.cli.connecting import connect, connection_options, json_option
from windlass.cli.output import age, print_json, print_table, say
from windlass.cli.records import call_of, describe, print_record
from windlass.core.states import State
from windlass.engine.contract import ChangeCode, Engine, Filter, JobRecord
from windlass.errors import JobNotFound
from windlass.job import JobInfo

_CHUNK = 200


def _selection(command: Any) -> Any:
    """The options by which dead jobs are chosen."""
    command = click.option("--all", "everything", is_flag=True, help="All dead jobs.")(command)
    command = click.option("--task", metavar="NAME", help="Only dead jobs of this task.")(command)
    return click.argument("ids", nargs=-1, metavar="[ID]...")(command)


@click.group()
def dead() -> None:
    """Look at dead jobs, retry them, or discard them."""


@dead.command("list")
@click.option("--task", metavar="NAME", help="Only dead jobs of this task.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="At most.")
@connection_options
@json_option
def list_(
    task: str | None, limit: int, app_path: str | None, url: str | None, as_json: bool
) -> None:
    """List dead jobs, newest first."""
    with connect(app_path, url) as app:
        records = [record for record, _ in zip(_find(app.engine, task), range(limit), strict=False)]
        full = [record for record in app.engine.get([record.id for record in records]) if record]
    if as_json:
        print_json([describe(record) for record in full])
        return
    print_table(["id", "task", ">attempts", "died", "reason", "error"], map(_row, full))
    if not full:
        say("No dead jobs.")


def _row(record: JobRecord) -> tuple[object, ...]:
    info = JobInfo.of(record)
    error = f"{info.error.type}: {info.error.message}" if info.error else ""
    first_line = error.splitlines()[0][:80] if error else ""
    return (info.id, info.task, info.attempts, age(info.finished_at), info.reason, first_line)


@dead.command()
@click.argument("job_id", metavar="ID")
@connection_options
@json_option
def show(job_id: str, app_path: str | None, url: str | None, as_json: bool) -> None:
    """Show one dead job with its arguments, error and history."""
    with connect(app_path, url) as app:
        record = app.engine.get([job_id])[0]
    if record is None:
        raise JobNotFound(job_id)
    if as_json:
        print_json(describe(record))
    else:
        print_record(record)


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
    windlass dead retry 01k9h3...
    windlass dead retry --task shop.tasks.charge
    windlass dead retry --all
    """
    with connect(app_path, url) as app:
        done = 0
        for chunk in _chunks(app.engine, ids, task, everything, "Retrying"):
            done += _count(app.engine.retry([record.id for record in chunk]))
    _report(done, "retried", as_json)


@dead.command()
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
    windlass dead discard 01k9h3...
    windlass dead discard --task shop.tasks.charge --yes
    """
    with connect(app_path, url) as app:
        _require_selection(ids, task, everything)
        if not yes:
            click.confirm(
                "This removes the chosen dead jobs for good. Go on?", abort=True, err=True
            )
        done = 0
        for chunk in _chunks(app.engine, ids, task, everything, "Discarding"):
            done += _discard(app.engine, chunk)
    _report(done, "discarded", as_json)


def _discard(engine: Engine, chunk: Sequence[JobRecord]) -> int:
    """Nothing leaves without a line of what it was: after this nobody can look it up."""
    full = engine.get([record.id for record in chunk])
    codes = engine.discard([record.id for record in chunk])
    for record, code in zip(full, codes, strict=True):
        if record is not None and code is ChangeCode.DONE:
            say(f"discarded {record.id} {record.task} {record.reason} {call_of(record)}")
    return _count(codes)


def _chunks(
    engine: Engine, ids: Sequence[str], task: str | None, everything: bool, doing: str
) -> Iterator[list[JobRecord]]:
    """The chosen jobs, a bounded number at a time, with progress on a terminal."""
    _require_selection(ids, task, everything)
    chosen = _by_id(engine, ids) if ids else _find(engine, task)
    with Progress(transient=True, console=Console(stderr=True)) as bar:
        going = bar.add_task(doing, total=None)
        chunk: list[JobRecord] = []
        for record in chosen:
            chunk.append(record)
            if len(chunk) == _CHUNK:
                yield chunk
                bar.advance(going, len(chunk))
                chunk = []
        if chunk:
            yield chunk


def _require_selection(ids: Sequence[str], task: str | None, everything: bool) -> None:
    if bool(ids) + (task is not None) + everything != 1:
        raise click.UsageError(
            "Choose jobs by ID, by --task NAME, or with --all: one of the three."
        )


def _by_id(engine: Engine, ids: Sequence[str]) -> Iterator[JobRecord]:
    for job_id, record in zip(ids, engine.get(ids), strict=True):
        if record is None:
            raise JobNotFound(job_id)
        if record.state is not State.DEAD:
            raise click.UsageError(f"Job {job_id} is {record.state}, not dead.")
        yield record


def _find(engine: Engine, task: str | None) -> Iterator[JobRecord]:
    cursor: str | None = None
    while True:
        page = engine.find(Filter(state=State.DEAD, task=task), cursor, _CHUNK)
        yield from page.records
        if page.cursor is None:
            return
        cursor = page.cursor


def _count(codes: Sequence[ChangeCode]) -> int:
    return sum(code is ChangeCode.DONE for code in codes)


def _report(done: int, verb: str, as_json: bool) -> None:
    if as_json:
        print_json({verb: done})
    else:
        click.echo(f"{done} dead jobs {verb}.")

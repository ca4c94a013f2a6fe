"""`windlass job`: look at single jobs and act on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from windlass.cli.connecting import connect, connection_options, json_option
from windlass.cli.output import print_json, print_table, say
from windlass.cli.records import describe, print_record
from windlass.engine.contract import CancelCode, ChangeCode, Engine
from windlass.errors import JobNotFound


@click.group()
def job() -> None:
    """Show, cancel or retry single jobs by id."""


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@connection_options
@json_option
def show(ids: Sequence[str], app_path: str | None, url: str | None, as_json: bool) -> None:
    """Show everything that is known of jobs.

    \b
    windlass job show 01k9h3...
    """
    with connect(app_path, url) as app:
        records = app.engine.get(ids)
    missing = [job_id for job_id, record in zip(ids, records, strict=True) if record is None]
    found = [record for record in records if record is not None]
    if as_json:
        print_json([describe(record) for record in found])
    else:
        for record in found:
            print_record(record)
    if missing:
        raise JobNotFound(missing[0])


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@connection_options
@json_option
@click.pass_context
def cancel(
    ctx: click.Context, ids: Sequence[str], app_path: str | None, url: str | None, as_json: bool
) -> None:
    """Cancel jobs that have not ended. A running one is asked to stop."""
    done = {CancelCode.CANCELLED, CancelCode.REQUESTED}
    ctx.exit(_act(ids, app_path, url, as_json, lambda engine: engine.cancel(ids), done))


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@connection_options
@json_option
@click.pass_context
def retry(
    ctx: click.Context, ids: Sequence[str], app_path: str | None, url: str | None, as_json: bool
) -> None:
    """Make dead or cancelled jobs ready again, with fresh attempts."""
    ctx.exit(_act(ids, app_path, url, as_json, lambda engine: engine.retry(ids), {ChangeCode.DONE}))


def _act(
    ids: Sequence[str],
    app_path: str | None,
    url: str | None,
    as_json: bool,
    act: Callable[[Engine], Sequence[CancelCode | ChangeCode]],
    successes: set[CancelCode | ChangeCode] | set[CancelCode] | set[ChangeCode],
) -> int:
    with connect(app_path, url) as app:
        codes = act(app.engine)
    verdicts = dict(zip(ids, codes, strict=True))
    if as_json:
        print_json(verdicts)
    else:
        print_table(["id", "verdict"], verdicts.items())
    failed = sum(code not in successes for code in codes)
    if failed:
        say(f"{failed} of {len(codes)} were left as they are.")
    return 1 if failed else 0

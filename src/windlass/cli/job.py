"""`windlass job`: look at single jobs and act on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from windlass.cli.connecting import connect
from windlass.cli.group import SuggestingGroup
from windlass.cli.output import print_json, print_table, say
from windlass.cli.parameters import connection_options, ids_argument, json_option
from windlass.cli.records import describe, print_record
from windlass.cli.wording import count
from windlass.engine.contract import CancelCode, ChangeCode, Engine, JobRecord
from windlass.errors import JobNotFound


@click.group(cls=SuggestingGroup)
def job() -> None:
    """Show, cancel or retry single jobs by id."""


@job.command()
@ids_argument(required=True)
@connection_options
@json_option
@click.pass_context
def show(
    ctx: click.Context, ids: Sequence[str], app_path: str | None, url: str | None, as_json: bool
) -> None:
    """Show everything that is known of jobs.

    \b
    windlass job show 01m7gk6tx900smjc57av0rnpgb
    """
    with connect(app_path, url) as app:
        records = app.engine.get(ids)
        location = app.engine.location
    found = [record for record in records if record is not None]
    if as_json:
        print_json([describe(record) for record in found])
    else:
        _print_all(found)
    for job_id, record in zip(ids, records, strict=True):
        if record is None:
            say(f"Error: {JobNotFound(job_id, location)}")
    ctx.exit(0 if len(found) == len(ids) else 1)


def _print_all(records: Sequence[JobRecord]) -> None:
    for number, record in enumerate(records):
        if number:
            click.echo()
        print_record(record)


@job.command(short_help="Cancel jobs that have not ended.")
@ids_argument(required=True)
@connection_options
@json_option
@click.pass_context
def cancel(
    ctx: click.Context, ids: Sequence[str], app_path: str | None, url: str | None, as_json: bool
) -> None:
    """Cancel jobs that have not ended.

    A job that waits is cancelled at once. One that runs is not interrupted: the wish is noted, and
    the job ends as cancelled unless it succeeds.
    """
    codes = _act(ids, app_path, url, as_json, lambda engine: engine.cancel(ids))
    running = codes.count(CancelCode.REQUESTED)
    if running:
        say(f"{count(running, 'job')} ran, and will end as cancelled unless the run succeeds.")
    ctx.exit(_exit_code(codes, {CancelCode.CANCELLED, CancelCode.REQUESTED}))


@job.command(short_help="Make dead or cancelled jobs ready again.")
@ids_argument(required=True)
@connection_options
@json_option
@click.pass_context
def retry(
    ctx: click.Context, ids: Sequence[str], app_path: str | None, url: str | None, as_json: bool
) -> None:
    """Make dead or cancelled jobs ready again, with fresh attempts."""
    codes = _act(ids, app_path, url, as_json, lambda engine: engine.retry(ids))
    ctx.exit(_exit_code(codes, {ChangeCode.DONE}))


_Codes = Sequence[CancelCode] | Sequence[ChangeCode]


def _act(
    ids: Sequence[str],
    app_path: str | None,
    url: str | None,
    as_json: bool,
    act: Callable[[Engine], _Codes],
) -> _Codes:
    """Do it, and print a verdict for each id."""
    with connect(app_path, url) as app:
        codes = act(app.engine)
        location = app.engine.location
    verdicts = dict(zip(ids, codes, strict=True))
    if as_json:
        print_json(verdicts)
    else:
        print_table(["id", "verdict"], verdicts.items())
    for job_id, code in verdicts.items():
        if code in (CancelCode.UNKNOWN, ChangeCode.UNKNOWN):
            say(f"Error: {JobNotFound(job_id, location)}")
    return codes


def _exit_code(codes: _Codes, successes: set[CancelCode] | set[ChangeCode]) -> int:
    failed = sum(code not in successes for code in codes)
    if failed:
        say(f"Left unchanged: {failed} of {len(codes)}.")
    return 1 if failed else 0

"""`windlass job edit`: change the arguments of a stored job."""

from __future__ import annotations

import click

from windlass.app import Windlass
from windlass.cli.commands.dead_edit import fitting, new_arguments
from windlass.cli.support.connection import connect
from windlass.cli.support.output import report
from windlass.cli.support.parameters import connection_options, job_id, json_option
from windlass.engine.contract import JobRecord
from windlass.errors import JobNotFound
from windlass.twins import run


@click.command(short_help="Replace the arguments of a dead or cancelled job.")
@click.argument("job_id", type=job_id, metavar="ID")
@click.option("--args", "args_text", metavar="JSON", help="The new arguments, as a JSON array.")
@click.option("--kwargs", "kwargs_text", metavar="JSON", help="The new keyword arguments.")
@click.option("--unchecked", is_flag=True, help="Do not check these arguments against the task.")
@connection_options
@json_option
def edit(
    job_id: str,
    args_text: str | None,
    kwargs_text: str | None,
    unchecked: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Replace the arguments of a dead or cancelled job, which becomes ready again.

    Arguments that are not given stay, and so do headers and the unique key. The arguments must fit
    the task; --unchecked is for a task whose code is not here.

    \b
    windlass job edit 01m7gk6tx900smjc57av0rnpgb --args '["cat.jpg"]'
    windlass job edit 01m7gk6tx900smjc57av0rnpgb --kwargs '{"width": 100}'
    """
    if args_text is None and kwargs_text is None:
        raise click.UsageError("Expected new arguments: give --args, --kwargs or both.")
    with connect(app_path, url) as app:
        record = _read(app, job_id)
        with fitting():
            args, kwargs = new_arguments(app, record, args_text, kwargs_text, unchecked=unchecked)
            is_done = run(app, app.jobs.editing(job_id, args, kwargs, unchecked=unchecked))
        if not is_done:
            raise click.ClickException(
                f"Job {job_id} was not changed: it is {_read(app, job_id).state}. Only dead and "
                "cancelled jobs can be edited."
            )
        info = app.job(job_id).info()
    report(info, f"Job {job_id} has new arguments; it is {info.state}.", as_json)


def _read(app: Windlass, job_id: str) -> JobRecord:
    (record,) = app.engine.get([job_id])
    if record is None:
        raise JobNotFound(job_id, app.engine.location)
    return app.packing.reveal(record)

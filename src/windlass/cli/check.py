"""`windlass check`: prove that what is stored is sound."""

from __future__ import annotations

import click

from windlass.cli.connecting import connect, connection_options, json_option
from windlass.cli.output import print_json, say


@click.command()
@connection_options
@json_option
@click.pass_context
def check(ctx: click.Context, app_path: str | None, url: str | None, as_json: bool) -> None:
    """Compare records, indexes and counters of the engine. Exits with 1 if they disagree.

    \b
    windlass check --url sqlite:///jobs.db
    """
    with connect(app_path, url) as app:
        problems = app.engine.check()
        if as_json:
            print_json({"engine": app.engine.location, "problems": problems})
        else:
            for problem in problems:
                click.echo(problem)
            say(_summary(app.engine.location, len(problems)))
    ctx.exit(1 if problems else 0)


def _summary(location: str, problems: int) -> str:
    if not problems:
        return f"{location}: records, indexes and counters agree."
    return (
        f"{location}: {problems} problems. Stop the workers, keep a copy of what is stored, "
        "and report this as a bug with the lines above."
    )

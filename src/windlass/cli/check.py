"""`windlass check`: prove that what is stored is sound."""

from __future__ import annotations

import click

from windlass.cli.connecting import connect
from windlass.cli.output import print_json, say, tell
from windlass.cli.parameters import connection_options, json_option
from windlass.cli.wording import count


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
        location = app.engine.location
    if as_json:
        print_json({"engine": location, "problems": problems})
    else:
        for problem in problems:
            tell(problem)
        say(_summary(location, len(problems)))
    ctx.exit(1 if problems else 0)


def _summary(location: str, problems: int) -> str:
    if not problems:
        return f"{location}: records, indexes and counters agree."
    return (
        f"{location}: {count(problems, 'problem')}. Stop the workers, keep a copy of what is "
        "stored, and report this as a bug with the lines above."
    )

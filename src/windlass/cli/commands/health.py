"""`windlass health`: do the workers of this machine live, and are they ready?

The console script answers the usual calls without this file, which would take longer to load.
"""

from __future__ import annotations

import click

from windlass.cli.support.parameters import json_option
from windlass_probe import check


@click.command(short_help="Ask the workers of this machine whether they are ready.")
@click.option(
    "--app",
    "app_path",
    metavar="MODULE:ATTR",
    help="Only workers of this app. [default: WINDLASS_APP, then every app]",
)
@click.option("--live", is_flag=True, help="Ask only whether they live.")
@json_option
@click.pass_context
def health(ctx: click.Context, app_path: str | None, live: bool, as_json: bool) -> None:
    """Ask the workers of this user on this machine whether they are ready.

    Ready: the engine has answered within the last 15 seconds. Live: the supervisor answers, also
    while the engine is away. Exits with 1 if one of them is not, or if there is none. Neither the
    app nor the engine is needed.

    \b
    windlass health
    windlass health --live --app shop.tasks:app
    """
    ctx.exit(check(app=app_path, is_live=live, as_json=as_json))

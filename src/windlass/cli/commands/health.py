"""`windlass health`: liveness and readiness of the workers of this machine.

The console script answers usual calls without this module, because it takes longer to load.
"""

from __future__ import annotations

import click

from windlass.cli.support.parameters import json_option
from windlass_probe import check


@click.command(short_help="Check whether the workers of this machine are ready.")
@click.option(
    "--app",
    "app_path",
    metavar="MODULE:ATTR",
    help="Only workers of this app. [default: WINDLASS_APP, then every app]",
)
@click.option("--live", is_flag=True, help="Check liveness only.")
@json_option
def health(app_path: str | None, live: bool, as_json: bool) -> int:
    """Check whether the workers of this user on this machine are ready.

    Ready: the engine has answered within the last 15 seconds. Live: the supervisor answers, even
    while the engine is unavailable. Exits with 1 if a worker is not, or if there is none. Needs
    neither the app nor the engine.

    \b
    windlass health
    windlass health --live --app shop.tasks:app
    """
    return check(app=app_path, is_live=live, as_json=as_json)

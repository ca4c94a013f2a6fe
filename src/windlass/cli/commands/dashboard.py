"""`windlass dashboard`: serve the dashboard to this machine, and open it in a browser."""

from __future__ import annotations

import webbrowser
from threading import Thread

import click

from windlass.app import Windlass
from windlass.cli.commands.serve import bind, require_extra
from windlass.cli.support.audit_trail import user_and_host
from windlass.cli.support.connection import connect_to_enqueue, named_once, require_app_path
from windlass.cli.support.output import say, tell
from windlass.cli.support.parameters import WholeNumber, log_level_option, url_option
from windlass.settings import Source


@click.command(short_help="Open the dashboard of an app in a browser.")
@click.argument("app_argument", metavar="[MODULE:ATTR]", required=False)
@click.option("--app", "app_path", metavar="MODULE:ATTR", help="The same as the argument.")
@url_option
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="N",
    help="Listen on this port. [default: a free one]",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@log_level_option
def dashboard(
    app_argument: str | None,
    app_path: str | None,
    url: str | None,
    port: int,
    no_browser: bool,
    log_level: str | None,
) -> None:
    """Serve the dashboard of an app on a loopback address, and open it in a browser.

    The printed address has a code that works once, within a minute. It logs you in as an admin of
    this server until you stop it with SIGTERM or Ctrl-C. `windlass serve` has the same dashboard
    for other machines and for users with access tokens.

    \b
    windlass dashboard shop.tasks:app
    windlass dashboard shop.tasks:app --port 8200 --no-browser
    """
    require_extra("dashboard")
    from windlass.dashboard.local_login import LocalLogin
    from windlass.http.access import AccessOptions
    from windlass.http.api import create_api
    from windlass.http.gateway import ApiOptions
    from windlass.http.server import Address, run_server, url_of
    from windlass.worker.logs.setup import configure_all, configure_early

    configure_early(log_level)
    named = named_once(app_argument, app_path)
    with connect_to_enqueue(named, url) as app:
        configure_all(log_level or _quiet_level(app), app.settings.log_format)
        with bind(Address("127.0.0.1", port)) as listening:
            login = LocalLogin(f"dashboard:{user_and_host()}")
            options = ApiOptions(
                access=AccessOptions(require_token=True),
                app_name=require_app_path(named).target,
                login=login,
            )
            address = f"{url_of(listening)}/login?code={login.code}"
            tell(address)
            say(
                f"The dashboard of {app.engine.location} is at this address, which works once, "
                "within a minute. Ctrl-C stops it."
            )
            if not no_browser:
                # In a thread: a browser in the terminal runs until its user leaves it.
                Thread(target=_open, args=[address], daemon=True).start()
            try:
                run_server(create_api(app, options), listening)
            finally:
                login.end()


def _quiet_level(app: Windlass) -> str:
    """The log level: without a setting, no line per request."""
    is_default = app.settings.sources["log_level"] is Source.DEFAULT
    return "warning" if is_default else app.settings.log_level


def _open(address: str) -> None:
    if not webbrowser.open(address):
        say("No browser was found here. Open the address in one.")

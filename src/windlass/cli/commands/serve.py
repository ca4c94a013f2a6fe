"""`windlass serve`: serve the HTTP API until a signal stops the server."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
import msgspec

from windlass.access_tokens import Role
from windlass.cli.support.connection import connect_to_enqueue, named_once, require_app_path
from windlass.cli.support.parameters import WholeNumber, log_level_option, url_option
from windlass.core import install_command

if TYPE_CHECKING:
    from socket import socket

    from windlass.app import Windlass
    from windlass.http.access import AccessOptions
    from windlass.http.server import Address

#: The port of the API unless another one is given.
DEFAULT_PORT = 8155


@click.command(short_help="Serve the HTTP API of an app.")
@click.argument("app_argument", metavar="[MODULE:ATTR]", required=False)
@click.option("--app", "app_path", metavar="MODULE:ATTR", help="The same as the argument.")
@url_option
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on this address. Other than this machine's own, it needs access tokens, "
    "--require-token or --proxy-header, and --allowed-host.",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="N",
    help="Listen on this port; 0 takes a free one.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Serve requests for this host name, such as api.example.com or *.example.com; can be "
    "repeated. [default: localhost]",
)
@click.option(
    "--require-token", is_flag=True, help="Refuse requests without a token from the start."
)
@click.option(
    "--proxy-header",
    metavar="NAME",
    help="Trust this header of a proxy as the name of an authenticated user.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The address of that proxy; can be repeated. [default: 127.0.0.1 and ::1]",
)
@click.option(
    "--proxy-role",
    type=click.Choice([str(role) for role in Role]),
    default=str(Role.OPERATOR),
    show_default=True,
    help="The role of users that the proxy names.",
)
@click.option(
    "--rate-limit",
    type=WholeNumber(1),
    default=1_000,
    show_default=True,
    metavar="N",
    help="Requests a second of one caller.",
)
@click.option("--no-dashboard", is_flag=True, help="Serve the API without the dashboard.")
@log_level_option
def serve(
    app_argument: str | None,
    app_path: str | None,
    url: str | None,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    require_token: bool,
    proxy_header: str | None,
    trusted_proxies: Sequence[str],
    proxy_role: str,
    rate_limit: int,
    no_dashboard: bool,
    log_level: str | None,
) -> None:
    """Serve the HTTP API of an app: jobs, dead letters, queues, schedules and workers for programs
    in any language. /openapi.json describes it. The dashboard is at /.

    Without access tokens only programs on this machine may use it; `windlass token create` makes
    one. SIGTERM or Ctrl-C ends long polls at once and lets other requests end.

    \b
    windlass serve shop.tasks:app
    windlass serve shop.tasks:app --host 0.0.0.0 --allowed-host jobs.example.com
    """
    require_extra("serve")
    from windlass.http.access import AccessOptions
    from windlass.http.api import create_api
    from windlass.http.gateway import ApiOptions
    from windlass.http.server import Address, run_server, url_of
    from windlass.worker.logs.setup import configure_all, configure_early

    try:
        access = AccessOptions(
            require_token=require_token,
            allowed_hosts=tuple(allowed_hosts),
            proxy_header=proxy_header,
            trusted_proxies=tuple(trusted_proxies) or ("127.0.0.1", "::1"),
            proxy_role=Role(proxy_role),
        )
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    if trusted_proxies and proxy_header is None:
        raise click.UsageError("--trusted-proxy needs --proxy-header: the header to trust.")
    configure_early(log_level)
    named = named_once(app_argument, app_path)
    with connect_to_enqueue(named, url) as app:
        configure_all(log_level or app.settings.log_level, app.settings.log_format)
        address = Address(host, port)
        access = _checked_access(app, address, access)
        options = ApiOptions(
            access=access,
            rate=float(rate_limit),
            burst=2.0 * rate_limit,
            app_name=require_app_path(named).target,
            dashboard=not no_dashboard,
        )
        with bind(address) as listening:
            _announce(url_of(listening), app, access)
            run_server(create_api(app, options), listening)


def bind(address: Address) -> socket:
    """Listen. Clients that connect from now on are answered as soon as the server runs."""
    try:
        listening = address.bind()
    except OSError as error:
        raise click.ClickException(
            f"Cannot listen on {address.host} port {address.port}: {error.strerror}. Give another "
            "--port, or stop the program that uses it."
        ) from error
    listening.listen(2048)
    return listening


def missing_packages() -> list[str]:
    """The packages of the extra `server` that are not installed."""
    return [name for name in ("jsonschema", "starlette", "uvicorn") if find_spec(name) is None]


def require_extra(command: str) -> None:
    """Refuse a command whose libraries are not installed."""
    missing = missing_packages()
    if missing:
        raise click.UsageError(
            f"`windlass {command}` needs the packages {', '.join(missing)}, which are not "
            f"installed. Install them with: {install_command('server')}."
        )


def _checked_access(app: Windlass, address: Address, access: AccessOptions) -> AccessOptions:
    """Refuse to serve other machines without authentication, or under any name."""
    if address.is_local:
        return access
    is_closed = access.require_token or access.proxy_header is not None
    if not is_closed and not app.access_tokens.exist():
        raise click.UsageError(
            f"Expected access tokens to listen on {address.host}, found none: every program that "
            "reaches this address could run jobs. Make one with `windlass token create NAME --role "
            "admin`, or refuse all requests until there is one with --require-token, or let a "
            "proxy authenticate users with --proxy-header, or listen on 127.0.0.1."
        )
    if not access.allowed_hosts:
        raise click.UsageError(
            f"Expected --allowed-host NAME to listen on {address.host}: the host name in the urls "
            "of clients, such as jobs.example.com, or * for any."
        )
    return msgspec.structs.replace(access, require_token=access.proxy_header is None)


def _announce(url: str, app: Windlass, access: AccessOptions) -> None:
    from windlass.http.access_log import log

    if access.proxy_header is not None:
        guard = f"users named by {access.proxy_header}, and access tokens"
    elif access.require_token or app.access_tokens.exist():
        guard = "access tokens required"
    else:
        guard = "open to this machine; `windlass token create NAME --role ROLE` closes it"
    log.info("serving: %s, app at %s", url, app.engine.location)
    log.info("access: %s", guard)

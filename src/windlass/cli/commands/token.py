"""`windlass token`: create, list and revoke the access tokens of the HTTP API."""

from __future__ import annotations

from datetime import timedelta

import click
import msgspec

from windlass.access_tokens import AccessToken, Role
from windlass.app import Windlass
from windlass.cli.support.connection import connect, connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import print_json, print_list, report, say, tell
from windlass.cli.support.parameters import connection_options, duration, json_option
from windlass.cli.support.wording import age


@click.group(cls=SuggestingGroup, short_help="Create, list or revoke access tokens.")
def token() -> None:
    """Create, list or revoke the access tokens of the HTTP API.

    \b
    windlass token create deploy --role operator --app shop.tasks:app
    windlass token list
    """


@token.command(short_help="Create an access token, and print it once.")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    required=True,
    help="What the bearer of the token may do.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only this queue; mail* is a pattern. May be repeated.",
)
@click.option("--expires", type=duration, metavar="TIME", help="It stops working after 30d.")
@connection_options
@json_option
def create(
    name: str,
    role: str,
    queues: tuple[str, ...],
    expires: timedelta | None,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Create an access token, and print its text on standard output. The text is not stored, and
    cannot be shown again. Clients send it as `Authorization: Bearer TEXT`.

    A producer enqueues jobs and reads their results; a worker claims and finishes jobs; a viewer
    reads everything except access tokens, and changes nothing; an operator does what a producer and
    a viewer do, and changes jobs, queues and schedules; an admin does everything. The engine is set
    up if it was never used.

    \b
    windlass token create shop --role producer --queue mail --queue "report*"
    windlass token create ann --role operator --expires 30d
    windlass token create prometheus --role viewer
    """
    with connect(app_path, url, even_unused=True) as app:
        try:
            made, text = app.access_tokens.create(
                name=name, role=role, queues=queues, expires=expires
            )
        except ValueError as error:
            raise click.UsageError(f"{error}.") from error
        location = app.engine.location
    if as_json:
        print_json({**_described(made), "token": text})
    else:
        tell(text)
        say(
            f"The access token {made.name} ({made.role}) of {location} is created. Keep its text "
            "in a safe place: it is shown only this once."
        )


@token.command("list", short_help="List access tokens.")
@connected
@json_option
def list_(app: Windlass, as_json: bool) -> None:
    """List access tokens, the oldest first. Only the last characters of their texts are known.

    \b
    windlass token list --app shop.tasks:app
    """
    print_list(
        app.access_tokens.list(),
        lambda tokens: [_described(one) for one in tokens],
        ["name", "role", "queues", "created", "expires", "id", "ends with"],
        _row,
        none="No access tokens.",
        as_json=as_json,
    )


def _row(one: AccessToken) -> tuple[object, ...]:
    queues = ", ".join(one.queues) or "all"
    expires = age(one.expires_at) or "never"
    return (one.name, one.role, queues, age(one.created_at), expires, one.id, one.ends_with)


def _described(one: AccessToken) -> dict[str, object]:
    fields: dict[str, object] = msgspec.structs.asdict(one)
    return fields


@token.command(short_help="Revoke an access token.")
@click.argument("name", metavar="NAME|ID")
@connected
@json_option
def revoke(app: Windlass, name: str, as_json: bool) -> None:
    """Revoke an access token, given by its name or its id. Every server refuses it within two
    seconds.

    \b
    windlass token revoke deploy
    """
    id = app.access_tokens.revoke(name)
    report({"revoked": id}, f"The access token {name} is revoked.", as_json)

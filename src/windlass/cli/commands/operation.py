"""`windlass operation`: list, show, pause, resume and stop bulk operations."""

from __future__ import annotations

import click
import msgspec

from windlass.app import Windlass
from windlass.cli.support.audit_trail import actor
from windlass.cli.support.connection import connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.operation_progress import conclude, follow
from windlass.cli.support.output import print_fields, print_json, print_list, report
from windlass.cli.support.parameters import json_option, limit_option
from windlass.cli.support.wording import age, count, rate
from windlass.operations.operations import Operation

_id = click.argument("operation_id", metavar="ID")


@click.group(cls=SuggestingGroup, short_help="List, pause, resume or stop bulk operations.")
def operation() -> None:
    """List, show, pause, resume or stop bulk operations: retries, discards and cancellations by
    filter, and purges. The HTTP API, the dashboard and `dead retry --rate` start them.

    \b
    windlass operation list --app shop.tasks:app
    windlass operation resume 7zxs6g1h2k3m4n5p6q7r8s9t0v
    """


@operation.command("list")
@limit_option
@connected
@json_option
def list_(app: Windlass, limit: int, as_json: bool) -> None:
    """List bulk operations, the newest first.

    \b
    windlass operation list --app shop.tasks:app
    """
    print_list(
        app.operations.list(limit=limit + 1),
        list,
        ["id", "action", "state", ">done", ">of", "rate", "by", "started", "jobs"],
        _row,
        none="No bulk operations.",
        as_json=as_json,
        limit=limit,
    )


def _row(one: Operation) -> tuple[object, ...]:
    return (
        one.id,
        one.action,
        one.state,
        one.done,
        one.total,
        _rate(one),
        one.actor,
        age(one.created_at),
        _filter(one),
    )


@operation.command()
@_id
@connected
@json_option
def show(app: Windlass, operation_id: str, as_json: bool) -> None:
    """Show one bulk operation.

    Says which jobs it changes, how far it is, and why it pauses or failed.

    \b
    windlass operation show 7zxs6g1h2k3m4n5p6q7r8s9t0v
    """
    found = app.operations.get(operation_id)
    if as_json:
        print_json(found)
        return
    total = "" if found.total is None else f" of {found.total:,}"
    rule = f"{count(found.stop_after, 'failure')} among the last 100 jobs"
    print_fields(
        [
            ("id", found.id),
            ("action", found.action),
            ("jobs", _filter(found)),
            ("state", found.state),
            ("reason", found.reason),
            ("error", found.error),
            ("done", f"{found.done:,}{total}"),
            ("refused", found.refused or None),
            ("unreadable", found.failed or None),
            ("failed again", found.failed_again or None),
            ("rate", _rate(found) or "no limit"),
            ("stops after", rule if found.stop_after else None),
            ("by", found.actor),
            ("started", found.created_at),
            ("changed", found.updated_at),
        ]
    )


@operation.command()
@_id
@connected
@json_option
def pause(app: Windlass, operation_id: str, as_json: bool) -> None:
    """Let a running operation wait, after its current step.

    \b
    windlass operation pause 7zxs6g1h2k3m4n5p6q7r8s9t0v
    """
    _report(app.operations.pause(operation_id, actor=actor()), as_json)


@operation.command()
@_id
@connected
@json_option
def resume(app: Windlass, operation_id: str, as_json: bool) -> None:
    """Continue a paused operation where it was.

    Shows its progress. It runs in this process, unless a server is quicker. Ctrl-C pauses it
    again.

    \b
    windlass operation resume 7zxs6g1h2k3m4n5p6q7r8s9t0v
    """
    conclude(follow(app, app.operations.resume(operation_id)), as_json)


@operation.command()
@_id
@connected
@json_option
def stop(app: Windlass, operation_id: str, as_json: bool) -> None:
    """Stop an operation for good. Jobs that it has changed stay changed.

    \b
    windlass operation stop 7zxs6g1h2k3m4n5p6q7r8s9t0v
    """
    _report(app.operations.stop(operation_id), as_json)


def _report(found: Operation, as_json: bool) -> None:
    report(found, f"The operation {found.id} is {found.state}: {found.done:,} done.", as_json)


def _rate(one: Operation) -> str:
    return "" if one.rate is None else f"{rate(one.rate)}/s"


def _filter(one: Operation) -> str:
    return msgspec.json.encode(one.filter).decode()

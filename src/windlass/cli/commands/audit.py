"""`windlass audit`: list changes and their actors."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import msgspec

from windlass.app import Windlass
from windlass.audit_log import AuditRecord
from windlass.cli.support.connection import connected
from windlass.cli.support.output import print_list
from windlass.cli.support.parameters import json_option, limit_option, moment
from windlass.cli.support.wording import clock
from windlass.core.durations import instant
from windlass.engine.clock import read_clock


@click.command(short_help="Show who changed what.")
@click.option(
    "--since", type=moment, metavar="AGE|TIME", help="Only changes since then: 1h is an age."
)
@click.option("--actor", metavar="NAME", help="Only changes of this actor; cli:ann* is a pattern.")
@limit_option
@connected
@json_option
def audit(
    app: Windlass,
    since: datetime | timedelta | None,
    actor: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show who changed what, the latest change first: commands, and requests to the HTTP API.

    The engine keeps about 100,000 changes. Values under the names of the setting redact are not
    shown.

    \b
    windlass audit --app shop.tasks:app
    windlass audit --since 1d --actor "cli:*"
    """
    if isinstance(since, timedelta):
        since = instant(read_clock(app.engine)) - since
    print_list(
        app.audit.find(actor=actor or "", since=since, limit=limit + 1),
        list,
        ["at", "actor", "action", "subject", "outcome", "details"],
        _row,
        none="No changes.",
        as_json=as_json,
        limit=limit,
    )


def _row(record: AuditRecord) -> tuple[object, ...]:
    details = msgspec.json.encode(record.details).decode() if record.details else ""
    return (
        clock(record.at),
        record.actor,
        record.action,
        record.subject,
        record.outcome,
        details,
    )

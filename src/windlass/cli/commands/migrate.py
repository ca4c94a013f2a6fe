"""`windlass migrate`: bring stored jobs to the format of this version, and make the tables of the
outbox."""

from __future__ import annotations

import os
import time
from typing import Final

import click

from windlass.app import Windlass
from windlass.cli.support.audit_trail import note_unused
from windlass.cli.support.connection import (
    connect,
    find_optional_app_path,
    import_app,
    require_used,
)
from windlass.cli.support.outbox import migrate_outbox
from windlass.cli.support.output import print_json, say
from windlass.cli.support.parameters import connection_options, json_option
from windlass.cli.support.wording import count, program
from windlass.engine.contract import Engine, Migrated
from windlass.outbox.tables import full_sql
from windlass.settings import read_settings

#: How often the number of moved jobs is printed, in seconds.
LINE_S: Final = 5.0


@click.command(short_help="Bring jobs to the format of this version; make the outbox.")
@connection_options
@click.option(
    "--sql",
    "prints_sql",
    is_flag=True,
    help="Print the SQL of the outbox tables, for another migration tool, and change nothing.",
)
@json_option
def migrate(app_path: str | None, url: str | None, prints_sql: bool, as_json: bool) -> int:
    """Bring the stored jobs to the format of this version, and make the tables of the outbox.

    Any command that opens a SQLite file migrates it. On Redis this command moves jobs in small
    batches. Exits with 1 while jobs of the old version are left: some run on its workers, or its
    producers added some. Stop these and run it again. Dead jobs without a fingerprint get one.

    If the app has the setting outbox, its tables are made in that database, or brought to the
    format of this version.

    \b
    windlass migrate --url redis://localhost:6379/0
    windlass migrate --app shop.tasks:app --sql > migrations/0007_windlass_outbox.sql
    """
    if prints_sql:
        click.echo(_outbox_sql(app_path, url), nl=False)
        return 0
    with connect(app_path, url, even_unused=True) as app:
        outbox = app.settings.outbox
        made = migrate_outbox(outbox) if outbox else None
        if made is not None and not as_json:
            say(f"{outbox.location}: the tables of the outbox have format {made}.")
        if not (outbox and not app.engine.is_used()):
            return _migrate_engine(app, made, as_json=as_json)
        note_unused()
        if as_json:
            print_json({"engine": app.engine.location, "outbox": made})
        else:
            say(f"{app.engine.location}: nothing to migrate; it was never used.")
    return 0


def _migrate_engine(app: Windlass, outbox_format: int | None, *, as_json: bool) -> int:
    require_used(app)
    done = migrate_all(app.engine)
    stored = app.engine.migrate()
    app.dead.regroup()
    if as_json:
        location = app.engine.location
        counted = {"format": stored, "moved": done.moved, "left": done.left}
        print_json({"engine": location, **counted, "outbox": outbox_format})
    else:
        _report(app.engine.location, done, stored)
    return 1 if done.left else 0


def _outbox_sql(app_path: str | None, url: str | None) -> str:
    """The SQL of the tables. Needs neither the engine nor the database."""
    path = find_optional_app_path(app_path, url)
    settings = read_settings({}, os.environ) if path is None else import_app(path).settings
    if not settings.outbox:
        raise click.UsageError(
            "Expected an app with an outbox, because --sql prints its tables; found none. Name the "
            "database in WINDLASS_OUTBOX or Windlass(outbox=...)."
        )
    return full_sql(settings.outbox)


def migrate_all(engine: Engine) -> Migrated:
    """Run all batches, and print the number of moved jobs now and then."""
    told_at = time.monotonic()
    bite = engine.migrate_jobs()
    moved, left = bite.moved, bite.left
    while bite.cursor is not None:
        bite = engine.migrate_jobs(bite.cursor)
        moved += bite.moved
        left += bite.left
        if time.monotonic() - told_at >= LINE_S:
            told_at = time.monotonic()
            say(f"moved {count(moved, 'job')} so far")
    return Migrated(moved=moved, left=left)


def _report(location: str, done: Migrated, stored: int) -> None:
    if done.moved:
        say(f"{location}: moved {count(done.moved, 'job')} to format {stored}.")
    elif not done.left:
        say(f"{location}: nothing to migrate; the jobs have format {stored}.")
    if done.left:
        say(
            f"{location}: {count(done.left, 'job')} of the old version left, which its workers run "
            f"or its producers added. Stop these and run `{program()} migrate` again."
        )

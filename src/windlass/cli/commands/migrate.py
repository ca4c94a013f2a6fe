"""`windlass migrate`: bring stored jobs to the format of this version, and make the tables of the
outbox."""

from __future__ import annotations

import time
from typing import Final

import click

from windlass.app import Windlass
from windlass.cli.support.audit_trail import note_unused
from windlass.cli.support.connection import connect, find_settings, require_used
from windlass.cli.support.outbox import migrate_outbox
from windlass.cli.support.output import print_json, say
from windlass.cli.support.parameters import WholeNumber, connection_options, json_option
from windlass.cli.support.wording import count, program
from windlass.engine.contract import Engine, Migrated
from windlass.engine.url import is_postgres, migration_sql
from windlass.outbox.tables import full_sql
from windlass.settings import Settings

#: How often the number of moved jobs is printed, in seconds.
LINE_S: Final = 5.0


@click.command(short_help="Bring jobs to the format of this version; make the outbox.")
@click.option(
    "--sql",
    "as_sql",
    is_flag=True,
    help="Print the SQL for PostgreSQL and the outbox, and change nothing.",
)
@click.option(
    "--after",
    type=WholeNumber(0),
    metavar="FORMAT",
    help="With --sql: print what comes after this format; 0: everything. [default: the stored one]",
)
@connection_options
@json_option
def migrate(
    as_sql: bool, after: int | None, app_path: str | None, url: str | None, as_json: bool
) -> int:
    """Bring the stored jobs to the format of this version, and make the tables of the outbox.

    Any command that opens a SQLite file migrates it. On Redis this command moves jobs in small
    batches. Exits with 1 while jobs of the old version are left: some run on its workers, or its
    producers added some. Stop these and run it again. On PostgreSQL it makes and changes tables,
    and needs a role that may. Dead jobs without a fingerprint get one.

    If the app has the setting outbox, its tables are made in that database, or brought to the
    format of this version.

    \b
    windlass migrate --url redis://localhost:6379/0
    windlass migrate --url postgresql://owner@localhost/shop --sql > migration.sql
    windlass migrate --app shop.tasks:app --sql > migrations/0007_windlass_outbox.sql
    """
    if after is not None and not as_sql:
        raise click.UsageError("--after belongs to --sql.")
    if as_sql and as_json:
        raise click.UsageError("--sql prints SQL: leave out --json.")
    if as_sql:
        return _print_sql(find_settings(app_path, url), after)
    with connect(app_path, url, even_unused=True) as app:
        outbox = app.settings.outbox
        made = migrate_outbox(outbox) if outbox else None
        if outbox and not as_json:
            say(f"{outbox.location}: the tables of the outbox have format {made}.")
        if app.engine.is_used() or is_postgres(app.settings.url) or not outbox:
            return _migrate_engine(app, made, as_json=as_json)
        note_unused()
        if as_json:
            print_json({"engine": app.engine.location, "outbox": made})
        else:
            say(f"{app.engine.location}: nothing to migrate; it was never used.")
    return 0


def _migrate_engine(app: Windlass, outbox_format: int | None, *, as_json: bool) -> int:
    if not is_postgres(app.settings.url):
        require_used(app)
    done = migrate_all(app.engine)
    stored = app.engine.migrate()
    app.dead.regroup()
    if as_json:
        location = app.engine.location
        counted = {"moved": done.moved, "left": done.left, "steps": done.steps}
        print_json({"engine": location, "format": stored, **counted, "outbox": outbox_format})
    else:
        _report(app.engine.location, done, stored)
    return 1 if done.left else 0


def _print_sql(settings: Settings, after: int | None) -> int:
    """Print the SQL of the outbox, and of the missing migrations, for other tools."""
    text = full_sql(settings.outbox) if settings.outbox else ""
    if is_postgres(settings.url) or not text:
        text += migration_sql(settings.url, after)
    if text:
        click.echo(text, nl=False)
    else:
        say("Nothing to migrate: the tables have the format of this version.")
    return 0


def migrate_all(engine: Engine) -> Migrated:
    """Run all batches, and print the number of moved jobs now and then."""
    told_at = time.monotonic()
    bite = engine.migrate_jobs()
    moved, left, steps = bite.moved, bite.left, bite.steps
    while bite.cursor is not None:
        bite = engine.migrate_jobs(bite.cursor)
        moved += bite.moved
        left += bite.left
        steps += bite.steps
        if time.monotonic() - told_at >= LINE_S:
            told_at = time.monotonic()
            say(f"moved {count(moved, 'job')} so far")
    return Migrated(moved=moved, left=left, steps=steps)


def _report(location: str, done: Migrated, stored: int) -> None:
    if done.steps:
        say(f"{location}: applied {count(done.steps, 'migration')}; the jobs have format {stored}.")
    elif done.moved:
        say(f"{location}: moved {count(done.moved, 'job')} to format {stored}.")
    elif not done.left:
        say(f"{location}: nothing to migrate; the jobs have format {stored}.")
    if done.left:
        say(
            f"{location}: {count(done.left, 'job')} of the old version left, which its workers run "
            f"or its producers added. Stop these and run `{program()} migrate` again."
        )

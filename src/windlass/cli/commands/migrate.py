"""`windlass migrate`: bring stored jobs to the format of this version."""

from __future__ import annotations

import time
from typing import Final

import click

from windlass.cli.support.connection import connect, find_url
from windlass.cli.support.output import print_json, say
from windlass.cli.support.parameters import WholeNumber, connection_options, json_option
from windlass.cli.support.wording import count, program
from windlass.engine.contract import Engine, Migrated
from windlass.engine.url import migration_sql

#: How often the number of moved jobs is printed, in seconds.
LINE_S: Final = 5.0


@click.command()
@click.option(
    "--sql", "as_sql", is_flag=True, help="Print the SQL for PostgreSQL, and change nothing."
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
    """Bring the stored jobs to the format of this version.

    Any command that opens a SQLite file migrates it. On Redis this command moves jobs in small
    batches. Exits with 1 while jobs of the old version are left: some run on its workers, or its
    producers added some. Stop these and run it again. On PostgreSQL it makes and changes tables,
    and needs a role that may. Dead jobs without a fingerprint get one.

    \b
    windlass migrate --url redis://localhost:6379/0
    windlass migrate --url postgresql://owner@localhost/shop --sql > migration.sql
    """
    if after is not None and not as_sql:
        raise click.UsageError("--after belongs to --sql.")
    if as_sql and as_json:
        raise click.UsageError("--sql prints SQL: leave out --json.")
    if as_sql:
        return _print_sql(find_url(app_path, url), after)
    with connect(app_path, url, makes_tables=True) as app:
        done = migrate_all(app.engine)
        stored = app.engine.migrate()
        app.dead.regroup()
        if as_json:
            location = app.engine.location
            counted = {"moved": done.moved, "left": done.left, "steps": done.steps}
            print_json({"engine": location, "format": stored, **counted})
        else:
            _report(app.engine.location, done, stored)
    return 1 if done.left else 0


def _print_sql(url: str, after: int | None) -> int:
    """Print the SQL of the missing migrations, for other tools."""
    text = migration_sql(url, after)
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

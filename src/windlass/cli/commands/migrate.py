"""`windlass migrate`: bring stored jobs to the format of this version."""

from __future__ import annotations

import time
from typing import Final

import click

from windlass.cli.support.connection import connect
from windlass.cli.support.output import print_json, say
from windlass.cli.support.parameters import connection_options, json_option
from windlass.cli.support.wording import count, program
from windlass.engine.contract import Engine, Migrated

#: How often the number of moved jobs is printed, in seconds.
LINE_S: Final = 5.0


@click.command()
@connection_options
@json_option
def migrate(app_path: str | None, url: str | None, as_json: bool) -> int:
    """Bring the stored jobs to the format of this version.

    Any command that opens a SQLite file migrates it. On Redis this command moves jobs in small
    batches. Exits with 1 while jobs of the old version are left: some run on its workers, or its
    producers added some. Stop these and run it again. Dead jobs without a fingerprint get one.

    \b
    windlass migrate --url redis://localhost:6379/0
    """
    with connect(app_path, url) as app:
        done = migrate_all(app.engine)
        stored = app.engine.migrate()
        app.dead.regroup()
        if as_json:
            location = app.engine.location
            counted = {"format": stored, "moved": done.moved, "left": done.left}
            print_json({"engine": location, **counted})
        else:
            _report(app.engine.location, done, stored)
    return 1 if done.left else 0


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

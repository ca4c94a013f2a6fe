"""`windlass check`: verify the stored data of the engine, and repair it."""

from __future__ import annotations

import click

from windlass.cli.support.connection import connect
from windlass.cli.support.output import ask, print_json, say, tell
from windlass.cli.support.parameters import connection_options, json_option
from windlass.cli.support.wording import count, program
from windlass.engine.contract import Engine, Repaired


@click.command()
@click.option(
    "--repair", "repairs", is_flag=True, help="Show what would be repaired, ask, and repair it."
)
@click.option("--dry-run", is_flag=True, help="With --repair: only show what would be repaired.")
@click.option("--yes", is_flag=True, help="With --repair: do not ask.")
@connection_options
@json_option
def check(
    repairs: bool, dry_run: bool, yes: bool, app_path: str | None, url: str | None, as_json: bool
) -> int:
    """Compare records, indexes and counters of the engine. Exits with 1 if they disagree.

    \b
    windlass check --url sqlite:///jobs.db
    windlass check --url redis://localhost:6379/0 --repair
    """
    if (dry_run or yes) and not repairs:
        raise click.UsageError("--dry-run and --yes belong to --repair.")
    with connect(app_path, url) as app:
        if repairs:
            is_sound = _repair(app.engine, dry_run=dry_run, yes=yes, as_json=as_json)
        else:
            is_sound = _check(app.engine, as_json)
    return 0 if is_sound else 1


def _check(engine: Engine, as_json: bool) -> bool:
    problems = engine.check()
    if as_json:
        print_json({"engine": engine.location, "problems": problems})
    else:
        for problem in problems:
            tell(problem)
        say(_summary(engine.location, len(problems)))
    return not problems


def _summary(location: str, problems: int) -> str:
    if not problems:
        return f"{location}: records, indexes and counters agree."
    return (
        f"{location}: {count(problems, 'problem')}. Keep a copy of the data, and report this as a "
        f"bug with the lines above. `{program()} check --repair` shows what can be repaired."
    )


# --------------------------------------------------------------------------------------- repairing


def _repair(engine: Engine, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    would = repair_all(engine, change=False)
    is_asked = would.fixed and not dry_run and not yes
    if not as_json and (dry_run or is_asked):
        _print(would)
    if dry_run or not would.fixed:
        _report(engine, Repaired(left=would.left), would.fixed, as_json)
        return not would.fixed and not would.left
    if is_asked:
        question = f"Repair {count(len(would.fixed), 'problem')} in {engine.location}?"
        ask(question, "Nothing was changed. Give --yes to repair without a prompt.")
    done = repair_all(engine, change=True)
    if not as_json:
        _print(done)
    _report(engine, done, (), as_json)
    return not done.left


def repair_all(engine: Engine, *, change: bool) -> Repaired:
    """Run all batches of a repair, or of a dry run."""
    bite = engine.repair(change=change)
    fixed, left = [*bite.fixed], [*bite.left]
    while bite.cursor is not None:
        bite = engine.repair(bite.cursor, change=change)
        fixed += bite.fixed
        left += bite.left
    return Repaired(fixed=tuple(fixed), left=tuple(left))


def _print(found: Repaired) -> None:
    for sentence in found.fixed:
        tell(sentence)
    for sentence in found.left:
        tell(f"Beyond repair: {sentence}")


def _report(engine: Engine, done: Repaired, would: tuple[str, ...], as_json: bool) -> None:
    location = engine.location
    if as_json:
        found = {"repaired": done.fixed, "would_be_repaired": would, "beyond_repair": done.left}
        print_json({"engine": location, **found})
    elif would:
        say(f"{location}: {count(len(would), 'problem')} would be repaired.")
    elif done.fixed:
        say(f"{location}: {count(len(done.fixed), 'problem')} repaired.")
    elif not done.left:
        say(f"{location}: nothing to repair.")
    if done.left and not as_json:
        say(f"{location}: {count(len(done.left), 'problem')} cannot be repaired.")

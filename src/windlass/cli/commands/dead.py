"""`windlass dead`: list, group, retry, edit and discard dead letters.

It uses `app.dead`; this module has only the options and the output.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import click
import msgspec

from windlass.app import Windlass
from windlass.cli.commands.dead_edit import retry_with
from windlass.cli.support import bulk
from windlass.cli.support.connection import connect
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import print_json, print_table, printable, say, tell
from windlass.cli.support.parameters import (
    connection_options,
    duration,
    id_argument,
    ids_argument,
    json_option,
    limit_option,
)
from windlass.cli.support.records import describe, print_record
from windlass.cli.support.wording import age, count, more_than, program, summary_of
from windlass.core.foreign_words import nearest
from windlass.core.quantities import per_second
from windlass.dead_letter import DeadGroup, DeadLetter
from windlass.dead_letters import Changed, Choice, Selection, require_dead, target
from windlass.engine.contract import JobRecord

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=SuggestingGroup)
def dead() -> None:
    """List, show, retry or discard dead jobs.

    \b
    windlass dead list --group
    windlass dead retry --task shop.tasks.charge --rate 100/s
    """


# ---------------------------------------------------------------------------------------- choosing


def choice_options(command: F) -> F:
    """The options that filter dead jobs; a job must match all given ones."""
    for option in (
        click.option(
            "--newer-than", type=duration, metavar="TIME", help="Only dead for no longer than 1h."
        ),
        click.option(
            "--older-than", type=duration, metavar="TIME", help="Only dead for longer than 7d."
        ),
        click.option("--fingerprint", metavar="TEXT", help="Only failures with this fingerprint."),
        click.option("--task", metavar="NAME", help="Only dead jobs of this task."),
    ):
        command = option(command)
    return command


def _choice(
    task: str | None,
    fingerprint: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
) -> Choice:
    chosen: Choice = {}
    if task is not None:
        chosen["task"] = task
    if fingerprint is not None:
        chosen["fingerprint"] = fingerprint
    if older_than is not None:
        chosen["older_than"] = older_than
    if newer_than is not None:
        chosen["newer_than"] = newer_than
    return chosen


class _Selection(msgspec.Struct, frozen=True):
    """Which dead jobs to change: by id, by filter, or all."""

    ids: tuple[str, ...]
    choice: Choice

    @property
    def is_bulk(self) -> bool:
        return not self.ids

    def count(self, app: Windlass) -> int:
        return len(self.ids) if self.ids else app.dead.count(**self.choice)

    def words(self, number: int) -> str:
        """The chosen jobs in words, for a prompt."""
        if self.ids:
            return count(number, "dead job")
        if not self.choice:
            return f"all {count(number, 'dead job')}"
        return f"the {count(number, 'dead job')} {_said(self.choice)}"


_CHOICES = {
    "task": "of the task {}",
    "fingerprint": "with the fingerprint {}",
    "older_than": "dead for longer than {}",
    "newer_than": "dead for no longer than {}",
}


def _said(choice: Choice) -> str:
    return " and ".join(_CHOICES[name].format(value) for name, value in choice.items())


def target_options(command: F) -> F:
    command = click.option("--all", "everything", is_flag=True, help="All dead jobs.")(command)
    return ids_argument(required=False)(choice_options(command))


def _target(ids: Sequence[str], everything: bool, choice: Choice) -> _Selection:
    if bool(ids) + bool(choice) + everything != 1:
        raise click.UsageError(
            "Choose jobs by ID, or by --task, --fingerprint, --older-than and --newer-than, or "
            "with --all: exactly one of these three ways."
        )
    return _Selection(tuple(ids), choice)


def _require_match(app: Windlass, chosen: _Selection, verb: str) -> int:
    """The number of chosen jobs. Zero is an error, except for a filter by age or --all."""
    number = chosen.count(app)
    if not number and chosen.choice and chosen.choice.keys() <= {"task", "fingerprint"}:
        raise click.ClickException(f"{_none(app, chosen.choice)} Nothing was {verb}.")
    return number


# ----------------------------------------------------------------------------------------- looking


@dead.command("list")
@choice_options
@click.option("--group", is_flag=True, help="One line per group of similar failures.")
@limit_option
@connection_options
@json_option
def list_(
    task: str | None,
    fingerprint: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    group: bool,
    limit: int,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List dead jobs, newest first, or groups of them.

    \b
    windlass dead list --task shop.tasks.charge --newer-than 1h
    windlass dead list --group
    """
    choice = _choice(task, fingerprint, older_than, newer_than)
    with connect(app_path, url) as app:
        if group:
            _list_groups(app, choice, limit, as_json)
        else:
            _list_letters(app, choice, limit, as_json)


def _list_letters(app: Windlass, choice: Choice, limit: int, as_json: bool) -> None:
    found = list(islice(app.dead.list(**choice), limit + 1))
    letters = found[:limit]
    if as_json:
        records = app.engine.get([letter.id for letter in letters])
        shown = [app.packing.reveal(record) for record in records if record is not None]
        print_json([describe(record) for record in shown])
    elif letters:
        columns = ["id", "task", ">attempts", "died", "reason", "error"]
        print_table(columns, map(_letter_row, letters))
    else:
        say(_none(app, choice))
    _say_more(len(found), limit)


def _list_groups(app: Windlass, choice: Choice, limit: int, as_json: bool) -> None:
    groups = app.dead.groups(**choice)
    if as_json:
        print_json([msgspec.to_builtins(one, builtin_types=()) for one in groups[:limit]])
    elif groups:
        columns = ["fingerprint", ">count", "task", "first", "last", "example", "error"]
        print_table(columns, map(_group_row, groups[:limit]))
    else:
        say(_none(app, choice))
    _say_more(len(groups), limit)


def _letter_row(letter: DeadLetter) -> tuple[object, ...]:
    error = summary_of(letter.error) if letter.error else ""
    died = age(letter.died_at)
    return (letter.id, letter.task, letter.attempts, died, letter.reason, error)


def _group_row(group: DeadGroup) -> tuple[object, ...]:
    error = summary_of(group.error) if group.error else group.reason
    times = (age(group.first_at), age(group.last_at))
    return (group.fingerprint, group.count, group.task, *times, group.example, error)


def _none(app: Windlass, choice: Choice) -> str:
    """The message for no matching jobs, with a suggestion."""
    if not choice:
        return "No dead jobs."
    task, known = choice.get("task", ""), {*app.tasks, *(one.task for one in app.dead.groups())}
    hint = nearest(task, known) if task and task not in known else ""
    if "fingerprint" in choice and not hint:
        hint = f" `{program()} dead list --group` shows all groups."
    return f"No dead jobs {_said(choice)}.{hint}"


def _say_more(found: int, limit: int) -> None:
    if found > limit:
        say(more_than(limit))


@dead.command()
@id_argument
@connection_options
@json_option
def show(job_id: str, app_path: str | None, url: str | None, as_json: bool) -> None:
    """Show one dead job with its arguments, error and history.

    \b
    windlass dead show 01m7gk6tx900smjc57av0rnpgb
    """
    with connect(app_path, url) as app:
        record = _one(app, job_id)
    if as_json:
        print_json(describe(record))
    else:
        print_record(record)


def _one(app: Windlass, job_id: str) -> JobRecord:
    require_dead(app.engine, [job_id])
    (record,) = app.engine.get([job_id])
    assert record is not None, "the dead letter was just read"
    return app.packing.reveal(record)


# ---------------------------------------------------------------------------------------- retrying


def _rate(value: str) -> float:
    try:
        return per_second(value, name="it")
    except ValueError:
        raise click.BadParameter(
            f"expected a rate such as 500/s, 30/m or 10/h, found {value!r}."
        ) from None


@dead.command()
@target_options
@click.option("--rate", type=_rate, metavar="N/s", help="At most 500/s, 30/m or 10/h.")
@click.option("--args", "args_text", metavar="JSON", help="Retry one job with these arguments.")
@click.option("--kwargs", "kwargs_text", metavar="JSON", help="The same for keyword arguments.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def retry(
    ids: Sequence[str],
    task: str | None,
    fingerprint: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    everything: bool,
    rate: float | None,
    args_text: str | None,
    kwargs_text: str | None,
    dry_run: bool,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make dead jobs ready again, with fresh attempts.

    Asks for confirmation on a terminal when a filter matches more than one job. With --args or
    --kwargs one job is retried with other arguments; arguments that are not given stay, and the
    history keeps the old call.

    \b
    windlass dead retry 01m7gk6tx900smjc57av0rnpgb
    windlass dead retry --task shop.tasks.charge --rate 500/s
    windlass dead retry --fingerprint 3f1c07a2b9d4 --newer-than 1h
    windlass dead retry 01m7gk6tx900smjc57av0rnpgb --args '["cat.jpg"]'
    """
    chosen = _target(ids, everything, _choice(task, fingerprint, older_than, newer_than))
    is_edit = args_text is not None or kwargs_text is not None
    if is_edit and (len(ids) != 1 or rate is not None or dry_run):
        raise click.UsageError("--args and --kwargs need exactly one job, given by its ID.")
    with connect(app_path, url) as app:
        require_dead(app.engine, ids)
        if is_edit:
            retry_with(app, _one(app, ids[0]), args_text, kwargs_text)
            return _report(Changed(done=1), "retried", as_json)
        number = _require_match(app, chosen, "retried")
        if dry_run:
            return _report_dry_run(chosen, number, "retried", as_json)
        if chosen.is_bulk and number > 1 and not yes and sys.stdin.isatty():
            _ask(f"Retry {chosen.words(number)} of {app.engine.location}?", "retried")
        selection = _select(chosen)
        with bulk.showing("Retrying", number) as show_progress:
            steps = app.dead.retrying(selection, rate)
            ended = bulk.run("retried", steps, show_progress)
    return _conclude(ended, "retried", as_json)


def _select(chosen: _Selection) -> Selection:
    if chosen.is_bulk and not chosen.choice:
        return target(everything=True)
    return target(*chosen.ids, **chosen.choice)


# -------------------------------------------------------------------------------------- discarding


@dead.command(short_help="Remove dead jobs permanently.")
@target_options
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def discard(
    ids: Sequence[str],
    task: str | None,
    fingerprint: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Remove dead jobs permanently. Prints the call and the reason of each job before that.

    \b
    windlass dead discard 01m7gk6tx900smjc57av0rnpgb
    windlass dead discard --task shop.tasks.charge --older-than 7d --yes
    """
    chosen = _target(ids, everything, _choice(task, fingerprint, older_than, newer_than))
    with connect(app_path, url) as app, _log_printed(as_json):
        require_dead(app.engine, ids)
        number = _require_match(app, chosen, "discarded")
        if dry_run:
            return _report_dry_run(chosen, number, "discarded", as_json)
        if not yes:
            words = chosen.words(number)
            _ask(f"Remove {words} of {app.engine.location} permanently?", "discarded")
        steps = app.dead.discarding(_select(chosen))
        ended = bulk.run("discarded", steps, lambda _changed: None)
    return _conclude(ended, "discarded", as_json)


class _Printer(logging.Handler):
    """Prints log lines: the lines about discarded jobs are the output of the command."""

    def __init__(self, err: bool) -> None:
        super().__init__()
        self._err = err

    def emit(self, record: logging.LogRecord) -> None:
        tell(record.getMessage(), err=self._err)


@contextmanager
def _log_printed(err: bool) -> Iterator[None]:
    log, printer = logging.getLogger("windlass.dead_letters"), _Printer(err)
    log.addHandler(printer)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(printer)
        log.propagate = True


# ------------------------------------------------------------------------------------------ saying


def _ask(question: str, verb: str) -> None:
    try:
        agreed = click.confirm(printable(question), err=True)
    except click.Abort:  # no terminal
        agreed = False
        click.echo(err=True)
    if not agreed:
        raise click.ClickException(f"Nothing was {verb}. Give --yes to skip the prompt.")


def _report_dry_run(chosen: _Selection, number: int, verb: str, as_json: bool) -> None:
    if as_json:
        print_json({f"would_be_{verb}": number})
    else:
        words = chosen.words(number)
        tell(f"{words[0].upper()}{words[1:]} would be {verb}.")


def _conclude(ended: bulk.BulkResult, verb: str, as_json: bool) -> None:
    changed = ended.changed
    _report(changed, verb, as_json)
    if changed.duplicates:
        number = count(changed.duplicates, "dead job")
        say(f"{number} not changed: another job holds its unique key.")
    if changed.left:
        say(f"{count(changed.left, 'job')} skipped: no longer dead.")
    if ended.was_stopped:
        raise click.ClickException(
            "Stopped: the other jobs are unchanged. Run the same command to continue."
        )


def _report(changed: Changed, verb: str, as_json: bool) -> None:
    if as_json:
        print_json({verb: changed.done})
    else:
        tell(f"{count(changed.done, 'dead job')} {verb}.")

"""`windlass dead`: list, group, retry, edit and discard dead letters.

This module has only the options and the output; `app.dead` does the work.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from typing import Any, Final, NamedTuple

import click
import msgspec

from windlass.app import Windlass
from windlass.cli.commands.dead_edit import retry_with
from windlass.cli.support import bulk
from windlass.cli.support.audit_trail import actor
from windlass.cli.support.connection import connect, connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.operation_progress import conclude, follow
from windlass.cli.support.output import ask, print_json, print_list, report, say, tell
from windlass.cli.support.parameters import (
    connection_options,
    duration,
    ids_argument,
    job_id,
    json_option,
    limit_option,
    yes_option,
)
from windlass.cli.support.records import describe, print_record
from windlass.cli.support.task_names import stored_name
from windlass.cli.support.wording import age, count, program
from windlass.core.foreign_words import suggest_dotted
from windlass.core.quantities import per_second
from windlass.core.states import State
from windlass.dead_letter import DeadGroup, DeadLetter
from windlass.dead_letters import Choice, Selection, read_task, require_dead, target
from windlass.engine.contract import JobRecord
from windlass.operations.operations import Operation
from windlass.operations.replay import WINDOW

#: The filters of a choice in words.
_CHOICES: Final = {
    "task": "of the task {}",
    "fingerprint": "with the fingerprint {}",
    "release": "of the release {}",
    "older_than": "dead for longer than {}",
    "newer_than": "dead for no longer than {}",
}
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only say how many there are.")


@click.group(cls=SuggestingGroup)
def dead() -> None:
    """List, show, retry or discard dead jobs.

    \b
    windlass dead list --group
    windlass dead retry --task shop.tasks.charge --rate 100/s
    """


# ---------------------------------------------------------------------------------------- choosing


def choice_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that filter dead jobs, as one `choice`. A job must match all filters."""

    @click.option("--task", metavar="NAME", help="Only dead jobs of this task.")
    @click.option("--fingerprint", metavar="TEXT", help="Only failures with this fingerprint.")
    @click.option("--release", metavar="NAME", help="Only jobs that died in this release.")
    @click.option(
        "--older-than", type=duration, metavar="TIME", help="Only dead for longer than 7d."
    )
    @click.option(
        "--newer-than", type=duration, metavar="TIME", help="Only dead for no longer than 1h."
    )
    @wraps(command)
    def choosing(**given: Any) -> None:
        parts = {name: given.pop(name) for name in _CHOICES}
        choice = {name: part for name, part in parts.items() if part is not None}
        command(choice=choice, **given)

    return choosing


def target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose dead jobs, as one `chosen`."""

    @ids_argument(required=False)
    @choice_options
    @click.option("--all", "everything", is_flag=True, help="All dead jobs.")
    @wraps(command)
    def choosing(ids: tuple[str, ...], everything: bool, choice: Choice, **given: Any) -> None:
        if bool(ids) + bool(choice) + everything != 1:
            raise click.UsageError(
                "Choose jobs by ID, or by --task, --fingerprint, --release, --older-than and "
                "--newer-than, or with --all: exactly one of these three ways."
            )
        command(chosen=Chosen(ids, choice), **given)

    return choosing


class Chosen(NamedTuple):
    """The dead jobs to change: by id, by filter, or all."""

    ids: tuple[str, ...]
    choice: Choice

    def named(self, app: Windlass) -> Chosen:
        """The same choice, with the full name of its task."""
        return Chosen(self.ids, _named(app, self.choice))

    def select(self) -> Selection:
        everything = not self.ids and not self.choice
        return target(*self.ids, **self.choice, everything=everything)

    def words(self, number: int) -> str:
        """Describe the chosen jobs, for a prompt."""
        if self.ids:
            return count(number, "dead job")
        if not self.choice:
            return f"all {count(number, 'dead job')}"
        return f"the {count(number, 'dead job')} {_said(self.choice)}"


def _named(app: Windlass, choice: Choice) -> Choice:
    task = read_task(choice.get("task"))
    return choice if task is None else {**choice, "task": stored_name(app, task, State.DEAD)}


def _said(choice: Choice) -> str:
    return " and ".join(_CHOICES[name].format(value) for name, value in choice.items())


def _require_match(app: Windlass, chosen: Chosen, verb: str) -> int:
    """Return the number of chosen jobs. Zero is an error, except for a filter by age or --all."""
    require_dead(app.engine, chosen.ids)
    number = len(chosen.ids) or app.dead.count(**chosen.choice)
    if not number and chosen.choice and chosen.choice.keys() <= {"task", "fingerprint", "release"}:
        raise click.ClickException(f"{_none(app, chosen.choice)} Nothing was {verb}.")
    return number


# ----------------------------------------------------------------------------------------- looking


@dead.command("list")
@choice_options
@click.option("--group", is_flag=True, help="One line per group of similar failures.")
@click.option(
    "--new-since",
    metavar="RELEASE",
    help="Only groups without a death in this release or an earlier one.",
)
@limit_option
@connected
@json_option
def list_(
    app: Windlass,
    choice: Choice,
    group: bool,
    new_since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List dead jobs, latest first, or groups of them.

    \b
    windlass dead list --task shop.tasks.charge --newer-than 1h
    windlass dead list --group
    windlass dead list --group --new-since v42
    """
    choice = _named(app, choice)
    if new_since is not None and (not group or choice.keys() & {"older_than", "newer_than"}):
        raise click.UsageError(
            "--new-since is for groups: give --group with it, and no --older-than or --newer-than."
        )
    if group:
        _list_groups(app, choice, new_since, limit, as_json)
    else:
        _list_letters(app, choice, limit, as_json)


def _list_letters(app: Windlass, choice: Choice, limit: int, as_json: bool) -> None:
    found = list(islice(app.dead.list(**choice), limit + 1))
    print_list(
        found,
        lambda letters: _describe_all(app, letters),
        ["id", "task", ">attempts", "died", "reason", "error"],
        _letter_row,
        none="" if found else _none(app, choice),
        as_json=as_json,
        limit=limit,
    )


def _describe_all(app: Windlass, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
    records = app.engine.get([letter.id for letter in letters])
    return [describe(app, app.packing.reveal(record)) for record in records if record is not None]


def _list_groups(
    app: Windlass, choice: Choice, new_since: str | None, limit: int, as_json: bool
) -> None:
    found = app.dead.groups(new_since=new_since, **choice)
    none = f"No groups of dead jobs are new since {new_since}."
    print_list(
        found,
        lambda groups: msgspec.to_builtins(groups, builtin_types=()),
        ["fingerprint", ">count", "task", "releases", "first", "last", "example", "error"],
        _group_row,
        none="" if found else none if new_since is not None else _none(app, choice),
        as_json=as_json,
        limit=limit,
    )


def _letter_row(letter: DeadLetter) -> tuple[object, ...]:
    error = str(letter.error) if letter.error else ""
    died = age(letter.died_at)
    return (letter.id, letter.task, letter.attempts, died, letter.reason, error)


def _group_row(group: DeadGroup) -> tuple[object, ...]:
    error = str(group.error) if group.error else group.reason
    times = (age(group.first_at), age(group.last_at))
    releases = ", ".join(f"{one.release or '-'}: {one.count}" for one in group.releases)
    return (group.fingerprint, group.count, group.task, releases, *times, group.example, error)


def _none(app: Windlass, choice: Choice) -> str:
    """Return the message for no matching jobs, with a suggestion."""
    if not choice:
        return "No dead jobs."
    task = read_task(choice.get("task"))
    known = {*app.tasks, *app.remote_tasks, *(one.task for one in app.dead.groups())}
    hint = suggest_dotted(task, known) if task and task not in known else ""
    if "fingerprint" in choice and not hint:
        hint = f" `{program()} dead list --group` shows all groups."
    return f"No dead jobs {_said(choice)}.{hint}"


@dead.command()
@click.argument("job_id", type=job_id, metavar="ID")
@connected
@json_option
def show(app: Windlass, job_id: str, as_json: bool) -> None:
    """Show one dead job with its arguments, error and history.

    \b
    windlass dead show 01m7gk6tx900smjc57av0rnpgb
    """
    record = _one(app, job_id)
    if as_json:
        print_json(describe(app, record))
    else:
        print_record(app, record)


def _one(app: Windlass, job_id: str) -> JobRecord:
    require_dead(app.engine, [job_id])
    (record,) = app.engine.get([job_id])
    assert record is not None, "the dead letter was just read"
    return app.packing.reveal(record)


# ---------------------------------------------------------------------------------------- retrying


def _rate(value: str) -> float:
    try:
        return per_second(f"{value}/s" if value.isdigit() else value, name="it")
    except ValueError:
        raise click.BadParameter(
            f"expected a rate such as 500/s, 30/m or 10/h, found {value!r}."
        ) from None


@dead.command()
@target_options
@click.option("--rate", type=_rate, metavar="N/s", help="At most 500/s, 30/m or 10/h.")
@click.option(
    "--stop-after",
    type=click.IntRange(0, WINDOW),
    metavar="N",
    help="With a filter: pause when N of the last 100 jobs failed again. 10 with --rate; 0: never.",
)
@click.option("--args", "args_text", metavar="JSON", help="Retry one job with these arguments.")
@click.option("--kwargs", "kwargs_text", metavar="JSON", help="The same for keyword arguments.")
@click.option("--unchecked", is_flag=True, help="Do not check these arguments against the task.")
@_dry_run_option
@yes_option
@connection_options
@json_option
def retry(
    chosen: Chosen,
    rate: float | None,
    stop_after: int | None,
    args_text: str | None,
    kwargs_text: str | None,
    unchecked: bool,
    dry_run: bool,
    yes: bool,
    app_path: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make dead jobs ready again, with fresh attempts.

    Asks for confirmation on a terminal when a filter matches more than one job. With --args or
    --kwargs one job is retried with other arguments; arguments that are not given stay, and the
    history keeps the old call. The arguments must fit the task; --unchecked is for a task whose
    code is not here.

    With a filter, --rate or --stop-after start a bulk operation, which pauses by itself when its
    jobs fail again. If this process is killed, `windlass serve` or `windlass operation resume`
    continue it.

    \b
    windlass dead retry 01m7gk6tx900smjc57av0rnpgb
    windlass dead retry --task shop.tasks.charge --rate 500/s
    windlass dead retry --fingerprint 3f1c07a2b9d4 --newer-than 1h
    windlass dead retry 01m7gk6tx900smjc57av0rnpgb --args '["cat.jpg"]'
    """
    is_edit = args_text is not None or kwargs_text is not None
    if is_edit and (len(chosen.ids) != 1 or rate is not None or dry_run):
        raise click.UsageError("--args and --kwargs need exactly one job, given by its ID.")
    if stop_after is not None and chosen.ids:
        raise click.UsageError("--stop-after is for a filter or --all, not for jobs by ID.")
    if unchecked and not is_edit:
        raise click.UsageError("--unchecked is for new arguments: give --args or --kwargs with it.")
    with connect(app_path, url) as app:
        if is_edit:
            record = _one(app, chosen.ids[0])
            retry_with(app, record, args_text, kwargs_text, unchecked=unchecked)
            return _report(1, "retried", as_json)
        chosen = chosen.named(app)
        number = _require_match(app, chosen, "retried")
        if dry_run:
            return _report_dry_run(chosen, number, "retried", as_json)
        if not chosen.ids and number > 1 and not yes and sys.stdin.isatty():
            _ask(f"Retry {chosen.words(number)} of {app.engine.location}?", "retried")
        if not chosen.ids and (rate is not None or stop_after is not None):
            ended_operation = follow(app, _start(app, chosen, rate, stop_after))
            return conclude(ended_operation, as_json)
        with bulk.showing("Retrying", number) as show_progress:
            steps = app.dead.retrying(chosen.select(), rate)
            ended = bulk.run("retried", steps, show_progress)
    return _conclude(ended, "retried", as_json)


def _start(app: Windlass, chosen: Chosen, rate: float | None, stop_after: int | None) -> Operation:
    """Start the bulk operation of a retry by filter."""
    return app.operations.start(
        "dead.retry",
        actor=actor(),
        rate=rate,
        stop_after=stop_after,
        **chosen.choice,
        everything=not chosen.choice,
    )


# -------------------------------------------------------------------------------------- discarding


@dead.command(short_help="Remove dead jobs permanently.")
@target_options
@_dry_run_option
@yes_option
@connected
@json_option
def discard(app: Windlass, chosen: Chosen, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove dead jobs permanently. Prints the call and the reason of each job before that.

    \b
    windlass dead discard 01m7gk6tx900smjc57av0rnpgb
    windlass dead discard --task shop.tasks.charge --older-than 7d --yes
    """
    chosen = chosen.named(app)
    with _log_printed(as_json):
        number = _require_match(app, chosen, "discarded")
        if dry_run:
            return _report_dry_run(chosen, number, "discarded", as_json)
        if not yes:
            words = chosen.words(number)
            _ask(f"Remove {words} of {app.engine.location} permanently?", "discarded")
        steps = app.dead.discarding(chosen.select())
        ended = bulk.run("discarded", steps, lambda _number: None)
    return _conclude(ended, "discarded", as_json)


@contextmanager
def _log_printed(err: bool) -> Iterator[None]:
    """Print log lines about discarded jobs: they are the output of the command."""

    def print_line(record: logging.LogRecord) -> bool:
        tell(record.getMessage(), err=err)
        return False  # no handler logs the record

    log = logging.getLogger("windlass.dead_letters")
    log.addFilter(print_line)
    try:
        yield
    finally:
        log.removeFilter(print_line)


# --------------------------------------------------------------------------------------- grouping


@dead.command(short_help="Compute the fingerprints of dead jobs again.")
@connected
@json_option
def regroup(app: Windlass, as_json: bool) -> None:
    """Compute the fingerprints of all dead jobs again, 50 at a time.

    Needed only after a change of the secret, or of the rule in a new version of windlass. Workers
    may keep running. Interrupted, the command can be repeated.

    \b
    windlass dead regroup
    """
    number = app.dead.regroup(everything=True)
    report({"regrouped": number}, f"{count(number, 'dead job')} regrouped.", as_json)


# ------------------------------------------------------------------------------------------ saying


def _ask(question: str, verb: str) -> None:
    ask(question, f"Nothing was {verb}. Give --yes to skip the prompt.")


def _report_dry_run(chosen: Chosen, number: int, verb: str, as_json: bool) -> None:
    words = chosen.words(number)
    sentence = f"{words[0].upper()}{words[1:]} would be {verb}."
    report({f"would_be_{verb}": number}, sentence, as_json)


def _conclude(ended: bulk.BulkResult, verb: str, as_json: bool) -> None:
    changed = ended.changed
    _report(changed.done, verb, as_json)
    if changed.duplicates:
        number = count(changed.duplicates, "dead job")
        say(f"{number} not changed: another job holds its unique key.")
    if changed.left:
        say(f"{count(changed.left, 'job')} skipped: no longer dead.")
    if ended.was_stopped:
        raise click.ClickException(
            "Stopped: the other jobs are unchanged. Run the same command to continue."
        )


def _report(number: int, verb: str, as_json: bool) -> None:
    report({verb: number}, f"{count(number, 'dead job')} {verb}.", as_json)

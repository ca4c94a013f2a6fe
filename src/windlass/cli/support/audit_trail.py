"""Record what commands change, in the audit trail of the engine.

1. `CHANGES` lists the commands that change something.
2. `audited` surrounds the work of every command with an engine. After a command of that list it
   adds an entry, with the actor `cli:USER@HOST` and the options of the command.
3. `note` and `note_done` let shared code add facts to the entry, such as the number of jobs.

A command that fails before it has changed anything leaves no entry. If the entry cannot be stored,
the command says so; what it has changed stays.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import click

from windlass.app import Windlass
from windlass.cli.support.output import say
from windlass.cli.support.wording import count
from windlass.core.durations import describe_ms
from windlass.errors import EngineUnavailable, WindlassError


class Change(NamedTuple):
    """A command that changes something."""

    subject: str = ""  # the parameter that names what is changed
    noun: str = "job"  # what there are many of, if the parameter takes many
    only_with: str = ""  # a flag without which nothing is changed
    resolve: Callable[[Windlass, str], str] | None = None  # completes a short name


def _task_name(app: Windlass, name: str) -> str:
    from windlass.cli.support.task_names import pausable_name  # imports this package

    return pausable_name(app, name)


def _schedule_name(app: Windlass, name: str) -> str:
    from windlass.cli.support.task_names import schedule_name

    return schedule_name(app, name)


#: The commands that change something. `windlass enqueue` is not among them: jobs are their own
#: record.
CHANGES: Final[Mapping[str, Change]] = {
    "check": Change(only_with="repairs"),
    "copy": Change(),
    "dead discard": Change("ids"),
    "dead regroup": Change(),
    "dead retry": Change("ids"),
    "job cancel": Change("ids"),
    "job edit": Change("job_id"),
    "job move": Change("ids"),
    "job retry": Change("ids"),
    "job run-now": Change("ids"),
    "migrate": Change(),
    "operation pause": Change("operation_id"),
    "operation resume": Change("operation_id"),
    "operation stop": Change("operation_id"),
    "queue pause": Change("name"),
    "queue purge": Change("name"),
    "queue resume": Change("name"),
    "queue set": Change("name"),
    "schedule pause": Change("name", resolve=_schedule_name),
    "schedule remove": Change("name", resolve=_schedule_name),
    "schedule resume": Change("name", resolve=_schedule_name),
    "schedule run": Change("name", resolve=_schedule_name),
    "task pause": Change("name", resolve=_task_name),
    "task resume": Change("name", resolve=_task_name),
    "token create": Change("name"),
    "token revoke": Change("name"),
    "workers quiet": Change("names", "worker"),
    "workers resume": Change("names", "worker"),
    "workers stop": Change("names", "worker"),
}
#: Parameters that say nothing about the change, and urls, which may have passwords.
_LEFT_OUT: Final = frozenset(
    {"app_path", "as_json", "dry_run", "source_url", "target_url", "url", "yes"}
)
#: New arguments of a job, which are not recorded: its history has them.
_ARGUMENTS: Final = {"args_text": "args", "kwargs_text": "kwargs"}
_NOTES: Final = "windlass.audit"


@contextmanager
def audited(app: Windlass) -> Iterator[None]:
    """Add an entry to the audit trail if the current command changes something."""
    context = click.get_current_context(silent=True)
    path = command_path(context)
    change = CHANGES.get(path)
    if context is None or change is None or not _is_wanted(change, context.params):
        yield
        return
    subject = _subject(app, change, context.params)
    try:
        yield
    except BaseException as error:
        if notes(context).get("done"):
            _add(app, path, subject, context, error)
        raise
    if not notes(context).get("is_unused"):
        _add(app, path, subject, context)


def note_unused() -> None:
    """Add no entry for the current command: the engine was never used, and stays so."""
    note(is_unused=True)


def note(**facts: object) -> None:
    """Add facts to the entry of the current command, if it has one."""
    context = click.get_current_context(silent=True)
    if context is not None:
        notes(context).update(facts)


def note_done(number: int) -> None:
    """Add to the number of changed jobs."""
    context = click.get_current_context(silent=True)
    if context is not None:
        facts = notes(context)
        facts["done"] = facts.get("done", 0) + number


def notes(context: click.Context) -> dict[str, Any]:
    facts: dict[str, Any] = context.meta.setdefault(_NOTES, {})
    return facts


def command_path(context: click.Context | None) -> str:
    """The command as it is typed after `windlass`."""
    words: list[str] = []
    while context is not None and context.parent is not None:
        words.append(context.info_name or "")
        context = context.parent
    return " ".join(reversed(words))


def actor() -> str:
    """The user and the host of this process."""
    return f"cli:{user_and_host()}"


def user_and_host() -> str:
    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        import pwd
    except ModuleNotFoundError:  # on Windows
        return os.environ.get("USERNAME", "unknown")
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, a user may have no name
        return f"uid-{os.getuid()}"


def _is_wanted(change: Change, parameters: Mapping[str, Any]) -> bool:
    if parameters.get("dry_run"):
        return False
    return not change.only_with or bool(parameters.get(change.only_with))


def _subject(app: Windlass, change: Change, parameters: Mapping[str, Any]) -> str:
    given = parameters.get(change.subject, "")
    if isinstance(given, tuple):
        return given[0] if len(given) == 1 else count(len(given), change.noun) if given else ""
    return given if change.resolve is None else change.resolve(app, given)


def _add(
    app: Windlass,
    path: str,
    subject: str,
    context: click.Context,
    error: BaseException | None = None,
) -> None:
    facts = notes(context)
    details = {**_details(context.params, CHANGES[path].subject), **facts}
    outcome = "refused" if facts.get("refused") and not facts.get("done") else "ok"
    if error is not None:
        outcome, details["error"] = "failed", str(error) or type(error).__name__
    try:
        if isinstance(error, EngineUnavailable):
            raise error  # a second call would wait for the engine as well
        app.audit.add(
            actor=actor(),
            action=path.replace(" ", "."),
            subject=subject,
            details=details,
            outcome=outcome,
        )
    except WindlassError as failure:
        say(f"The change is not in the audit trail: {failure}")


def _details(parameters: Mapping[str, Any], subject: str) -> dict[str, object]:
    """The options of a command, without those that were not given."""
    details: dict[str, object] = {}
    for name, value in parameters.items():
        if value is None or value is False or value == () or name in _LEFT_OUT:
            continue
        if name in _ARGUMENTS:
            details[_ARGUMENTS[name]] = "replaced"
        elif name != subject or (isinstance(value, tuple) and len(value) > 1):
            details[name] = _plain(value)
    return details


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return describe_ms(value // timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value if isinstance(value, int | float) else str(value)

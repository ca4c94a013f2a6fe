"""Suggestions for unknown commands, options and arguments.

1. A command or option of another task queue, or `list` in a group without it, gets its equivalent.
2. Otherwise the most similar name is suggested, independent of the version of click. A short word
   is slightly similar to many others, and a wrong suggestion is worse than none.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

import click

from windlass.core.foreign_words import nearest

#: The least similarity for a suggestion: not "health" for "beat", not "--json" for "--reason".
_ALIKE_COMMANDS: Final = 0.65
_ALIKE_OPTIONS: Final = 0.75
_APP: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)

#: command of another task queue, or of another group -> equivalent
_COMMANDS: Final = {
    "beat": "Every worker runs schedules: `windlass schedule list` shows them.",
    "version": "Write `windlass --version`.",
    "flower": "`windlass top` shows queues, workers and running jobs.",
    "list": "`windlass tasks` lists tasks, `windlass job list` jobs, `windlass queue list` queues.",
    "inspect": "`windlass workers` shows live workers and their running jobs.",
    "purge": "`windlass queue purge` removes the waiting jobs of a queue, `windlass dead discard` "
    "dead jobs.",
}
_LOG_LEVEL: Final = "Write --log-level, for example `windlass worker --log-level debug`."
#: option of another task queue -> equivalent
_OPTIONS: Final = {
    "-A": "Write --app MODULE:ATTR after the command, for example --app shop.tasks:app.",
    "-B": _COMMANDS["beat"],
    "-Q": "Write -q for each queue that a worker serves.",
    "-l": _LOG_LEVEL,
    "--loglevel": _LOG_LEVEL,
    "--concurrency": "Write -c for the jobs that one process of a worker runs at a time, and -p "
    "for the processes.",
}


class SuggestingGroup(click.Group):
    """A group that suggests a name for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            near = nearest(args[0], self.list_commands(ctx), alike=_ALIKE_COMMANDS)
            hint = _hint(_COMMANDS, args[0]) or near
            raise click.UsageError(f"{error.message}{hint}", ctx) from error


def explain(error: click.UsageError) -> click.UsageError:
    """Add a suggestion to a usage error."""
    if isinstance(error, click.NoSuchOption):
        known = [name for one in _parameters(error) for name in one.opts]
        near = nearest(error.option_name, known, alike=_ALIKE_OPTIONS)
        hint = _hint(_OPTIONS, error.option_name) or _of_a_command(error) or near
        return click.UsageError(f"{error.message.rstrip('.')}.{hint}", error.ctx)
    extra = _EXTRA.fullmatch(error.message)
    app = _APP.search(extra[1]) if extra else None
    if app and any("--app" in one.opts for one in _parameters(error)):
        return click.UsageError(f"{error.message}. Write --app {app[0]}.", error.ctx)
    if extra and any("--args" in one.opts for one in _parameters(error)):
        return click.UsageError(f"{error.message}. Write --args {_as_args(extra[1])}.", error.ctx)
    return error


def _of_a_command(error: click.NoSuchOption) -> str:
    """Return the hint for an option that was given before its command."""
    group = None if error.ctx is None else error.ctx.command
    commands = group.commands.values() if isinstance(group, click.Group) else ()
    if any(error.option_name in one.opts for command in commands for one in command.params):
        return f" Write {error.option_name} after the command."
    return ""


def _as_args(words: str) -> str:
    """Convert command-line words to one JSON array, quoted for a shell."""
    values = [word if _is_json(word) else json.dumps(word) for word in words.split(" ")]
    return shlex.quote(f"[{', '.join(values)}]")


def _is_json(word: str) -> bool:
    try:
        json.loads(word)
    except ValueError:
        return False
    return True


def _parameters(error: click.UsageError) -> list[click.Parameter]:
    return [] if error.ctx is None else error.ctx.command.get_params(error.ctx)


def _hint(hints: dict[str, str], name: str) -> str:
    return f" {hints[name]}" if name in hints else ""

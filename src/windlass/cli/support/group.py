"""What was probably meant by a command, an option or an argument that is not known.

1. A habit from other task queues is answered by what to write here.
2. Else a name that looks much like the one typed is asked after, whatever the version of click. A
   short word looks a little like many others: a wrong question misleads more than none.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

import click

from windlass.settings import nearest

#: How much alike a command or an option must be: "beat" is not "health", "--reason" not "--json".
_ALIKE_COMMANDS: Final = 0.65
_ALIKE_OPTIONS: Final = 0.75
_APP: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)

#: command -> what does the same here
_COMMANDS: Final = {
    "beat": "Every worker looks after schedules: `windlass schedule list` shows them.",
    "version": "Write `windlass --version`.",
    "flower": "`windlass top` shows queues, workers and running jobs.",
    "inspect": "`windlass workers` shows which workers live, and what they run.",
    "purge": "`windlass queue purge` removes what waits in a queue, `windlass dead discard` "
    "dead jobs.",
}
_LOG_LEVEL: Final = "Set WINDLASS_LOG_LEVEL, or log_level in the code of the app."
#: option -> what to write here
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
    """Says of a command that it does not know which one was probably meant."""

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
    """The same error with what was probably meant."""
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
    """Said of an option that stands before the command whose it is."""
    group = None if error.ctx is None else error.ctx.command
    commands = group.commands.values() if isinstance(group, click.Group) else ()
    if any(error.option_name in one.opts for command in commands for one in command.params):
        return f" Write {error.option_name} after the command."
    return ""


def _as_args(words: str) -> str:
    """Arguments as they are written on a command line, as one JSON array, quoted for a shell."""
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


def _hint(habits: dict[str, str], name: str) -> str:
    return f" {habits[name]}" if name in habits else ""

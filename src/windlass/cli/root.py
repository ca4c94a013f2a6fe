"""The command group, and the one place where errors become sentences and exit codes.

Exit codes: 0 ok, 1 failed, 2 usage or import, 3 engine away.
"""

from __future__ import annotations

import difflib
import os
import sys
from typing import Final

import click

from windlass.cli.check import check
from windlass.cli.dead import dead
from windlass.cli.demo import demo
from windlass.cli.enqueue import enqueue
from windlass.cli.job import job
from windlass.cli.output import say
from windlass.cli.status import status
from windlass.cli.worker import worker
from windlass.errors import (
    AppNotFound,
    EngineUnavailable,
    InvalidTask,
    SettingError,
    WindlassError,
)

FAILED: Final = 1
USAGE: Final = 2
ENGINE_AWAY: Final = 3
_USAGE_ERRORS: Final = (AppNotFound, SettingError, InvalidTask)


class _SuggestingGroup(click.Group):
    """A group that knows what was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error


@click.group(
    cls=_SuggestingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: windlass demo",
)
@click.version_option(package_name="windlass", message="windlass %(version)s")
def windlass() -> None:
    """A task queue: enqueue calls of functions, run them in the background, lose none."""


for command in (demo, worker, enqueue, status, job, dead, check):
    windlass.add_command(command)


def run() -> None:
    """The console script: run a command, and turn what it raises into an exit code."""
    try:
        code = windlass.main(standalone_mode=False)
    except click.exceptions.Abort:
        say("Stopped; nothing more was done.")
        code = FAILED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except WindlassError as error:
        say(f"Error: {error}")
        code = _code_of(error)
    except BrokenPipeError:  # `windlass ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _code_of(error: WindlassError) -> int:
    if isinstance(error, EngineUnavailable):
        return ENGINE_AWAY
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED

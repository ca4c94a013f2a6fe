"""The command group, and the one place where errors become messages and exit codes.

Exit codes: 0 ok, 1 failed, 2 usage or import, 3 engine unavailable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import StringIO

import click

from windlass.cli.commands.alerts import alerts
from windlass.cli.commands.audit import audit
from windlass.cli.commands.check import check
from windlass.cli.commands.completion import completion
from windlass.cli.commands.config import config
from windlass.cli.commands.copy import copy
from windlass.cli.commands.dashboard import dashboard
from windlass.cli.commands.dead import dead
from windlass.cli.commands.demo import demo
from windlass.cli.commands.doctor import doctor
from windlass.cli.commands.enqueue import enqueue
from windlass.cli.commands.health import health
from windlass.cli.commands.job import job
from windlass.cli.commands.migrate import migrate
from windlass.cli.commands.operation import operation
from windlass.cli.commands.queue import queue
from windlass.cli.commands.schedule import schedule
from windlass.cli.commands.serve import serve
from windlass.cli.commands.status import status
from windlass.cli.commands.task import task
from windlass.cli.commands.tasks import tasks
from windlass.cli.commands.token import token
from windlass.cli.commands.top import top
from windlass.cli.commands.worker import worker
from windlass.cli.commands.workers import workers
from windlass.cli.support.group import SuggestingGroup, explain
from windlass.cli.support.output import FAILED, exit_code_for, say
from windlass.core import DISTRIBUTION
from windlass.errors import WindlassError
from windlass.settings import mask_urls


@click.group(
    cls=SuggestingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage or import, 3 engine unavailable.",
)
@click.version_option(package_name=DISTRIBUTION, message="windlass %(version)s")
def windlass() -> None:
    """A task queue: enqueue calls, run them later, lose none.

    \b
    windlass demo
    windlass worker shop.tasks:app
    windlass status --app shop.tasks:app
    """


for command in (
    *(demo, worker, serve, dashboard, enqueue, status, tasks, workers, top, health),
    *(
        job,
        dead,
        queue,
        task,
        schedule,
        operation,
        alerts,
        token,
        audit,
        config,
        check,
        copy,
        migrate,
        doctor,
        completion,
    ),
):
    windlass.add_command(command)


def run() -> None:
    """Run the console script."""
    sys.exit(exit_code_of(sys.argv[1:]))


def exit_code_of(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Print errors as messages."""
    try:
        _require_place()
        _refuse_broken_text(arguments)
        code = windlass.main(arguments, standalone_mode=False)
    except click.exceptions.Abort:
        say("Stopped; nothing more was done.")
        return FAILED
    except click.ClickException as error:
        say(mask_urls(_shown(error)))
        return error.exit_code
    except WindlassError as error:
        say(mask_urls("\n".join([f"Error: {error}", *getattr(error, "__notes__", ())])))
        return exit_code_for(error)
    return code if isinstance(code, int) else 0


def _shown(error: click.ClickException) -> str:
    """Return the error with the usage of its command, as click prints it."""
    text = StringIO()
    (explain(error) if isinstance(error, click.UsageError) else error).show(text)
    return text.getvalue().rstrip().expandtabs(4)


def _require_place() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise click.UsageError("The current folder was removed: go to another one.") from None


def _refuse_broken_text(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text in the encoding of the system: they cannot be stored."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"Expected arguments in UTF-8, found {argument!r}.") from None

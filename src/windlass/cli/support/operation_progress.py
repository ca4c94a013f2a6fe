"""Do a bulk operation in this process, and show how far it is.

The operation is stored in the engine. If this process is killed, a `windlass serve` continues it,
and so does `windlass operation resume ID`. The first Ctrl-C pauses it.
"""

from __future__ import annotations

from typing import Final

import click

from windlass.app import Windlass
from windlass.cli.support.audit_trail import actor, note
from windlass.cli.support.bulk import showing, stopping
from windlass.cli.support.output import report, say
from windlass.cli.support.wording import count, program
from windlass.operations.operations import Operation
from windlass.operations.runner import OperationRunner

#: How often the stored progress is read, in seconds.
LOOK_S: Final = 0.25

#: What an operation has done with a number of jobs.
_VERBS: Final = {
    "dead.retry": "retried",
    "dead.discard": "discarded",
    "jobs.cancel": "cancelled",
    "queue.purge": "removed",
}


def follow(app: Windlass, operation: Operation) -> Operation:
    """Do an operation until it ends or pauses, unless another process does it."""
    seen = 0
    with (
        stopping() as stop,
        showing(f"Operation {operation.action}", operation.total) as show,
        OperationRunner(app, only=operation.id),
    ):
        while operation.is_running:
            is_stopped = stop.wait(LOOK_S)
            operation = app.operations.get(operation.id)
            note(operation=operation.id, done=operation.done, refused=operation.refused)
            show(_seen(operation) - seen)
            seen = _seen(operation)
            if is_stopped:
                app.operations.pause(operation.id, actor=actor())
                break
    # The runner has ended, so that the counts are exact.
    return app.operations.get(operation.id)


def conclude(operation: Operation, as_json: bool) -> None:
    """Tell what an operation did. One that did not finish is an error."""
    verb = _VERBS[operation.action]
    facts = {
        verb: operation.done,
        "refused": operation.refused,
        "failed": operation.failed,
        "operation": operation.id,
        "state": operation.state,
        "reason": operation.reason or operation.error,
    }
    report(facts, f"{count(operation.done, 'job')} {verb}.", as_json)
    if operation.refused:
        say(f"{count(operation.refused, 'job')} not changed: no longer as found, or key taken.")
    if operation.failed:
        say(f"{count(operation.failed, 'job')} not changed: unreadable.")
    if operation.is_paused:
        raise click.ClickException(
            f"Paused: {operation.reason}. `{program()} operation resume {operation.id}` continues, "
            f"and `{program()} operation stop {operation.id}` ends the operation."
        )
    if operation.state != "finished":
        why = f": {operation.error}" if operation.error else ""
        raise click.ClickException(f"The operation {operation.id} has {operation.state}{why}.")


def _seen(operation: Operation) -> int:
    return operation.done + operation.refused + operation.failed

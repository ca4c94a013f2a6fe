"""`windlass operation`: list, show, pause, resume and stop bulk operations."""

from __future__ import annotations

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from windlass import Operation, Windlass
from windlass.cli.support.audit_trail import actor


@pytest.fixture
def started(app: Windlass, hand: Hand) -> Operation:
    """A retry of two dead jobs, which no runner does."""
    for number in range(2):
        app.tasks["tasks.add"].enqueue(number)
        hand.bury(ValueError("no"))
    return app.operations.start("dead.retry", actor="token:ann", everything=True, rate="20/s")


def test_operations_are_listed_and_shown(
    type_here: Typing, shell: Shell, app: Windlass, started: Operation
) -> None:
    head, row = type_here("operation", "list", "--url", shell.url).out.splitlines()
    assert head.split() == ["id", "action", "state", "done", "of", "rate", "by", "started", "jobs"]
    assert row.split()[:7] == [started.id, "dead.retry", "running", "0", "2", "20/s", "token:ann"]
    shown = type_here("operation", "show", started.id, "--url", shell.url).out
    assert "done         0 of 2" in shown
    assert "stops after  10 failures among the last 100 jobs" in shown
    described = type_here("operation", "show", started.id, "--json", "--url", shell.url).json
    assert (described["id"], described["total"]) == (started.id, 2)
    [listed] = type_here("operation", "list", "--json", "--url", shell.url).json
    assert listed == described


def test_an_operation_is_paused_resumed_and_done_here(
    type_here: Typing, shell: Shell, app: Windlass, started: Operation
) -> None:
    ran = type_here("operation", "pause", started.id, "--url", shell.url)
    assert (ran.code, ran.out) == (0, f"The operation {started.id} is paused: 0 done.\n")
    assert app.operations.get(started.id).reason == f"paused by {actor()}"
    ran = type_here("operation", "resume", started.id, "--url", shell.url)
    assert (ran.code, ran.out) == (0, "2 jobs retried.\n")
    assert app.operations.get(started.id).state == "finished"
    actions = [(one.action, one.subject) for one in app.audit.list()]
    assert ("operation.pause", started.id) in actions
    assert ("operation.resume", started.id) in actions


def test_an_operation_is_stopped_and_not_resumed(
    type_here: Typing, shell: Shell, started: Operation
) -> None:
    ran = type_here("operation", "stop", started.id, "--url", shell.url)
    assert (ran.code, ran.out) == (0, f"The operation {started.id} is stopped: 0 done.\n")
    ran = type_here("operation", "resume", started.id, "--url", shell.url)
    assert (ran.code, "only a paused one can be resumed" in ran.err) == (1, True)


def test_an_unknown_operation_is_told(type_here: Typing, shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    for verb in ("show", "pause", "resume", "stop"):
        ran = type_here("operation", verb, "nothing", "--url", shell.url)
        assert (ran.code, "no operation nothing in" in ran.err) == (1, True)
    assert "No bulk operations." in type_here("operation", "list", "--url", shell.url).err

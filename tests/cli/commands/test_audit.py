"""`windlass audit`, and the entries that other commands add."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell, all_commands
from windlass import AuditRecord, EngineError, EngineUnavailable, Every, Windlass
from windlass.audit_log import AuditLog
from windlass.cli.support.audit_trail import CHANGES, actor

APP = ("--app", "tasks:app")
#: Commands that change nothing, or only what their jobs and workers record themselves.
READING = {
    *("audit", "completion", "config", "dashboard", "demo", "doctor", "enqueue", "health", "serve"),
    *("status", "tasks", "top", "worker"),
    *("alerts list", "alerts test"),
    *("dead list", "dead show", "job list", "job show", "job why", "queue list"),
    *("operation list", "operation show"),
    *("schedule list", "schedule next", "token list"),
}


def test_every_command_that_changes_something_is_known() -> None:
    paths = {path.removeprefix("windlass ") for path in all_commands() if path != "windlass"}
    groups = {path.rpartition(" ")[0] for path in paths} - {""}
    assert paths - groups == READING | set(CHANGES)
    for path, change in CHANGES.items():
        names = {parameter.name for parameter in all_commands()[f"windlass {path}"].params}
        assert {change.subject, change.only_with} - {""} <= names, path


def entries(app: Windlass) -> list[tuple[str, str, str]]:
    return [(one.action, one.subject, one.outcome) for one in reversed(app.audit.list())]


def last(app: Windlass) -> AuditRecord:
    return app.audit.list(limit=1)[0]


def test_the_actor_is_the_user_at_the_host(type_here: Typing, app: Windlass) -> None:
    app.engine.migrate()
    type_here("queue", "pause", "mail", "--yes", *APP)
    assert last(app).actor == actor() == f"cli:{getpass.getuser()}@{socket.gethostname()}"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert actor() == f"cli:uid-4000000@{socket.gethostname()}"


def test_queues_tasks_and_schedules(type_here: Typing, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    app.schedules.save("jobs.nightly", app.tasks["tasks.add"].bind(1), Every("1h"))
    for arguments in (
        ("queue", "pause", "default"),
        ("queue", "resume", "default"),
        ("queue", "set", "default", "--max-waiting", "off"),
        ("task", "pause", "add"),
        ("task", "resume", "add"),
        ("schedule", "pause", "nightly"),
        ("schedule", "resume", "nightly"),
        ("schedule", "run", "nightly"),
        ("schedule", "remove", "nightly", "--yes"),
        ("queue", "purge", "default", "--yes"),
    ):
        ran = type_here(*arguments, *APP)
        assert ran.code == 0, ran.err
        assert "audit" not in ran.err
    assert entries(app) == [
        ("queue.pause", "default", "ok"),
        ("queue.resume", "default", "ok"),
        ("queue.set", "default", "ok"),
        ("task.pause", "tasks.add", "ok"),
        ("task.resume", "tasks.add", "ok"),
        ("schedule.pause", "jobs.nightly", "ok"),
        ("schedule.resume", "jobs.nightly", "ok"),
        ("schedule.run", "jobs.nightly", "ok"),
        ("schedule.remove", "jobs.nightly", "ok"),
        ("queue.purge", "default", "ok"),
    ]
    assert last(app).details == {"done": 2}
    assert app.audit.list()[7].details == {"max_waiting": 0}


def test_jobs(type_here: Typing, app: Windlass, hand: Hand) -> None:
    ids = [app.tasks["tasks.add"].using(run_after="1h").enqueue(number).id for number in range(3)]
    type_here("job", "edit", ids[0], "--args", '["hunter2"]', "--unchecked", *APP)
    edited = last(app)
    assert (edited.action, edited.subject) == ("job.edit", ids[0])
    assert edited.details == {"args": "replaced", "unchecked": True}
    type_here("job", "move", *ids, "--queue", "bulk", "--yes", *APP)
    moved = last(app)
    assert (moved.action, moved.subject) == ("job.move", "3 jobs")
    assert moved.details == {"ids": ids, "to": "bulk", "done": 3, "refused": 0}
    type_here("job", "run-now", "--task", "tasks.add", "--state", "scheduled", *APP)
    started = last(app)
    assert (started.action, started.subject) == ("job.run-now", "")
    assert started.details == {
        "task": "tasks.add",
        "state": "scheduled",
        "done": 3,
        "refused": 0,
    }
    type_here("job", "cancel", ids[0], *APP)
    assert entries(app)[-1] == ("job.cancel", ids[0], "ok")
    type_here("job", "retry", ids[0], *APP)
    assert entries(app)[-1] == ("job.retry", ids[0], "ok")
    assert type_here("job", "retry", ids[0], *APP).code == 1
    assert entries(app)[-1] == ("job.retry", ids[0], "refused")
    assert last(app).details == {"done": 0, "refused": 1}


def test_dead_jobs(shell: Shell, type_here: Typing, app: Windlass, hand: Hand) -> None:
    for number in range(4):
        app.tasks["tasks.add"].enqueue(number)
        hand.bury(ValueError("no"))
    type_here("dead", "retry", "--all", "--dry-run", *APP)
    shell.type_with_app("dead", "discard", "--all", answer="n\n")
    assert entries(app) == []
    [first, *_] = [letter.id for letter in app.dead.list()]
    type_here("dead", "retry", first, *APP)
    type_here("dead", "retry", "--task", "add", "--newer-than", "1h", *APP)
    type_here("dead", "discard", "--all", "--yes", *APP)
    assert entries(app) == [
        ("dead.retry", first, "ok"),
        ("dead.retry", "", "ok"),
        ("dead.discard", "", "ok"),
    ]
    details = [one.details for one in app.audit.list()]
    assert details == [
        {"everything": True},
        {"task": "add", "newer_than": "1h", "done": 3, "refused": 0},
        {"done": 1, "refused": 0},
    ]


def test_tokens(type_here: Typing, app: Windlass) -> None:
    ran = type_here("token", "create", "shop", "--role", "producer", "--expires", "30d", *APP)
    assert entries(app) == [("token.create", "shop", "ok")]
    assert last(app).details == {"role": "producer", "expires": "30d"}
    type_here("token", "revoke", "shop", *APP)
    assert entries(app)[-1] == ("token.revoke", "shop", "ok")
    assert ran.out.strip() not in str(app.audit.list())


def test_repairs(type_here: Typing, app: Windlass) -> None:
    app.engine.migrate()
    type_here("check", *APP)
    type_here("check", "--repair", "--dry-run", *APP)
    assert entries(app) == []
    type_here("check", "--repair", "--yes", *APP)
    assert entries(app) == [("check", "", "ok")]


def test_what_fails_before_a_change_leaves_no_entry(type_here: Typing, app: Windlass) -> None:
    app.engine.migrate()
    for arguments in (
        ("queue", "pause", "nothing"),
        ("task", "pause", "nothing"),
        ("schedule", "pause", "nothing"),
        ("dead", "retry", "01m7gk6tx900smjc57av0rnpgb"),
        ("token", "revoke", "nothing"),
    ):
        assert type_here(*arguments, *APP).code == 1
    assert entries(app) == []


def test_what_fails_halfway_is_recorded(
    type_here: Typing, app: Windlass, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.engine.sqlite.engine import SQLiteEngine

    for number in range(3):
        app.tasks["tasks.add"].enqueue(number)
        hand.bury(ValueError("no"))
    real, calls = SQLiteEngine.revive, iter(range(9))

    def failing(self: SQLiteEngine, revivals: Any) -> Any:
        if next(calls):
            raise EngineError("out of luck")
        return real(self, revivals)

    monkeypatch.setattr(SQLiteEngine, "revive", failing)
    assert type_here("dead", "retry", "--all", "--rate", "20/s", *APP).code == 1
    own, ended = app.audit.list()
    assert (own.action, own.outcome, ended.action) == ("dead.retry", "failed", "operation.failed")
    assert own.details["done"] == 1
    assert "out of luck" in own.details["error"]


def test_a_change_stays_if_its_entry_fails(
    type_here: Typing, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.tasks["tasks.add"].enqueue(1)

    def failing(self: AuditLog, **fields: object) -> str:
        raise EngineUnavailable("The engine did not answer.")

    monkeypatch.setattr(AuditLog, "add", failing)
    ran = type_here("queue", "pause", "default", *APP)
    assert (ran.code, ran.out) == (0, "The queue default is paused.\n")
    assert ran.err == "The change is not in the audit trail: The engine did not answer.\n"
    assert app.queue("default").info().paused


# ------------------------------------------------------------------------------------ the command


def test_the_trail_is_shown(shell: Shell, app: Windlass) -> None:
    app.audit.add(actor="token:deploy", action="job.cancel", subject="x", details={"password": "p"})
    app.audit.add(actor="cli:ann@host", action="queue.pause", subject="mail", outcome="failed")
    ran = shell.type("audit", "--url", shell.url)
    assert ran.code == 0
    head, first, second = ran.out.splitlines()
    assert head.split() == ["at", "actor", "action", "subject", "outcome", "details"]
    assert first.split()[-4:] == ["cli:ann@host", "queue.pause", "mail", "failed"]
    assert second.endswith('token:deploy  job.cancel   x        ok       {"password":"[redacted]"}')
    [shown] = shell.type("audit", "--limit", "1", "--json", "--url", shell.url).json
    assert shown["actor"] == "cli:ann@host"
    assert set(shown) == set(AuditRecord.__struct_fields__)
    few = shell.type("audit", "--limit", "1", "--url", shell.url)
    assert "There are more than this one" in few.err


def test_changes_are_chosen(type_here: Typing, app: Windlass) -> None:
    app.audit.add(actor="token:deploy", action="a")
    app.engine.clock_offset_ms -= 7_200_000
    app.audit.add(actor="cli:ann@host", action="b")
    found = type_here("audit", "--actor", "cli:*", "--json", *APP).json
    assert [one["action"] for one in found] == ["b"]
    found = type_here("audit", "--since", "1h", "--json", *APP).json
    assert [one["action"] for one in found] == ["a"]
    assert type_here("audit", "--actor", "nothing", *APP).err == "No changes.\n"
    assert type_here("audit", "--since", "soon", *APP).code == 2

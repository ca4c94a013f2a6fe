"""Read-only commands: `status` and `check`, and that none of them creates a database."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from tests.engine.conftest import hold_the_lock
from windlass import FailureText, Windlass
from windlass.cli.root import exit_code_of
from windlass.cli.support import holds
from windlass.engine.contract import Unroutable

JOB = "01m7gk6tx900smjc57av0rnpgb"


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("check",),
        ("job", "show", JOB),
        ("job", "cancel", JOB),
        ("job", "retry", JOB),
        ("job", "edit", JOB, "--args", "[1]"),
        ("job", "run-now", JOB),
        ("job", "move", JOB, "--queue", "bulk"),
        ("dead", "list"),
        ("dead", "show", JOB),
        ("dead", "retry", "--all"),
        ("dead", "discard", "--all", "--yes"),
    ],
    ids=" ".join,
)
def test_no_database_is_made(
    shell: Shell, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, to save time."""
    assert exit_code_of([*command, "--url", shell.url]) == 1
    out, err = capsys.readouterr()
    assert f"There is no database {shell.database}, and none was created." in err
    assert out == ""
    assert [path.name for path in shell.folder.iterdir()] == ["tasks.py"]


def test_no_database_is_made_for_an_app(shell: Shell) -> None:
    ran = shell.type_with_app("status")
    assert ran.code == 1
    assert f"There is no database {shell.database}, and none was created." in ran.err
    assert not list(shell.folder.glob("jobs.db*"))


def test_a_folder_is_no_database(shell: Shell) -> None:
    ran = shell.type("status", "--url", f"sqlite:///{shell.folder}")
    assert ran.code == 1
    assert f"There is no database {shell.folder}" in ran.err


def test_the_database_that_nobody_named_is_used_if_it_is_there(shell: Shell) -> None:
    with Windlass(f"sqlite:///{shell.folder / 'windlass.db'}") as app:
        app.engine.migrate()
    ran = shell.type("status")
    assert ran.code == 0
    assert f"Engine: sqlite {shell.folder / 'windlass.db'}" in ran.err


# ------------------------------------------------------------------------------------------ status


def test_status_of_an_empty_database(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("status", "--url", shell.url)
    assert (ran.code, ran.out) == (0, "")
    hint = "No jobs; none was ever stored here: if there should be some, check the path in the url."
    assert hint in ran.err
    assert "Active sessions: none." in ran.err


def test_status_of_a_database_that_was_emptied(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    app.queue("default").purge()
    ran = shell.type("status", "--url", shell.url)
    assert "No jobs. Enqueue one" in ran.err


def test_status_counts(shell: Shell, app: Windlass, hand: Hand) -> None:
    app.tasks["tasks.add"].enqueue_many([(1,), (2,)])
    app.tasks["tasks.add"].using(queue="slow").enqueue(3)
    hand.take()
    ran = shell.type_with_app("status")
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["queue", "ready", "running", "next", "waits"]
    assert [row[:3] for row in rows[1:]] == [["default", "1", "1"], ["slow", "1", "0"]]
    assert "Active sessions: 1, holding 1 job.\n" in ran.err


@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "redis-4", "postgres"])
def test_status_says_why_jobs_are_held(tmp_path: Path, type_here: Typing, variant: str) -> None:
    """One line for each task, with the stored reason of its newest job."""
    url = fresh_url(variant, tmp_path)
    with Windlass(url) as app:
        jobs = [app.task_named(name).enqueue(1) for name in ("pay", "pay", "sing")]
        hand = Hand(app)
        claims = [hand.take() for _ in jobs]
        reasons = {
            "pay": "task pay has no code in the app of worker w",
            "sing": "too many arguments",
        }
        outcomes = [
            Unroutable(
                id=claim.id,
                token=claim.token,
                why=FailureText(message=reasons[claim.task]).pack(),
            )
            for claim in claims
        ]
        app.engine.finish(outcomes)
    told = type_here("status", "--url", url).err.splitlines()
    lines = {f"Held, of the task pay: 2 jobs. {job.id}: {reasons['pay']}." for job in jobs[:2]}
    assert len(lines.intersection(told)) == 1
    assert f"Held, of the task sing: 1 job. {jobs[2].id}: {reasons['sing']}." in told
    shown = type_here("job", "show", jobs[2].id, "--url", url).out
    assert "held      unroutable: too many arguments" in shown
    assert "started" not in shown, "it was claimed, and not started"


@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "postgres"])
def test_a_search_for_held_jobs_says_where_it_ends(
    tmp_path: Path, type_here: Typing, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    monkeypatch.setattr(holds, "LOOKED_AT", 2)
    url = fresh_url(variant, tmp_path)
    with Windlass(url) as app:
        hand = Hand(app)
        for number in range(3):
            assert ("first 2" in type_here("status", "--url", url).err) == (number == 2)
            app.task_named("pay").enqueue()
            claim = hand.take()
            app.engine.finish([Unroutable(id=claim.id, token=claim.token, why=b"{}")])
    assert "Only the first 2 held jobs were read.\n" in type_here("status", "--url", url).err
    assert "(only the first 2 held jobs were read)" in type_here("doctor", "--url", url).out


def test_status_as_json(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    ran = shell.type("status", "--json", "--url", shell.url)
    assert ran.json["engine"] == f"sqlite {shell.database}"
    assert ran.json["stats"]["queues"] == {"default": {"ready": 1}}
    assert ran.json["sessions"] == []


def test_a_session_whose_lease_is_over_is_not_at_work(
    shell: Shell, app: Windlass, hand: Hand
) -> None:
    app.tasks["tasks.add"].enqueue(1)
    hand.take()
    with apsw.Connection(str(shell.database)) as vandal:
        vandal.execute("UPDATE sessions SET expires_ms = expires_ms - 3600000")
    ran = shell.type("status", "--url", shell.url)
    assert "Active sessions: none.\n" in ran.err
    assert "Silent sessions: 1, holding 1 job." in ran.err


# ------------------------------------------------------------------------------------------- check


def test_check_of_a_sound_database(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    ran = shell.type("check", "--url", shell.url)
    assert (ran.code, ran.out) == (0, "")
    assert "records, indexes and counters agree" in ran.err
    assert shell.type("check", "--json", "--url", shell.url).json["problems"] == []


def test_check_of_a_damaged_database_fails(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    with apsw.Connection(str(shell.database)) as vandal:
        vandal.execute("UPDATE counters SET number = 7")
    ran = shell.type("check", "--url", shell.url)
    assert ran.code == 1
    assert "counts 7 jobs as ready" in ran.out
    assert ": 1 problem. Keep a copy" in ran.err
    ran = shell.type("check", "--json", "--url", shell.url)
    assert ran.code == 1
    assert len(ran.json["problems"]) == 1


# -------------------------------------------------------------------------------------- exit code 3


def test_an_engine_that_is_away_has_its_own_exit_code(shell: Shell, app: Windlass) -> None:
    job_id = app.tasks["tasks.add"].enqueue(1).id
    with hold_the_lock(shell.database):
        ran = shell.type("job", "cancel", job_id, "--url", shell.url)
    assert (ran.code, ran.out) == (3, "")
    assert "another process holds its lock" in ran.err
    assert "Traceback" not in ran.err


def test_another_program_that_holds_the_file_is_named(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    other = apsw.Connection(str(shell.database))
    other.execute("BEGIN IMMEDIATE")
    ran = shell.type_with_app("enqueue", "tasks.forget")
    other.close()
    assert (ran.code, ran.out) == (3, "")
    assert re.search(r"could not be used within \d\.\d s \(.*\): another program holds", ran.err)
    assert re.search("Job [0-9a-z]{26} was not stored. The call can be repeated", ran.err)

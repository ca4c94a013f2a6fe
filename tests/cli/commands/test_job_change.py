"""`windlass job edit`, `run-now` and `move`: change jobs that wait."""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from windlass import State, Windlass
from windlass.jobs import PAGE

UNKNOWN = "01m7gk6tx900smjc57av0rnpgb"
APP = ("--app", "tasks:app")


# -------------------------------------------------------------------------------------------- edit


@pytest.mark.parametrize(
    ("options", "call"),
    [
        (["--args", "[7]"], b'"args":[7]'),
        (["--kwargs", '{"b": 3}'], b'"args":[1],"kwargs":{"b":3}'),
        (["--kwargs", '{"a": 3}'], b'"kwargs":{"a":3}'),
        (["--args", "[]", "--kwargs", '{"a": 7}'], b'"kwargs":{"a":7}'),
    ],
)
def test_edit(
    app: Windlass, hand: Hand, type_here: Typing, options: list[str], call: bytes
) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    job.cancel()
    ran = type_here("job", "edit", job.id, *options, *APP)
    assert (ran.code, ran.out) == (0, f"Job {job.id} has new arguments; it is ready.\n")
    assert call in hand.take().payload


def test_edit_of_a_waiting_job_stays_in_its_history(app: Windlass, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].using(run_after="1h").enqueue(1)
    ran = type_here("job", "edit", job.id, "--args", "[7]", *APP)
    assert ran.out == f"Job {job.id} has new arguments; it is scheduled.\n"
    [shown] = type_here("job", "show", job.id, "--json", *APP).json
    assert shown["call"] == {"args": [7]}
    assert [entry["replaced"] for entry in shown["history"]] == ['{"args":[1]}']


def test_edit_as_json(app: Windlass, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    job.cancel()
    edited = type_here("job", "edit", job.id, "--args", "[7]", "--json", *APP).json
    assert (edited["id"], edited["state"]) == (job.id, "ready")


def test_edit_refuses_what_does_not_fit(app: Windlass, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    job.cancel()
    for options, message in (
        ([], "Expected new arguments: give --args, --kwargs or both."),
        (["--args", "7"], "--args expects a JSON array, found '7'"),
        (["--args", "[1, 2, 3]"], "do not fit: tasks.add(): too many positional arguments."),
        (["--args", '["x"]'], "The arguments do not fit: "),
    ):
        ran = type_here("job", "edit", job.id, *options, *APP)
        assert ran.code == 2
        assert message in ran.err
    assert job.info().state is State.CANCELLED


def test_edit_says_that_keyword_arguments_stay(app: Windlass, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    type_here("job", "edit", job.id, "--args", "[]", "--kwargs", '{"a": 1, "b": 2}', *APP)
    ran = type_here("job", "edit", job.id, "--args", "[7]", *APP)
    assert ran.code == 2
    assert "tasks.add(): multiple values for argument 'a'." in ran.err
    assert "The stored keyword arguments stay (a, b): give --kwargs too, '{}' for none." in ran.err
    assert type_here("job", "edit", job.id, "--args", "[7]", "--kwargs", "{}", *APP).code == 0


def test_edit_of_an_unknown_job(app: Windlass, type_here: Typing) -> None:
    app.engine.migrate()
    ran = type_here("job", "edit", UNKNOWN, "--args", "[1]", *APP)
    assert (ran.code, ran.out) == (1, "")
    assert UNKNOWN in ran.err
    assert type_here("job", "edit", "a b", "--args", "[1]", *APP).code == 2


def test_edit_of_a_running_job(app: Windlass, hand: Hand, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    hand.take()
    ran = type_here("job", "edit", job.id, "--args", "[7]", *APP)
    assert ran.code == 1
    assert f"Job {job.id} was not changed: it is running. Only jobs that are ready," in ran.err


def test_edit_of_an_unknown_task(
    app: Windlass, shell: Shell, hand: Hand, type_here: Typing
) -> None:
    job = app.task_named("tasks.ad").enqueue(1)
    job.cancel()
    refused = type_here("job", "edit", job.id, "--args", "[7]", *APP)
    assert refused.code == 2
    assert "the task tasks.ad is not known here. Did you mean tasks.add?" in refused.err
    without_app = type_here("job", "edit", job.id, "--args", "[7]", "--url", shell.url)
    assert without_app.code == 2
    assert type_here("job", "edit", job.id, "--args", "[7]", "--unchecked", *APP).code == 0
    assert b'"args":[7]' in hand.take().payload


def test_edit_knows_the_tasks_of_included_modules(app: Windlass, shell: Shell) -> None:
    main = 'from windlass import Windlass\napp = Windlass("sqlite:///jobs.db", include=["extra"])\n'
    extra = "from main import app\n@app.task(name='tasks.add')\ndef add(a: int): ...\n"
    (shell.folder / "main.py").write_text(main, encoding="utf-8")
    (shell.folder / "extra.py").write_text(extra, encoding="utf-8")
    job = app.tasks["tasks.add"].enqueue(1)
    job.cancel()
    ran = shell.type("job", "edit", job.id, "--args", '["x"]', "--app", "main:app")
    assert "The arguments do not fit" in ran.err
    assert shell.type("job", "edit", job.id, "--args", "[7]", "--app", "main:app").code == 0


# ----------------------------------------------------------------------------- starting and moving


@pytest.mark.parametrize("command", [("run-now",), ("move", "--queue", "bulk", "--yes")])
def test_each_id_gets_a_verdict(
    app: Windlass, shell: Shell, hand: Hand, type_here: Typing, command: tuple[str, ...]
) -> None:
    task = app.tasks["tasks.add"]
    running, later = task.enqueue(1), task.using(run_after="1h").enqueue(2)
    hand.take()
    ran = type_here("job", *command, later.id, "--url", shell.url)
    assert (ran.code, ran.err.count("was not changed")) == (0, 0)
    assert f"{later.id}  done" in ran.out
    some = (later.id, running.id, UNKNOWN, later.id)
    ran = type_here("job", *command, *some, "--json", "--url", shell.url)
    assert ran.code == 1
    assert ran.json == {later.id: "done", running.id: "refused", UNKNOWN: "unknown"}
    told = (
        f"Job {running.id} was not changed: it is running. Only jobs that are ready, scheduled or"
    )
    assert told in ran.err
    assert "Not changed: 2 of 3." in ran.err
    info = later.info()
    wanted = ("default", State.READY) if command == ("run-now",) else ("bulk", State.SCHEDULED)
    assert (info.queue, info.state) == wanted
    assert type_here("job", *command, "a b", "--url", shell.url).code == 2


@pytest.fixture(params=["sqlite-file", "redis", "redis-4", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


def fill(url: str, number: int) -> None:
    """Scheduled jobs, this many, and one of another task."""
    with Windlass(url) as app:
        later = app.task_named("tasks.add").using(run_after="1h")
        later.enqueue_many((n,) for n in range(number))
        app.task_named("tasks.other").using(run_after="1h").enqueue()


def check_change(type_here: Typing, url: str, number: int) -> None:
    fill(url, number)
    move = ("job", "move", "--task", "tasks.add", "--queue", "bulk", "--url", url)
    moved = type_here(*move, "--yes")
    assert (moved.code, moved.out) == (0, f"{number:,} jobs moved.\n")
    assert type_here(*move, "--json").json == {"moved": 0}
    start = ("job", "run-now", "--queue", "bulk", "--json", "--url", url)
    assert type_here(*start).json == {"started": number}
    assert type_here(*start).json == {"started": 0}
    with Windlass(url) as app:
        assert app.queue("bulk").info().jobs == {State.READY: number}
        assert app.queue("default").info().jobs == {State.SCHEDULED: 1}
        assert app.engine.check() == []


def test_all_that_match_are_changed(type_here: Typing, place: str) -> None:
    check_change(type_here, place, PAGE + 1)


@pytest.mark.slow  # the same with more jobs
def test_ten_thousand_are_changed(type_here: Typing, place: str) -> None:
    check_change(type_here, place, 10_000)


def test_states_are_chosen(app: Windlass, shell: Shell, hand: Hand, type_here: Typing) -> None:
    task = app.tasks["tasks.add"]
    retrying = task.enqueue(1)
    hand.fail(ValueError("no"), delay_ms=3_600_000)
    scheduled = task.using(run_after="1h").enqueue(2)
    ran = type_here("job", "run-now", "--state", "retrying", "--url", shell.url)
    assert ran.out == "1 job started.\n"
    assert (retrying.info().state, scheduled.info().state) == (State.READY, State.SCHEDULED)
    ran = type_here("job", "move", "--from", "other", "--queue", "default", "--url", shell.url)
    assert ran.out == "0 jobs moved.\n"


def test_a_choice_is_needed(app: Windlass, shell: Shell, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    for chosen in ([], [job.id, "--task", "tasks.add"]):
        for command in (["run-now"], ["move", "--queue", "default"]):
            ran = type_here("job", *command, *chosen, "--url", shell.url)
            assert ran.code == 2
            assert "exactly one of these two ways" in " ".join(ran.err.split())


def test_a_misspelt_queue_is_refused(app: Windlass, shell: Shell, type_here: Typing) -> None:
    job = app.tasks["tasks.add"].enqueue(1)
    ran = type_here("job", "move", job.id, "--queue", "defualt", "--url", shell.url)
    assert ran.code == 1
    assert "Unknown queue defualt" in ran.err
    assert "Did you mean default?" in ran.err
    assert job.info().queue == "default"


class Terminal(StringIO):
    """Standard input with an operator at it."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_asks(
    app: Windlass, shell: Shell, type_here: Typing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shell.url, 2)
    command = ("job", "run-now", "--task", "tasks.add", "--url", shell.url)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    ran = type_here(*command)
    assert ran.code == 1
    assert "Change 2 waiting jobs of sqlite" in ran.err
    assert "Nothing was started. Give --yes to skip the prompt." in ran.err
    assert app.queue("default").info().jobs == {State.SCHEDULED: 3}
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert type_here(*command).out == "2 jobs started.\n"


@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "postgres"])
def test_jobs_of_a_paused_task_do_not_start(
    tmp_path: Path, type_here: Typing, variant: str
) -> None:
    url = fresh_url(variant, tmp_path)
    with Windlass(url) as app:
        task = app.task_named("pay")
        jobs = [task.using(run_after="1h").enqueue(number) for number in range(2)]
        other = app.task_named("sing").using(run_after="1h").enqueue()
        task.pause()
        paused = "the task is paused, and `.* task resume pay` resumes it"
        told = type_here("job", "run-now", jobs[0].id, other.id, "--url", url)
        assert told.code == 0
        assert re.search(
            f"^Job {jobs[0].id} does not start yet: {paused}\\.$", told.err, re.MULTILINE
        )
        assert other.id not in told.err
        told = type_here("job", "run-now", "--task", "pay", "--url", url)
        assert told.out == "1 job started.\n"
        assert re.search(f"^None of them starts yet: {paused}\\.$", told.err, re.MULTILINE)
        assert Hand(app).take().id == other.id
        shown = type_here("job", "show", jobs[0].id, "--url", url).out
        assert re.search(f"^held +paused: {paused}$", shown, re.MULTILINE)
        [described] = type_here("job", "show", jobs[0].id, "--json", "--url", url).json
        assert re.fullmatch(paused, described["held_because"])
        task.resume()
        assert "starts yet" not in type_here("job", "run-now", "--task", "pay", "--url", url).err


def test_an_unknown_task_is_reported(app: Windlass, shell: Shell, type_here: Typing) -> None:
    """With an app: without one, no task is known."""
    app.tasks["tasks.add"].enqueue(1)
    asked = "Unknown task ad: the app does not declare it, and it has no jobs. "
    asked += "Did you mean tasks.add?\n"
    for command, code, said in (
        (("list",), 0, f"No such jobs. {asked}"),
        (("run-now",), 1, asked),
        (("move", "--queue", "default"), 1, asked),
    ):
        ran = type_here("job", *command, "--task", "ad", "--app", "tasks:app")
        assert (ran.code, ran.err.endswith(said)) == (code, True), ran.err
        ran = type_here("job", *command, "--task", "ad", "--url", shell.url)
        assert (ran.code, "Unknown" in ran.err) == (0, False)
    listed = ("job", "list", "--task", "add", "--state", "dead", "--app", "tasks:app")
    assert type_here(*listed).err == "No such jobs.\n"


@pytest.mark.parametrize(
    "command", [("run-now", "--queue"), ("move", "--queue", "default", "--from")], ids=" ".join
)
def test_an_unknown_queue_is_reported(
    app: Windlass, shell: Shell, type_here: Typing, command: tuple[str, ...]
) -> None:
    app.tasks["tasks.add"].enqueue(1)
    ran = type_here("job", *command, "defualt", "--url", shell.url)
    assert (ran.code, ran.out[:2]) == (1, "0 ")
    assert "Unknown queue defualt: it has no jobs" in ran.err
    assert "Did you mean default?" in ran.err
    known = type_here("job", *command, "mail", *APP)  # a task of the app uses it
    assert (known.code, known.err) == (0, "")

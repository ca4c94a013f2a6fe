"""`windlass job edit`: other arguments for a stored job."""

from __future__ import annotations

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from windlass import State, Windlass

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
    assert f"Job {job.id} was not changed: it is running. Only dead and cancelled jobs" in ran.err


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

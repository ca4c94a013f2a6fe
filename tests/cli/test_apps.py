"""Where the app is found: by an option, the environment or a pyproject.toml, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from tests.docs.transcript import Worker
from windlass import State, Windlass


@pytest.fixture
def project(shell: Shell) -> Path:
    """A pyproject.toml that names the app, and a folder below it."""
    text = '[tool.windlass]\napp = "tasks:app"\n'
    (shell.folder / "pyproject.toml").write_text(text, encoding="utf-8")
    below = shell.folder / "below" / "it"
    below.mkdir(parents=True)
    return below


def test_the_option_comes_before_the_environment(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    assert shell.type("status", "--app", "tasks:app", WINDLASS_APP="nothing:app").code == 0
    assert shell.type("status", WINDLASS_APP="tasks:app").code == 0


def test_the_environment_comes_before_pyproject(shell: Shell, project: Path) -> None:
    ran = shell.type("status", WINDLASS_APP="nothing:app")
    assert "There is no module nothing." in ran.err


def test_pyproject_is_found_from_below(shell: Shell, project: Path) -> None:
    shell.folder = project
    ran = shell.type("enqueue", "tasks.forget", "--url", shell.url)
    assert ran.code == 0, ran.err
    assert ran.out.strip() in shell.type("job", "show", ran.out.strip(), "--url", shell.url).out


def test_a_worker_finds_it_from_below(shell: Shell, project: Path) -> None:
    command = f"{SCRIPT} worker -p 1 --url {shell.url}"
    worker = Worker(command, project, shell.environment({}))
    worker.await_lines(2)
    lines = worker.take()
    worker.interrupt()
    assert f"ready: sqlite {shell.database}, 4 tasks" in lines


def test_the_module_is_the_same_command(shell: Shell) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "windlass", "--version"],
        cwd=shell.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == shell.type_afresh("--version").out


@pytest.mark.parametrize(
    "typed",
    [("queue", "list", "--url", "sqlite:///jobs.db"), ("queue",), ("tasks",), ()],
    ids=["a look", "no command", "no app", "nothing"],
)
def test_a_fork_says_what_a_fresh_process_says(
    shell: Shell, app: Windlass, typed: tuple[str, ...]
) -> None:
    """Check the fixtures that most tests of the command line use."""
    app.tasks["tasks.add"].enqueue(1)
    assert shell.type(*typed) == shell.type_afresh(*typed)


# ------------------------------------------------------------------------------ an app and a url


@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "postgres"])
def test_an_app_with_a_url_is_loaded(tmp_path: Path, type_here: Typing, variant: str) -> None:
    """`--url` replaces only the url of the app."""
    (tmp_path / "elsewhere").mkdir()
    url = fresh_url(variant, tmp_path / "elsewhere")
    both = ("--url", url, "--app", "tasks:app")
    with Windlass(url) as app:
        job = app.task_named("tasks.add").enqueue(1, 2)
        Hand(app).bury(ValueError("no"))
        assert job.id in type_here("job", "list", "--task", "add", *both).out
        ran = type_here("dead", "retry", job.id, "--args", "[3, 4]", *both)
        assert ran.code == 0, ran.err
        assert job.info().state is State.READY
        assert type_here("queue", "pause", "mail", *both).code == 0
        assert app.queue("mail").info().paused
    told = type_here("doctor", *both).out
    assert "tasks:app, 4 tasks" in told
    assert not (tmp_path / "jobs.db").exists()


def test_a_wrong_app_with_a_url_is_refused(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("status", "--url", shell.url, "--app", "no.such:app")
    assert ran.code == 2
    assert "There is no module no." in ran.err


def test_modules_of_an_app_with_a_url_are_included(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    text = "from windlass import Windlass\napp = Windlass(include=['no_such_module'])\n"
    (shell.folder / "lone.py").write_text(text, encoding="utf-8")
    ran = shell.type("job", "list", "--url", shell.url, "--app", "lone:app")
    assert ran.code == 2
    assert "The module no_such_module" in ran.err
    assert "This command works without the app as well: give --url URL and no --app." in ran.err


def test_a_url_alone_needs_no_app(shell: Shell, app: Windlass, project: Path) -> None:
    """Not even one that a pyproject.toml or the environment names: it may be broken."""
    app.engine.migrate()
    (shell.folder / "tasks.py").write_text("1 / 0", encoding="utf-8")
    assert shell.type("status", "--url", shell.url).code == 0
    assert shell.type("status", "--url", shell.url, WINDLASS_APP="tasks:app").code == 0
    assert "no --app was given" in shell.type("doctor", "--url", shell.url).out

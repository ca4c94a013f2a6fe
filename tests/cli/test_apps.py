"""Where the app is found: by an option, the environment or a pyproject.toml, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell
from tests.docs.transcript import Worker
from windlass import Windlass


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

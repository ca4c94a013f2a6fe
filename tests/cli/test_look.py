"""Rules for all commands: examples, colours on terminals only, exit codes, completion."""

from __future__ import annotations

import os
import subprocess

import click
import pytest

from tests.cli.conftest import Typing
from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell, all_commands
from tests.redis_server import free_port
from windlass import Windlass

COLOUR = "\x1b[3"
ALL = all_commands()
#: Commands that print instructions, or run until they are stopped, and print no data.
WITHOUT_DATA = {"demo", "worker", "serve", "dashboard", "completion", "schedule remove"}


@pytest.mark.parametrize("path", ALL)
def test_help_has_an_example(path: str) -> None:
    told = [line.strip() for line in (ALL[path].help or "").splitlines()]
    assert any(path in line and not line.endswith(".") for line in told if line.count("windlass"))


def test_whoever_prints_data_prints_it_as_json_too() -> None:
    for path, command in ALL.items():
        options = {name for parameter in command.params for name in parameter.opts}
        if not isinstance(command, click.Group):
            is_told = path.removeprefix("windlass ") in WITHOUT_DATA
            assert ("--json" in options) is not is_told, path


def test_exit_codes(shell: Shell, app: Windlass, type_here: Typing) -> None:
    app.engine.migrate()
    away = f"redis://127.0.0.1:{free_port()}/0"
    assert type_here("status", "--url", shell.url).code == 0
    assert type_here("job", "show", "nothing", "--url", shell.url).code == 1
    assert type_here("status", "--app", "nothing:app").code == 2
    assert type_here("status", "--url", away).code == 3


def test_colours_are_for_terminals(shell: Shell, app: Windlass, type_here: Typing) -> None:
    app.tasks["tasks.add"].enqueue(1)
    command = ("job", "list", "--url", shell.url)
    assert "\x1b" not in type_here(*command, TERM="xterm").out
    assert COLOUR in shell.type_on_terminal(*command, columns=200)
    assert COLOUR in type_here(*command, TERM="xterm", FORCE_COLOR="1").out
    plain = type_here(*command, TERM="xterm", FORCE_COLOR="1", NO_COLOR="1")
    assert COLOUR not in plain.out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(type_here: Typing, name: str) -> None:
    ran = type_here("completion", name)
    assert (ran.code, ran.err) == (0, "")
    assert f"_WINDLASS_COMPLETE={name}_complete" in ran.out


@pytest.mark.parametrize(
    ("typed", "answer"), [("windlass sta", "status"), ("windlass job list --sta", "--state")]
)
def test_bash_completes_by_it(shell: Shell, typed: str, answer: str) -> None:
    """As the script of a real bash asks."""
    asked = f"""
eval "$({SCRIPT} completion bash)"
COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_windlass_completion {SCRIPT}
echo "${{COMPREPLY[@]}}"
"""
    ran = subprocess.run(
        ["bash", "--norc", "-c", asked],
        cwd=shell.folder,
        env={**os.environ, **shell.environment({})},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [answer]


@pytest.mark.parametrize(
    ("command", "code", "question"),
    [
        (("queue", "pause", "defualt"), 1, "Did you mean default?"),
        (("job", "list", "--queue", "defualt"), 0, "Did you mean default?"),
        (("job", "list", "--task", "tasks.ad"), 0, "Did you mean tasks.add?"),
        (("dead", "list", "--task", "tasks.ad"), 0, "Did you mean tasks.add?"),
    ],
)
def test_names_that_nobody_knows(
    type_here: Typing, command: tuple[str, ...], code: int, question: str
) -> None:
    type_here("enqueue", "tasks.add", "--args", "[1]", WINDLASS_APP="tasks:app")
    ran = type_here(*command, WINDLASS_APP="tasks:app")
    assert ran.code == code
    assert question in ran.err

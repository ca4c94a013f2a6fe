"""Stored text cannot control the terminal: no colours, no markup, no forged lines."""

from __future__ import annotations

import json

import pytest

from tests.app.hand import Hand
from tests.cli.shell import Shell
from windlass import Windlass

#: Colours, a title, a C1 control, a reversal of the line, markup, and an emoji's name.
EVIL = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e[red]bold[/red] :boom:"
SHOWN = r"\x1b[31mred\x1b]0;title\x07\x9b2J\u202e[red]bold[/red] :boom:"


@pytest.fixture
def job_id(app: Windlass, hand: Hand) -> str:
    name = "tasks.[red]x[/red]\x9b:boom:"  # as far as a name of a task may go
    job_id = app.task(name=name)(do_nothing).enqueue(EVIL).id
    hand.bury(ValueError(f"{EVIL}\nstate  succeeded"))
    return job_id


def do_nothing(text: str) -> None:
    """For its name."""


def without_colours(sent: str) -> str:
    """What a terminal was sent, without the styles that the command line itself uses."""
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[31m"):
        sent = sent.replace(style, "")
    return sent


@pytest.mark.parametrize("command", ["list", "show"])
def test_on_a_terminal(shell: Shell, job_id: str, command: str) -> None:
    arguments = ["dead", command, *([job_id] if command == "show" else []), "--url", shell.url]
    sent = shell.type_on_terminal(*arguments, columns=400)
    plain = without_colours(sent)
    assert all(char.isprintable() or char == "\n" for char in plain)
    assert SHOWN in plain
    assert r"tasks.[red]x[/red]\x9b:boom:" in plain


def test_in_a_pipe(shell: Shell, job_id: str) -> None:
    ran = shell.type("job", "show", job_id, "--url", shell.url)
    assert all(char.isprintable() or char == "\n" for char in ran.out)
    assert SHOWN in ran.out
    assert not [line for line in ran.out.splitlines() if line.startswith("state  succeeded")]


def test_json_is_inert_and_true(shell: Shell, job_id: str) -> None:
    ran = shell.type("job", "show", job_id, "--json", "--url", shell.url)
    assert all(char.isprintable() or char == "\n" for char in ran.out)
    assert json.loads(ran.out)[0]["call"] == {"args": [EVIL]}


def test_discarding_is_one_line(shell: Shell, job_id: str) -> None:
    ran = shell.type("dead", "discard", "--all", "--yes", "--url", shell.url)
    assert len(ran.out.splitlines()) == 2
    assert all(char.isprintable() or char == "\n" for char in ran.out)


def test_an_error_is_inert(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    sent = shell.type_on_terminal(
        "dead", "list", "--task", "\x1b[31m[red]", "--url", shell.url, columns=80
    )
    assert r"No dead jobs of the task \x1b[31m[red]." in sent
    sent = shell.type_on_terminal("enqueue", "t", "--queue", "\x1b[31m", columns=80)
    assert "\x1b" not in sent

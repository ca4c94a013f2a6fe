"""A shell in an empty folder, the app of its database, and a manual worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.app.hand import Hand
from tests.cli.shell import Ran, Shell
from windlass import Windlass
from windlass.cli.root import exit_code_of


class Typing(Protocol):
    def __call__(self, *arguments: str, **environment: str) -> Ran: ...


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def type_here(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typing:
    """`shell.type` in this process, which takes a tenth of the time: an exception here would be a
    traceback there."""

    def type_(*arguments: str, **environment: str) -> Ran:
        capsys.readouterr()
        with monkeypatch.context() as here:
            here.chdir(shell.folder)
            here.setattr(sys, "path", [*sys.path])
            for name, value in {"WINDLASS_ENQUEUE_TIMEOUT": "1s", **environment}.items():
                here.setenv(name, value)
            code = exit_code_of(arguments)
            sys.modules.pop("tasks", None)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return type_


@pytest.fixture
def app(shell: Shell) -> Iterator[Windlass]:
    """The same tasks in this process, on the same database, which the first use creates."""
    with Windlass(f"{shell.url}?durability=normal") as app:
        app.task(name="tasks.add")(add)
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)


def add(a: int, b: int = 2) -> int:
    return a + b

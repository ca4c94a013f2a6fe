"""A shell in an empty folder, the app whose database it uses, and a hand that plays the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.cli.shell import Shell
from windlass import Windlass


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def app(shell: Shell) -> Iterator[Windlass]:
    """The same tasks in this process, on the same database, which is made by its first use."""
    with Windlass(f"{shell.url}?durability=normal") as app:
        app.task(name="tasks.add")(add)
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)


def add(a: int, b: int = 2) -> int:
    return a + b

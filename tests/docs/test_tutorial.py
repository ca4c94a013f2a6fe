"""The tutorial does what it says, word for word: files, a worker that is killed, a Redis server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.transcript import Terminal
from tests.redis_server import private_server

TUTORIAL = DOCS / "tutorial.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    server = private_server()
    terminal = Terminal(tmp_path, {"localhost:6379": f"127.0.0.1:{server.port}"})
    yield terminal
    terminal.close()
    server.end()


@pytest.mark.slow
def test_the_tutorial_can_be_followed(terminal: Terminal) -> None:
    for block in blocks(TUTORIAL):
        terminal.follow(block)


def test_every_block_of_the_tutorial_is_run() -> None:
    kinds = {(block.language, bool(block.label)) for block in blocks(TUTORIAL)}
    assert kinds == {("console", False), ("console", True), ("python", True)}

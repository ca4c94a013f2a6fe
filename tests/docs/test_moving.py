"""The guide of moving between engines can be followed, and has the numbers of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, read
from tests.docs.transcript import Terminal, needs
from tests.redis_server import private_server
from windlass.engine_copy.jobs import LEAST_KEEP_MS, PAGE

GUIDE = DOCS / "guides" / "moving.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal in which the server of the page is a private one."""
    server = private_server()
    terminal = Terminal(tmp_path, {"localhost:6379": f"127.0.0.1:{server.port}"})
    yield terminal
    terminal.close()
    server.end()


@needs("redis-server")
def test_the_page_can_be_followed(terminal: Terminal) -> None:
    for block in blocks(GUIDE):
        terminal.follow(block)


def test_the_numbers_are_those_of_the_code() -> None:
    text = re.sub(r"\s+", " ", read(GUIDE))
    assert f"stored in the source after every {PAGE} jobs" in text
    assert LEAST_KEEP_MS == 24 * 60 * 60 * 1000
    assert "and for a day at least" in text

"""The guide of tracing can be followed, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.transcript import Terminal

PAGE = DOCS / "guides" / "tracing.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_the_page_can_be_followed(terminal: Terminal) -> None:
    commands = [block for block in blocks(PAGE) if block.language == "console"]
    assert commands, "the page has commands"
    for block in blocks(PAGE):
        terminal.follow(block)

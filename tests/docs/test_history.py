"""The guide about the history can be followed, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.transcript import Terminal

PAGE = DOCS / "guides" / "history.md"


@pytest.mark.slow
def test_the_page_can_be_followed(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    for block in blocks(PAGE):
        terminal.follow(block)

"""The quickstart does what it says, word for word, with a real worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PROJECT, blocks
from tests.docs.transcript import Terminal

QUICKSTART = DOCS / "quickstart.md"
README = PROJECT / "README.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("page", [QUICKSTART, README], ids=["quickstart", "readme"])
def test_the_page_can_be_followed(page: Path, terminal: Terminal) -> None:
    for block in blocks(page):
        terminal.follow(block)


def test_every_block_of_the_quickstart_is_run() -> None:
    """Except for the installation, which needs the network; a proof tests a fresh clone."""
    kinds = [(block.language, bool(block.label)) for block in blocks(QUICKSTART)]
    assert kinds.count(("sh", False)) == 1
    assert set(kinds) == {("sh", False), ("console", False), ("console", True), ("python", True)}


def test_a_page_that_is_wrong_is_found(terminal: Terminal) -> None:
    block = next(block for block in blocks(QUICKSTART) if "--version" in block.text)
    with pytest.raises(AssertionError, match=r"the page says"):
        terminal.follow(block._replace(text=block.text.replace("0.1", "9.9")))

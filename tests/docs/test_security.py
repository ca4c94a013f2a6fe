"""The guide about the security of the HTTP API can be followed, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.docs.transcript import Terminal
from tests.redis_server import free_port

PAGE = DOCS / "guides" / "security.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, {"8155": str(free_port())})
    yield terminal
    terminal.close()


def test_the_page_can_be_followed(terminal: Terminal) -> None:
    terminal.follow_page(PAGE)

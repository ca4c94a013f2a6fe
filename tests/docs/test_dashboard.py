"""The guide of the dashboard can be followed, word for word."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PROJECT, blocks, code_in, read, table_rows
from tests.docs.transcript import Terminal
from tests.redis_server import free_port

PAGE = DOCS / "guides" / "dashboard.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, {"8155": str(free_port()), "8200": str(free_port())})
    yield terminal
    terminal.close()


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("curl") is None and not os.environ.get("CI"), reason="not installed here: curl"
)
def test_the_page_can_be_followed(terminal: Terminal) -> None:
    for block in blocks(PAGE):
        # The page shows the default port; the test takes a free one.
        text = block.text.replace("serve tasks:app\n2026", "serve tasks:app --port 8155\n2026")
        terminal.follow(block._replace(text=text))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_the_statements_of_the_page_about_requests_exist(engine: str) -> None:
    folder = PROJECT / "src" / "windlass" / "engine" / engine / "sql"
    text = "\n".join(read(file) for file in folder.glob("*.sql"))
    names = set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    rows = list(table_rows(DOCS / "internals" / "dashboard.md"))
    told = {name for row in rows for name in code_in(row[2]) if "_" in name}
    indexes = {name for name in told if name.startswith("jobs_")}
    assert len(told) > len(indexes)
    assert told - indexes <= names

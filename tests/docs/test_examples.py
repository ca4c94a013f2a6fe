"""The programs in the guides run, and a strict type checker accepts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

from tests.docs.pages import DOCS, PROJECT, blocks, program

GUIDES = [page for page in sorted((DOCS / "guides").glob("*.md")) if program(page)]
README = PROJECT / "README.md"
QUICKSTART = DOCS / "quickstart.md"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_program_of_a_guide_runs(page: Path, tmp_path: Path) -> None:
    file = tmp_path / f"{page.stem}_guide.py"
    file.write_text(program(page), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", [*GUIDES, README, QUICKSTART], ids=lambda page: page.stem)
def test_examples_are_typed(page: Path, tmp_path: Path) -> None:
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    text, _, code = api.run(["--strict", "--no-error-summary", *map(str, tmp_path.iterdir())])
    assert code == 0, text


def files_of(page: Path) -> dict[str, str]:
    """All files that a page defines."""
    files = {f"{page.stem.lower()}_page.py": program(page)}
    files |= {block.label: block.text for block in blocks(page) if block.language == "python"}
    return {name: text for name, text in files.items() if name and text}


def test_every_guide_with_code_is_run() -> None:
    stems = [page.stem for page in GUIDES]
    assert stems == [
        *("alerts", "async", "dead", "failures", "groups", "headers", "http", "once", "payloads"),
        *("queues", "schedules", "tasks", "testing", "timeouts", "tracing", "unique", "workers"),
    ]

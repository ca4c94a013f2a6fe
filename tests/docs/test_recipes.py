"""The recipes make a program that runs; they and the tutorial pass a strict type checker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

from tests.docs.pages import DOCS, blocks, program
from tests.docs.test_examples import files_of

RECIPES = DOCS / "recipes.md"
TUTORIAL = DOCS / "tutorial.md"


def test_the_program_of_the_recipes_runs(tmp_path: Path) -> None:
    (tmp_path / "recipes.py").write_text(program(RECIPES), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "recipes.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "20 of 20" in ran.stdout


@pytest.mark.parametrize("page", [RECIPES, TUTORIAL], ids=lambda page: page.stem)
def test_their_code_is_typed(page: Path, tmp_path: Path) -> None:
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    text, _, code = api.run(["--strict", "--no-error-summary", *map(str, tmp_path.iterdir())])
    assert code == 0, text


def test_every_python_block_of_the_recipes_is_run() -> None:
    kinds = {(block.language, block.label) for block in blocks(RECIPES)}
    assert kinds == {("python", ""), ("dockerfile", ""), ("sh", "")}

"""The contract suite in a third-party project, as the author of an engine uses it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from windlass.testing.contract import suite

GUIDE = DOCS / "guides" / "testing.md"
#: A third-party engine: the SQLite engine, in memory, under another name.
ENGINE = """
from windlass.engine.contract import EngineOptions
from windlass.engine.sqlite.engine import SQLiteEngine


class OurEngine(SQLiteEngine):
    def __init__(self, path: str, options: EngineOptions) -> None:
        super().__init__(None, options)
"""
#: The same with a mistake: it forgets that a key may belong to an earlier job.
FORGETFUL = """
    def put(self, jobs):
        from msgspec.structs import replace

        return super().put([replace(job, idempotency_key=None) for job in jobs])
"""


def run(folder: Path, engine: str, *options: str) -> str:
    """The suite in a project that has what the guide tells to write."""
    files = {block.label: block.text for block in blocks(GUIDE) if block.language == "py"}
    assert set(files) == {"tests/conftest.py", "tests/test_contract.py"}
    (folder / "tests").mkdir()
    for name, text in {**files, "our_engine.py": engine}.items():
        (folder / name).write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", *options],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_an_engine_that_keeps_the_contract_passes(tmp_path: Path) -> None:
    said = run(tmp_path, ENGINE, "-k", "idempotency or survives")
    assert re.search(r"^\d+ passed, 4 skipped, \d+ deselected", said, re.MULTILINE), said


def test_an_engine_that_does_not_is_found_out(tmp_path: Path) -> None:
    said = run(tmp_path, ENGINE + FORGETFUL, "-k", "idempotency")
    assert re.search(r"\d+ failed", said), said
    assert re.search(r"^E .*assert .* == ", said, re.MULTILINE), "asserts tell what they found"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_suite(tmp_path: Path) -> None:
    said = run(tmp_path, ENGINE)
    assert re.search(r"^\d{3,} passed, \d+ skipped", said, re.MULTILINE), said


def test_no_test_hides_another() -> None:
    names = [
        name
        for module in suite.MODULES
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and test.__module__ == module.__name__
    ]
    assert len(names) == len(set(names)) > 100
    assert set(suite.__all__) == {*names, "test_an_engine_does_what_the_model_does"}


def test_every_module_of_tests_is_in_the_suite() -> None:
    folder = Path(inspect.getfile(suite)).parent
    stems = {file.stem for file in folder.glob("test_*.py")}
    assert {module.__name__.rpartition(".")[2] for module in suite.MODULES} == stems
    ours = Path(__file__).parent.parent / "contract" / "suite"
    assert {file.stem for file in ours.glob("test_*.py")} == stems | {"test_machine"}

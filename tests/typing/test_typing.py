"""The public API is typed: checkers accept correct lines and refuse wrong ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from mypy import api

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
#: The lines at the head of wrong.py that keep it quiet elsewhere.
QUIET_LINES = 2
NAMES = ("ok.py", "wrong.py", "mistaken.py")

_MARK = re.compile(r"# expect: (?P<codes>[a-z, -]+)$")
_ERROR = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")

Codes = Mapping[int, set[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is right, what is wrong, and what is right but for its last line."""
    folder = tmp_path_factory.mktemp("typing")
    right, wrong = (HERE / "ok.py").read_text(), (HERE / "wrong.py").read_text().splitlines()
    assert all("ignore-errors" in line or "pyright:" in line for line in wrong[:QUIET_LINES])
    (folder / "wrong.py").write_text("\n".join(wrong[QUIET_LINES:]))
    (folder / "ok.py").write_text(right)
    mistake = "assert_type(resize('', [1]), list[int])  # expect: assert-type"
    (folder / "mistaken.py").write_text(f"{right}\n{mistake}\n")
    return folder


def expected(file: Path) -> Codes:
    marks = ((n, _MARK.search(line)) for n, line in enumerate(file.read_text().splitlines(), 1))
    return {line: set(mark["codes"].split(", ")) for line, mark in marks if mark}


@pytest.fixture(scope="module")
def found_by_mypy(folder: Path) -> dict[str, Codes]:
    config = str(PROJECT / "pyproject.toml")
    options = ["--config-file", config, "--no-pretty", "--no-error-summary"]
    found: dict[str, dict[int, set[str]]] = {name: {} for name in NAMES}
    for line in api.run([*options, *(str(folder / name) for name in NAMES)])[0].splitlines():
        if ": error: " in line:
            error = _ERROR.search(line)
            assert error is not None, line
            found[Path(error["file"]).name].setdefault(int(error["line"]), set()).add(error["code"])
    return dict(found)


@pytest.fixture(scope="module")
def found_by_pyright(folder: Path) -> dict[str, set[int]]:
    """The lines with errors."""
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *NAMES],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, set[int]] = {name: set() for name in NAMES}
    for problem in json.loads(ran.stdout)["generalDiagnostics"]:
        if problem["severity"] == "error":
            found[Path(problem["file"]).name].add(problem["range"]["start"]["line"] + 1)
    return found


def test_there_is_something_to_be_found(folder: Path) -> None:
    assert len(expected(folder / "wrong.py")) > 10
    assert len(expected(folder / "mistaken.py")) == 1
    assert expected(folder / "ok.py") == {}


@pytest.mark.parametrize("name", NAMES)
def test_mypy_refuses_what_is_wrong_and_nothing_else(
    folder: Path, found_by_mypy: dict[str, Codes], name: str
) -> None:
    assert found_by_mypy[name] == expected(folder / name)


@pytest.mark.parametrize("name", NAMES)
def test_pyright_refuses_what_is_wrong_and_nothing_else(
    folder: Path, found_by_pyright: dict[str, set[int]], name: str
) -> None:
    assert found_by_pyright[name] == set(expected(folder / name))

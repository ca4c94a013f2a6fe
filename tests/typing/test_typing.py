"""The face is typed: what is right is accepted and what is wrong is refused, line by line."""

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

_MARK = re.compile(r"# expect: (?P<codes>[a-z, -]+)$")
_ERROR = re.compile(r":(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")

Codes = Mapping[int, set[str]]


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    lines = (HERE / "wrong.py").read_text().splitlines()
    assert all("ignore-errors" in line or "pyright:" in line for line in lines[:QUIET_LINES])
    copy = tmp_path / "wrong.py"
    copy.write_text("\n".join(lines[QUIET_LINES:]))
    return copy


def expected(file: Path) -> Codes:
    marks = ((n, _MARK.search(line)) for n, line in enumerate(file.read_text().splitlines(), 1))
    return {line: set(mark["codes"].split(", ")) for line, mark in marks if mark}


def run_mypy(file: Path) -> Codes:
    config = str(PROJECT / "pyproject.toml")
    arguments = ["--config-file", config, "--no-pretty", "--no-error-summary", str(file)]
    found: dict[int, set[str]] = {}
    for line in api.run(arguments)[0].splitlines():
        if ": error: " in line:
            error = _ERROR.search(line)
            assert error is not None, line
            found.setdefault(int(error["line"]), set()).add(error["code"])
    return found


def run_pyright(file: Path) -> set[int]:
    """The lines with errors."""
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", file],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    problems = json.loads(ran.stdout)["generalDiagnostics"]
    errors = [problem for problem in problems if problem["severity"] == "error"]
    return {problem["range"]["start"]["line"] + 1 for problem in errors}


def test_mypy_refuses_what_is_wrong(wrong: Path) -> None:
    assert run_mypy(wrong) == expected(wrong) != {}


def test_mypy_accepts_what_is_right() -> None:
    assert run_mypy(HERE / "ok.py") == {}


def test_pyright_refuses_what_is_wrong(wrong: Path) -> None:
    assert run_pyright(wrong) == set(expected(wrong))


def test_pyright_accepts_what_is_right() -> None:
    assert run_pyright(HERE / "ok.py") == set()


def test_the_checkers_would_find_something(tmp_path: Path) -> None:
    file = tmp_path / "mistaken.py"
    file.write_text((HERE / "ok.py").read_text() + "\nassert_type(resize('', [1]), list[int])\n")
    last = len(file.read_text().splitlines())
    assert run_mypy(file) == {last: {"assert-type"}}
    assert run_pyright(file) == {last}

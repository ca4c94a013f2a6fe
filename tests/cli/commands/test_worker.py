"""The options of `windlass worker`, and errors at its start."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.forks import DEADLINE_S, SCRIPT
from tests.cli.shell import Shell
from windlass.cli.root import windlass
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor import supervisor


def options_of(monkeypatch: pytest.MonkeyPatch, *typed: str) -> WorkerOptions:
    """What the worker would be started with."""
    given: list[WorkerOptions] = []

    class Noting:
        def __init__(self, options: WorkerOptions) -> None:
            given.append(options)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(supervisor, "Supervisor", Noting)
    result = CliRunner().invoke(windlass, ["worker", "shop.tasks:app", *typed])
    assert result.exit_code == 0, result.output
    return given[0]


def test_the_limits_of_a_child_arrive_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ("--max-jobs", "500", "--max-age", "1h30m", "--max-memory", "512MB")
    options = options_of(monkeypatch, *typed)
    limits = (options.max_jobs, options.max_age_ms, options.max_memory)
    assert limits == (500, 90 * 60 * 1000, 512 * 10**6)


def test_there_are_none_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(monkeypatch)
    assert (options.max_jobs, options.max_age_ms, options.max_memory) == (None, None, None)


def test_a_file_of_the_app_that_is_no_python_is_shown_without_the_way_there(shell: Shell) -> None:
    (shell.folder / "tasks.py").write_text("def add(:\n    pass\n")
    ran = shell.type("worker", "tasks:app", "-p", "1")
    assert ran.code == 2
    assert "SyntaxError: invalid syntax" in ran.err
    assert re.findall(r'File "(.+?)", line', ran.err) == [str(shell.folder / "tasks.py")]


#: Ctrl-C comes while the libraries of the command line are imported.
INTERRUPTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("script", [[SCRIPT], [sys.executable, "-m", "windlass"]])
def test_ctrl_c_while_it_is_imported_ends_it_without_a_word(
    shell: Shell, script: list[str | Path]
) -> None:
    (shell.folder / "click.py").write_text(INTERRUPTED)
    with shell.start("worker", "tasks:app", script=script, PYTHONPATH=str(shell.folder)) as worker:
        out, err = worker.communicate(timeout=DEADLINE_S)
    assert (worker.returncode, out, err) == (130, "", "")

"""The options of `windlass worker`, and errors at its start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.forks import DEADLINE_S, SCRIPT
from tests.cli.shell import Shell
from windlass.cli.commands import worker as worker_command
from windlass.cli.root import windlass
from windlass.errors import SettingError
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


def test_the_number_of_children_is_fixed_or_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    ranged = options_of(monkeypatch, "--autoscale", "2..8")
    assert (ranged.processes, ranged.most_processes, ranged.most_children) == (2, 8, 8)
    fixed = options_of(monkeypatch, "-p", "3")
    assert (fixed.processes, fixed.most_processes, fixed.most_children) == (3, None, 3)
    assert options_of(monkeypatch, "--autoscale", "1..1").most_processes == 1


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("8..2", "8, the least number, is greater than 2, the greatest"),
        ("0..2", "expected at least 1 child, found 0"),
        ("2..101", "expected at most 100 children, found 101"),
        *(
            (value, "expected two whole numbers")
            for value in ("", "2", "2..", "..8", "2...8", "-1..3", "a..b", "\u00b2..8")
        ),
    ],
)
def test_what_is_no_range_is_refused(value: str, fault: str) -> None:
    result = CliRunner().invoke(windlass, ["worker", "shop.tasks:app", f"--autoscale={value}"])
    assert result.exit_code == 2
    assert f"{fault}: {value!r}. Write MIN..MAX, such as 2..8 for at least 2" in result.output


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (["-p", "4"], "Expected -p or --autoscale, found both: -p is a fixed number of children."),
        (["--burst"], "Expected --burst or --autoscale, found both: a burst runs a fixed number"),
    ],
)
def test_options_that_fix_the_number_are_refused_with_a_range(
    other: list[str], reason: str
) -> None:
    command = ["worker", "shop.tasks:app", "--autoscale", "2..8", *other]
    result = CliRunner().invoke(windlass, command)
    assert result.exit_code == 2
    assert reason in result.output


def test_a_worker_that_reloads_keeps_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    class Noting:
        def __init__(self, arguments: list[str], folders: list[Path]) -> None:
            given.append(arguments)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(worker_command, "Reloader", Noting)
    typed = ["worker", "shop.tasks:app", "--autoscale", "2..8", "--reload"]
    assert CliRunner().invoke(windlass, typed).exit_code == 0
    assert "--autoscale=2..8" in given[0]


@pytest.mark.parametrize(
    ("most", "burst", "found"),
    [(1, False, "at least processes=2"), (101, False, "at most 100"), (4, True, "burst=True")],
)
def test_options_that_contradict_each_other_are_refused(most: int, burst: bool, found: str) -> None:
    with pytest.raises(SettingError, match=found):
        WorkerOptions("shop.tasks:app", processes=2, most_processes=most, burst=burst)


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


# ---------------------------------------------------------------------------------------- metrics


def test_the_address_of_metrics_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(monkeypatch, "--metrics", ":9464").metrics == ":9464"
    assert options_of(monkeypatch).metrics is None


def test_a_worker_that_reloads_keeps_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    class NotingReloader:
        def __init__(self, arguments: list[str], _folders: list[Path]) -> None:
            given.append(arguments)

        def run(self) -> int:
            return 0

    monkeypatch.setattr("windlass.cli.commands.worker.Reloader", NotingReloader)
    typed = ["worker", "shop.tasks:app", "--reload", "--metrics", ":9464"]
    assert CliRunner().invoke(windlass, typed).exit_code == 0
    assert "--metrics=:9464" in given[0]


def test_what_is_no_address_is_refused() -> None:
    result = CliRunner().invoke(windlass, ["worker", "shop.tasks:app", "--metrics", "9464"])
    assert result.exit_code == 2
    assert "expected HOST:PORT such as 127.0.0.1:9464" in result.output


def test_without_its_library_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; import windlass_probe; "
        "sys.argv = ['windlass', 'worker', 'shop:app', '--metrics', ':0']; windlass_probe.command()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 2, ran.stderr
    assert "Metrics need the package prometheus_client" in ran.stderr
    assert "pip install 'windlass-queue[prometheus]'" in ran.stderr
    assert "Traceback" not in ran.stderr

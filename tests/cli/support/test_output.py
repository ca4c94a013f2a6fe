"""The output and the help texts that all commands share."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell
from tests.docs.test_command_line import ALL
from windlass import FailureText, State, Windlass
from windlass.cli.support.output import print_fields, print_json, print_table
from windlass.cli.support.wording import age, count, program, span


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0s"),
        (999, "999ms"),
        (1_000, "1s"),
        (8_906, "8s"),
        (59_999, "59s"),
        (61_500, "1m1s"),
        (3_600_000, "1h"),
        (3_719_000, "1h1m"),
        (86_400_000 + 7_200_000 + 60_000, "1d2h"),
    ],
)
def test_a_span_has_two_units_at_most(ms: int, words: str) -> None:
    assert span(ms) == words


def test_ages_look_back_and_ahead() -> None:
    now = datetime.now(UTC)
    assert age(now - timedelta(hours=2, minutes=3)) == "2h3m ago"
    assert age(now + timedelta(days=9, minutes=3)) == "in 9d"
    assert age(None) == ""


def test_numbers_and_nouns_agree() -> None:
    assert [count(number, "job") for number in (0, 1, 2, 1200)] == [
        "0 jobs",
        "1 job",
        "2 jobs",
        "1,200 jobs",
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FailureText("ValueError", "bang"), "ValueError: bang"),
        (FailureText("windlass.core.signals.Reject", "no"), "Reject: no"),
        (FailureText("shop.errors.Declined", ""), "shop.errors.Declined"),
        (FailureText("", "signal 9"), "signal 9"),
        (FailureText("ValueError", "one\ntwo"), "ValueError: one ..."),
    ],
)
def test_an_error_in_one_line(error: FailureText, words: str) -> None:
    assert str(error) == words


def test_the_program_is_named_as_it_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    monkeypatch.setenv("PATH", str(SCRIPT.parent))
    assert program() == "windlass"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert program() == str(SCRIPT)
    monkeypatch.chdir(SCRIPT.parent)
    assert program() == "./windlass"
    monkeypatch.chdir(SCRIPT.parent.parent)
    assert program() == "bin/windlass"
    monkeypatch.setattr(sys, "argv", ["/somewhere/windlass/__main__.py"])
    assert program() == f"bin/{Path(sys.executable).name} -m windlass"


# ------------------------------------------------------------------------------------------- tables


def test_a_table_in_a_pipe_is_as_wide_as_it_must_be(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", ">jobs", "error"], [("a" * 70, 1200, "b" * 70), ("c", 3, State.DEAD)])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == f"{'id':70}   jobs  error"
    assert first == f"{'a' * 70}  1,200  {'b' * 70}"
    assert second == f"{'c':70}      3  dead"


def test_a_row_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", "error"], [("a", "b\nid  error")])
    assert capsys.readouterr().out.splitlines() == ["id  error", r"a   b\nid  error"]


def test_fields_that_are_unknown_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("id", "x"), ("result", None), ("error", ""), ("lines", "a\nb"), ("none", 0)])
    assert capsys.readouterr().out.splitlines() == ["id     x", "lines  a", "       b", "none   0"]


def test_json_beyond_sixteen_bits(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(["ü\U0001f600", "\U000e0001"])  # a letter, a face, and an invisible tag
    assert capsys.readouterr().out == '[\n  "ü\U0001f600",\n  "\\udb40\\udc01"\n]\n'


# ------------------------------------------------------------------------------ pipes and terminals


def test_a_reader_that_has_seen_enough_is_told_nothing(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [SCRIPT, "status", "--url", shell.url],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert ran.stderr == f"Engine: sqlite {shell.database}\n"


def test_there_are_no_colours_in_a_pipe(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    assert "\x1b" not in shell.type("status", "--url", shell.url).out
    assert "\x1b[1m" in shell.type_on_terminal("status", "--url", shell.url, columns=80)


# --------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("path", ALL)
def test_help_is_for_people(path: str) -> None:
    command = ALL[path]
    text = command.get_help(click.Context(command, info_name=path))
    assert "RANGE" not in text
    assert "FUNC" not in text.upper().replace("FUNCTION", "")
    listed = command.get_short_help_str(limit=60)
    assert listed
    assert not listed.endswith("...")
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name

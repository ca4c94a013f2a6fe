"""A user's mistake gets a sentence and an exit code, no traceback, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.cli.conftest import Typing
from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell
from windlass.cli.root import exit_code_of

JOB = "01m7gk6tx900smjc57av0rnpgb"


class Mistake(NamedTuple):
    """What was typed, and words of the answer. "2" is wrong usage."""

    typed: tuple[str, ...]
    answer: str
    code: int = 2
    environment: Mapping[str, str] = MappingProxyType({})


APP = {"WINDLASS_APP": "tasks:app"}
NO_APP = "Expected an app, found none. Name it as module:attribute"
#: Found out before anything is imported or opened.
AT_ONCE = {
    "misspelt command": Mistake(("statsu",), "'statsu'. Did you mean status?"),
    "misspelt command in a group": Mistake(("dead", "lits"), "'lits'. Did you mean list?"),
    "misspelt option": Mistake(("status", "--jsno"), "--jsno'. Did you mean --json?"),
    "app without its option": Mistake(("tasks", "tasks:app"), "Write --app tasks:app."),
    "argument without its option": Mistake(
        ("enqueue", "mailer.send", "a@b", "3"), """Write --args '["a@b", 3]'."""
    ),
    "version as a command": Mistake(("version",), "Write `windlass --version`."),
    "choice without tabs": Mistake(("completion",), "\n    bash,\n    zsh,"),
    "number that is none": Mistake(
        ("job", "list", "--limit", "abc"), "'abc' is not a valid whole number"
    ),
    "other name for the app": Mistake(("worker", "-A", "tasks"), "Write --app MODULE:ATTR"),
    "other name before the command": Mistake(("-A", "tasks", "worker"), "Write --app MODULE:ATTR"),
    "option before the command": Mistake(
        ("--app", "tasks:app", "status"), "--app after the command."
    ),
    "option before its command": Mistake(("job", "--json", "list"), "--json after the command."),
    "other name for queues": Mistake(("worker", "tasks:app", "-Q", "mail"), "Write -q"),
    "other name for slots": Mistake(("worker", "tasks:app", "--concurrency", "4"), "Write -c"),
    "other name for logs": Mistake(("worker", "tasks:app", "-l", "info"), "Write --log-level"),
    "other name for schedules": Mistake(("beat",), "'beat'. Every worker runs schedules"),
    "other name for workers": Mistake(("inspect", "active"), "`windlass workers` shows"),
    "tasks are listed elsewhere": Mistake(("task", "list"), "'list'. `windlass tasks` lists tasks"),
    "other name for queues that are full": Mistake(("purge",), "`windlass queue purge` removes"),
    "other name for dead jobs": Mistake(("dead", "purge"), "`windlass dead discard` dead jobs."),
    "url of nothing": Mistake(("status", "--url", "jobs.db"), "such as 'sqlite:///jobs.db'"),
    "url of another engine": Mistake(("status", "--url", "mysql://x"), "begins with sqlite:///"),
    "url without its slashes": Mistake(("status", "--url", "sqlite://jobs.db"), "Three slashes"),
    "url that is none": Mistake(("status", "--url", "sqlite://[x"), "The url cannot be read"),
    "url with a wrong port": Mistake(
        ("status", "--url", "redis://localhost:notaport"), "a port that is no number"
    ),
    "url with an unknown option": Mistake(("check", "--url", "sqlite:///j.db?x=1"), "durability"),
    "url of a memory": Mistake(
        ("status", "--url", "sqlite:///:memory:"), "exist only in the process"
    ),
    "delay that is none": Mistake(("enqueue", "t", "--in", "5x"), "such as 90s, 10m or 1h30m"),
    "negative delay": Mistake(("enqueue", "t", "--in", "-5s"), "found '-5s'"),
    "delay without an end": Mistake(("enqueue", "t", "--in", "999999999d"), "at most 365000d"),
    "instant that is none": Mistake(("enqueue", "t", "--at", "noon"), "an ISO time such as"),
    "instant before all clocks": Mistake(
        ("enqueue", "t", "--at", "0001-01-01T00:00"), "a time with its offset"
    ),
    "two times": Mistake(
        ("enqueue", "t", "--in", "5s", "--at", "2030-01-01T00:00Z"), "--in or --at, not both"
    ),
    "queue with a space": Mistake(("enqueue", "t", "--queue", "a b"), "found 'a b'"),
    "priority beyond all others": Mistake(("enqueue", "t", "--priority", "101"), "-100<=x<=100"),
    "queue without a name": Mistake(("worker", "tasks:app", "-q", ""), "found ''"),
    "queue without weight": Mistake(("worker", "tasks:app", "-q", "a:0,b:1"), "found '0'"),
    "label that is none": Mistake(("worker", "tasks:app", "--label", "a+b"), "found 'a+b'"),
    "queue named twice": Mistake(("worker", "tasks:app", "-q", "a", "-q", "a"), "named twice"),
    "no processes": Mistake(("worker", "tasks:app", "-p", "0"), "x>=1"),
    "no jobs": Mistake(("worker", "tasks:app", "--max-jobs", "0"), "x>=1"),
    "no age": Mistake(("worker", "tasks:app", "--max-age", "0"), "max_age_ms, found 0"),
    "age that is none": Mistake(("worker", "tasks:app", "--max-age", "x"), "such as 90s"),
    "memory that is none": Mistake(
        ("worker", "tasks:app", "--max-memory", "much"), "a size such as 512MB"
    ),
    "less memory than there is": Mistake(
        ("worker", "tasks:app", "--max-memory", "15MB"), "at least 16 MB, found '15MB'"
    ),
    "no id": Mistake(("job", "show"), "Missing argument"),
    "id that is none": Mistake(("job", "cancel", "a b"), "an id must be 1 to 64 characters"),
    "no selection": Mistake(("dead", "retry"), "exactly one of these"),
    "two selections": Mistake(("dead", "discard", JOB, "--all"), "exactly one of these"),
    "limit of nothing": Mistake(("dead", "list", "--limit", "0"), "x>=1"),
    "no app": Mistake(("enqueue", "tasks.add"), NO_APP),
    "two apps": Mistake(("worker", "a:app", "--app", "b:app"), "Expected one app, found a:app"),
    "no attribute": Mistake(("status", "--app", "tasks"), "as module:attribute"),
    "relative module": Mistake(("status", "--app", ".tasks:app"), "as module:attribute"),
    "unknown module": Mistake(("status", "--app", "taks:app"), "There is no module taks."),
    "path for a module": Mistake(("status", "--app", "a/tasks.py:app"), "not shop/tasks.py"),
    "misspelt setting": Mistake(
        ("status",), "Did you mean WINDLASS_LEASE?", 2, {"WINDLASS_LAESE": "5s"}
    ),
    "impossible setting": Mistake(
        ("status", "--url", "sqlite:///x.db"), "WINDLASS_LEASE must be", 2, {"WINDLASS_LEASE": "?"}
    ),
    "no such database": Mistake(("job", "show", JOB, "--url", "sqlite:///jbos.db"), "jbos.db", 1),
    "no database at all": Mistake(("dead", "list"), "Neither an app nor a url was given", 1),
}
#: Found out later.
LATER = {
    "no command": Mistake((), "Usage: windlass"),
    "no command in a group": Mistake(("dead",), "Usage: windlass dead"),
    "no app for a worker": Mistake(("worker",), NO_APP),
    "unknown attribute": Mistake(("status", "--app", "tasks:ap"), "app: write tasks:app."),
    "attribute that is no app": Mistake(("status", "--app", "tasks:date"), "found type"),
    "worker of an unknown module": Mistake(("worker", "taks:app"), "There is no module taks."),
    "url of a memory to enqueue": Mistake(
        ("enqueue", "tasks.add", "--args", "[1]", "--url", "sqlite:///:memory:"),
        "exist only in the process",
        2,
        APP,
    ),
    "unknown task": Mistake(("enqueue", "tasks.ad"), "Did you mean tasks.add?", 2, APP),
    "unknown end of a task": Mistake(("enqueue", "rimend"), "Did you mean tasks.remind?", 2, APP),
    "missing argument": Mistake(
        ("enqueue", "tasks.add"), "tasks.add(): missing a required argument: 'a'.", 2, APP
    ),
    "unknown argument": Mistake(
        ("enqueue", "tasks.add", "--kwargs", '{"a": 1, "c": 2}'), "unexpected keyword", 2, APP
    ),
    "argument of a wrong type": Mistake(
        ("enqueue", "tasks.add", "--args", '["x"]'), "expected int, found str", 2, APP
    ),
    "argument that is no date": Mistake(
        ("enqueue", "tasks.remind", "--args", '["2030-13-01"]'), "tasks.remind(day=...)", 2, APP
    ),
    "arguments that are no JSON": Mistake(
        ("enqueue", "tasks.add", "--args", "[1"), "--args expects a JSON array", 2, APP
    ),
    "arguments that are no array": Mistake(
        ("enqueue", "tasks.add", "--args", "{}"), "--args expects a JSON array", 2, APP
    ),
    "named arguments that are no object": Mistake(
        ("enqueue", "tasks.add", "--kwargs", "[]"), "--kwargs expects a JSON object", 2, APP
    ),
    "arguments nested too deeply": Mistake(
        ("enqueue", "tasks.add", "--args", "[" * 300 + "]" * 300), "64 levels of nesting", 2, APP
    ),
    "arguments nested without an end": Mistake(
        ("enqueue", "tasks.add", "--args", "[" * 9000), "recursion depth exceeded", 2, APP
    ),
    "argument that is too large": Mistake(
        ("enqueue", "tasks.explode", "--args", '["0123456789"]'),
        "the limit is 9",
        2,
        {**APP, "WINDLASS_MAX_PAYLOAD": "9"},
    ),
    "instant without an offset": Mistake(
        ("enqueue", "t", "--at", "2030-01-31T08:00"),
        "For the clock of this machine write 2030-01-31T08:00:00+01:00.",
        2,
        {"TZ": "CET-1"},  # one hour east of Greenwich
    ),
}


@pytest.mark.parametrize("mistake", LATER.values(), ids=LATER.keys())
def test_a_mistake_is_answered_by_a_sentence(shell: Shell, mistake: Mistake) -> None:
    ran = shell.type(*mistake.typed, **mistake.environment)
    assert "Traceback" not in ran.err
    assert mistake.answer in ran.err
    assert (ran.code, ran.out) == (mistake.code, "")
    assert list(shell.folder.glob("*.db*")) == []


@pytest.mark.parametrize("mistake", AT_ONCE.values(), ids=AT_ONCE.keys())
def test_a_mistake_is_answered_before_anything_is_done(
    shell: Shell,
    mistake: Mistake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, to save time: what it raises here would be a traceback there."""
    monkeypatch.chdir(shell.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, value)
    code = exit_code_of(mistake.typed)
    out, err = capsys.readouterr()
    assert mistake.answer in err
    assert (code, out) == (mistake.code, "")
    assert list(shell.folder.glob("*.db*")) == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero (tasks.py, line 1)"),
        ("raise SystemExit(0)", "SystemExit: 0 (tasks.py, line 1)"),
        ("from windlass import Windlass\nWindlass(laese='5s')", "Did you mean lease?"),
    ],
    ids=["import", "syntax", "error", "exit", "setting"],
)
def test_an_app_that_cannot_be_imported_is_named(shell: Shell, text: str, answer: str) -> None:
    (shell.folder / "tasks.py").write_text(text, encoding="utf-8")
    ran = shell.type_with_app("status")
    assert ran.code == 2
    assert answer in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("imports", "typed", "answer"),
    [
        ("", "shop:app", "shop has no app. shop.app makes an app: write shop.app:app."),
        ("from shop import app", "shop:app", "found module. It holds the app app: write shop.app:"),
        ("", "shop", "found 'shop'. shop.app makes an app: write shop.app:app."),
        ("", "shop.app", "found 'shop.app'. It holds the app app: write shop.app:app."),
        ("raise SystemExit", "shop", "found 'shop'. Write the module as Python imports it"),
        ("", "shpo:app", "Did you mean shop? Looked in {folder} and on the path of Python."),
    ],
    ids=["not imported", "imported", "package", "module", "broken", "misspelt"],
)
def test_an_app_in_a_package_is_found(
    shell: Shell, type_here: Typing, imports: str, typed: str, answer: str
) -> None:
    make_package(shell, imports)
    ran = type_here("status", "--app", typed)
    forget_package()
    assert ran.code == 2
    assert answer.format(folder=shell.folder) in ran.err


def test_a_package_that_was_entered_is_left_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_package(shell, "")
    (shell.folder / "shop" / "inside.py").write_text("import shop.app", encoding="utf-8")
    monkeypatch.chdir(shell.folder / "shop")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert exit_code_of(["status", "--app", "inside:app"]) == 2
    assert "start from the folder above it, with the module shop.inside." in capsys.readouterr().err


def make_package(shell: Shell, imports: str) -> None:
    (shell.folder / "shop").mkdir()
    (shell.folder / "shop" / "__init__.py").write_text(imports, encoding="utf-8")
    text = "from windlass import Windlass\n\napp = Windlass()\n"
    (shell.folder / "shop" / "app.py").write_text(text, encoding="utf-8")


def forget_package() -> None:
    for name in ("shop", "shop.app"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[tool.windlass", "is not valid TOML"),
        ("[tool.windlass]\napp = 5", "$.tool.windlass.app"),
        ("[tool.windlass]\nap = 'tasks:app'", "Did you mean app?"),
        ("[tool.windlass]\nurl = 'sqlite:///jobs.db'", "unknown field `url`"),
        ("tool = 5", "$.tool"),
    ],
)
def test_a_wrong_pyproject_is_named(
    shell: Shell,
    text: str,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (shell.folder / "pyproject.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(shell.folder)
    assert exit_code_of(["status"]) == 2
    printed = capsys.readouterr().err
    assert str(shell.folder / "pyproject.toml") in printed
    assert answer in printed


def test_bytes_that_are_no_text_are_refused(shell: Shell) -> None:
    ran = subprocess.run(
        [os.fsencode(SCRIPT), b"dead", b"list", b"--task", b"\xff"],
        cwd=shell.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "Expected arguments in UTF-8" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_folder_that_was_removed_is_named(shell: Shell) -> None:
    gone = shell.folder / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {SCRIPT} status"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "The current folder was removed" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:hunter2@host/0",
        "redis://user:hunter2@host:port/0",
        "redis://user:hun/ter2@host/0",
        "redis://user:hunter2@host/0?no=such",
    ],
)
def test_no_password_is_shown(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert exit_code_of(["status", "--url", url]) in (1, 2)
    printed = capsys.readouterr()
    assert "Error: " in printed.err
    assert "ter2" not in printed.out + printed.err


def test_no_password_in_an_error_of_the_app_is_shown(shell: Shell) -> None:
    (shell.folder / "tasks.py").write_text("raise OSError('no redis://user:hunter2@host/0')")
    ran = shell.type_with_app("status")
    assert ran.code == 2
    assert "no redis://***@host/0" in ran.err


@pytest.mark.parametrize("typed", [("seat",), ("job", "cancel", JOB, "--reason", "late")])
def test_what_looks_only_a_little_like_another_name_is_not_asked_after(
    capsys: pytest.CaptureFixture[str], typed: tuple[str, ...]
) -> None:
    assert exit_code_of(typed) == 2
    assert "Did you mean" not in capsys.readouterr().err

"""A shell for tests: runs `windlass ...` in a folder and returns its output.

It runs the real console script in a separate process, so that exit codes and output are those of a
user. `type` avoids the imports (see `tests.cli.forks`), and `type_afresh` runs them;
`type_on_terminal` runs the command on a terminal.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple

import click

from tests.cli.forks import DEADLINE_S, SCRIPT, shared_forks
from windlass.cli.root import windlass

TASKS: Final = """
from datetime import date
from windlass import Retry, Windlass

app = Windlass("sqlite:///jobs.db?durability=normal")


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


@app.task(queue="mail")
def remind(day: date) -> str:
    return f"on {day:%A}"


@app.task(retry=Retry(max_attempts=1))
def explode(text: str) -> None:
    raise ValueError(text)


@app.task(result_ttl=0)
def forget() -> int:
    return 1
"""


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """A folder with the app `tasks:app` in it, and a prompt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "jobs.db"
        self.url = f"sqlite:///{self.database}"
        (folder / "tasks.py").write_text(TASKS, encoding="utf-8")

    def type(self, *arguments: str, answer: str = "", **environment: str) -> Ran:
        """Run `windlass` with these arguments, here, with `answer` on standard input."""
        with TemporaryFile("w+") as typed, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            typed.write(answer)
            typed.seek(0)
            streams = [typed.fileno(), out.fileno(), err.fileno()]
            environment = self.environment(environment)
            code = shared_forks().run(arguments, self.folder, environment, streams)
            out.seek(0)
            err.seek(0)
            return Ran(code, out.read(), err.read())

    def type_afresh(self, *arguments: str, **environment: str) -> Ran:
        """Run `windlass` in a new interpreter, through pipes."""
        ran = subprocess.run(
            [SCRIPT, *arguments],
            cwd=self.folder,
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def type_with_app(self, *arguments: str, answer: str = "") -> Ran:
        return self.type(*arguments, answer=answer, WINDLASS_APP="tasks:app")

    def start(
        self, *arguments: str, script: Sequence[str | Path] = (SCRIPT,), **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command that keeps running; the caller ends it.

        It handles Ctrl-C as at a shell, even if the tests run in the background and ignore it."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [*script, *arguments],
                cwd=self.folder,
                env=self.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def type_on_terminal(self, *arguments: str, columns: int) -> str:
        """The output on a terminal of this width, both streams together."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen(
            [SCRIPT, *arguments],
            cwd=self.folder,
            env=self.environment({"TERM": "xterm"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ):
            os.close(theirs)
            sent = _read_all(ours)
        os.close(ours)
        return sent.replace("\r\n", "\n")

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """The environment of the tests, without the size of their terminal."""
        ours = {**os.environ, "WINDLASS_ENQUEUE_TIMEOUT": "1s", **more}
        return {name: value for name, value in ours.items() if name not in ("COLUMNS", "LINES")}


def all_commands() -> dict[str, click.Command]:
    """Every command by what is typed, the groups included."""
    return dict(_commands(windlass, "windlass"))


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{path} {name}")


def _read_all(descriptor: int) -> str:
    sent = b""
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return sent.decode()
        if not chunk:
            return sent.decode()
        sent += chunk

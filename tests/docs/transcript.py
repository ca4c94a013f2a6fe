"""Follow a page in a separate folder: write its files, run its commands, compare their output.

Ids, times, process ids and the folder may differ. An id in the page stands for the one that the
real command printed, so that later commands can use it. In `kill -9 4711` the number is that of the
worker whose first line contains it.
"..." matches the rest of a line and, on a line of its own, any number of lines.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Condition, Thread
from typing import Final

import pytest

from tests.docs.pages import Block, blocks

#: The folder of the reader in the pages.
READER: Final = "/srv/shop"
#: Longer than any command needs; reached only if something is broken.
DEADLINE_S: Final = 60.0

_ID: Final = re.compile(r"\b01[0-9a-hjkmnp-tv-z]{24}\b")
#: Values that may differ between the page and the output, by kind.
_KINDS: Final = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}(?:[+-]\d\d:\d\d)?",  # a time
    r"\b[A-Za-z0-9-]+\.\d+\.[0-9a-f]{16}\b",  # a session
    r"\[\d+\]",  # a process
    r"\b(?:\d+(?:ms|[dhms]))+ ago\b",
    r"\b\d+ ?ms\b",
)
_KILL: Final = re.compile(r"kill -9 (\d+)")
_TOKEN: Final = re.compile("|".join([_ID.pattern, *_KINDS, r"\.\.\.", r"\s+"]))


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a page whose commands are not installed; never in continuous integration."""
    absent = [name for name in programs if shutil.which(name) is None]
    reason = f"not installed here: {', '.join(absent)}"
    return pytest.mark.skipif(bool(absent) and not os.environ.get("CI"), reason=reason)


class Terminal:
    """Runs the commands and the worker of a page."""

    def __init__(self, folder: Path, places: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._places = {READER: str(folder), **(places or {})}  # as in the page -> as they are
        self._ids: dict[str, str] = {}  # likewise
        self._processes: dict[str, str] = {}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # Wide enough for every table; a page shows them whole.
        self._environment = {**os.environ, "PATH": programs, "COLUMNS": "160"}
        self._worker: Worker | None = None

    def follow(self, block: Block) -> None:
        if block.language == "python" and block.label:
            (self._folder / block.label).write_text(block.text, encoding="utf-8")
        elif block.language == "console" and block.label == "worker":
            self._follow_worker(block.text)
        elif block.language == "console":
            for command, printed in _steps(block.text):
                self._type(command, printed)

    def follow_page(self, page: Path) -> None:
        """Follow all blocks of a page. The page shows the default port of `windlass serve`; a test
        takes a free one, by the place "8155"."""
        for block in blocks(page):
            text = block.text.replace("serve tasks:app\n2026", "serve tasks:app --port 8155\n2026")
            self.follow(block._replace(text=text))

    def close(self) -> None:
        if self._worker is not None:
            self._worker.interrupt()

    # ------------------------------------------------------------------------------- commands

    def _type(self, command: str, expected: str) -> None:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = self._real(value)
            return
        ran = subprocess.run(
            ["bash", "-c", self._real(command)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        self._compare(command, expected, ran.stdout)

    def _follow_worker(self, text: str) -> None:
        """`^C` stops the running worker; a command starts one and is followed by its output."""
        for command, expected in _steps(text):
            if command == "^C":
                assert self._worker is not None, "there is a worker to be stopped"
                self._worker.interrupt()
            else:
                self.close()  # of one that was killed, its end is noted
                self._worker = Worker(self._real(command), self._folder, self._environment)
                self._processes[expected.partition("[")[2].partition("]")[0]] = self._worker.pid
                self._worker.await_lines(len(expected.splitlines()))
                printed = self._worker.take()
                self._compare(command, _by_process(expected), _by_process(printed))
                continue
            self._compare(command, expected, self._worker.take())

    # ------------------------------------------------------------------------------ comparing

    def _real(self, text: str) -> str:
        """A command of the page with the ids, processes and places of this run."""
        text = _KILL.sub(lambda match: f"kill -9 {self._processes[match[1]]}", self._moved(text))
        return _ID.sub(lambda match: self._ids[match[0]], text)

    def _moved(self, text: str) -> str:
        for place, real in self._places.items():
            text = text.replace(place, real)
        return text

    def _compare(self, command: str, expected: str, printed: str) -> None:
        new: list[str] = []
        lines = [self._pattern(line, new) for line in expected.rstrip().splitlines()]
        match = re.fullmatch("".join(lines), f"{printed.strip()}\n" if lines else printed)
        assert match, f"$ {command}\nthe page says:\n{expected}\nprinted was:\n{printed}"
        self._ids.update(zip(new, match.groups(), strict=True))

    def _pattern(self, line: str, new: list[str]) -> str:
        if line == "...":
            return r"(?:.*\n)*?"
        parts, end = [], 0
        line = self._moved(line.rstrip())
        for token in _TOKEN.finditer(line):
            parts += [re.escape(line[end : token.start()]), self._token(token[0], new)]
            end = token.end()
        return "".join([*parts, re.escape(line[end:]), r"[ ]*\n"])

    def _token(self, text: str, new: list[str]) -> str:
        if _ID.fullmatch(text):
            if text in self._ids:
                return re.escape(self._ids[text])
            if text in new:
                return rf"\{new.index(text) + 1}"
            new.append(text)
            return f"({_ID.pattern})"
        if text == "...":
            return ".*"
        return next((kind for kind in _KINDS if re.fullmatch(kind, text)), r"[ ]+")


def _by_process(text: str) -> str:
    """The lines of the first process, then all others: two processes write in any order."""
    lines = text.splitlines(keepends=True)
    first = next((found[0] for line in lines if (found := re.search(r"\[\d+\]", line))), "")
    return "".join(sorted(lines, key=lambda line: "[" in line and first not in line))


class Worker:
    """A worker whose output lines are read as they arrive."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # so that all of it can be ended, whatever happened
        )
        self._lines: list[str] = []
        self._news = Condition()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> str:
        return str(self._process.pid)

    def await_lines(self, number: int) -> None:
        with self._news:
            enough = self._news.wait_for(lambda: len(self._lines) >= number, DEADLINE_S)
        assert enough, f"fewer than {number} lines: {self._lines}"

    def take(self) -> str:
        """The output since the last call."""
        with self._news:
            lines, self._lines = self._lines, []
        return "".join(lines)

    def interrupt(self) -> None:
        """Send Ctrl-C, and wait for the end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(DEADLINE_S)
            self._reader.join(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        self._process.stdout.close()


def _steps(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a transcript with its output; a backslash continues a command."""
    command, printed = "", ""
    for line in text.splitlines():
        if line.startswith("$ ") or line == "^C":
            if command:
                yield command, printed
            command, printed = line.removeprefix("$ "), ""
        elif command.endswith("\\"):
            command = f"{command[:-1]} {line.removeprefix('> ').strip()}"
        else:
            printed += f"{line}\n"
    if command:
        yield command, printed

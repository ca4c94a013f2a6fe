"""`windlass worker --reload`: restart a worker when a source file changes, for development.

The whole worker restarts, with its supervisor, so that changed settings apply too. Files are polled
twice a second: every .py below the current folder and the folder of the app, except in virtual
environments, caches and hidden folders. A worker that cannot start is restarted after the next
change.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from windlass.cli.support.output import say

#: The polling interval, in seconds.
LOOK_S: Final = 0.5
#: How long a replaced worker may take to end, in seconds. Its jobs have a shorter grace.
END_S: Final = 17.0
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Snapshot = Mapping[str, tuple[int, int]]


def snapshot(folders: Iterable[Path]) -> Snapshot:
    """Return the modification time and size of each source file."""
    return {path: stamp for folder in folders for path, stamp in _sources(folder)}


def _sources(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for place, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                try:
                    found = os.stat(path := os.path.join(place, name))
                except OSError:
                    continue  # an editor is replacing the file
                yield path, (found.st_mtime_ns, found.st_size)


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    paths = before.keys() | after.keys()
    return sorted(path for path in paths if before.get(path) != after.get(path))


class Reloader:
    """Restart `windlass` with these arguments after changes. `run` returns the last exit code."""

    def __init__(self, arguments: Sequence[str], folders: Sequence[Path]) -> None:
        self._command = [sys.executable, "-m", "windlass", *arguments]
        self._folders = folders
        self._is_stopping = False
        self._worker: subprocess.Popen[bytes] | None = None
        self._signalled: subprocess.Popen[bytes] | None = None  # the worker that got the signal

    def run(self) -> int:
        with _handling_signals(self._stop):
            while True:
                before = snapshot(self._folders)
                worker = self._worker = subprocess.Popen(self._command)
                change = self._watch(worker, before)
                code = self._replace(worker) if change else self._end(worker)
                if not change or self._is_stopping:
                    return code
                say(f"{_named(change)} changed: restarting.")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Forward the signal at once. A worker that also got it from the terminal ignores the
        duplicate. A late duplicate would count as a second signal, which aborts running jobs."""
        self._is_stopping = True
        if self._worker is not None:
            self._signalled = self._worker
            self._worker.send_signal(number)

    def _watch(self, worker: subprocess.Popen[bytes], before: Snapshot) -> list[str]:
        """Return changed files when there are some; none when the worker must end."""
        is_told = False
        while not self._is_stopping:
            code = _wait(worker, LOOK_S)
            if code == 0:
                return []
            if code is not None:
                if not is_told:
                    say("The worker failed to start; it is restarted after the next change.")
                is_told = True
                time.sleep(LOOK_S)
            if change := changed(before, snapshot(self._folders)):
                return change
        return []

    def _end(self, worker: subprocess.Popen[bytes]) -> int:
        """Wait for the end of the worker, without a time limit."""
        if self._signalled is not worker:
            worker.send_signal(signal.SIGTERM)
        return worker.wait()

    def _replace(self, worker: subprocess.Popen[bytes]) -> int:
        worker.send_signal(signal.SIGUSR1)
        if _wait(worker, END_S) is None:
            worker.kill()
        return worker.wait()


def _wait(worker: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return worker.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _handling_signals(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _named(change: Sequence[str]) -> str:
    first = os.path.relpath(change[0])
    return first if len(change) == 1 else f"{first} and {len(change) - 1} more"

"""Process trees: start them, measure their CPU time and memory, end them.

Every tree is registered until it has ended, so that an interrupted run leaves no processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import psutil

_LIVING: Final[set[ProcessTree]] = set()


class ProcessTree:
    """Started programs with all of their descendants."""

    def __init__(
        self,
        commands: Iterable[list[str]],
        variables: dict[str, str],
        folder: Path,
        log: IO[bytes] | int = subprocess.DEVNULL,
        user: int | None = None,
    ) -> None:
        self._roots: list[subprocess.Popen[bytes]] = []
        _LIVING.add(self)
        for command in commands:
            self._roots.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env={**os.environ, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    user=user,
                )
            )

    @property
    def is_running(self) -> bool:
        return all(root.poll() is None for root in self._roots)

    def members(self) -> list[psutil.Process]:
        return [member for root in self._roots for member in _family(root.pid)]

    def cpu_s(self) -> float:
        """CPU time of all members, and of their children that have ended."""
        return sum(_cpu_s(member) for member in self.members())

    def memory_bytes(self) -> int:
        """The proportional set size: shared pages are divided by the processes that share them."""
        return sum(int(member.memory_full_info().pss) for member in self.members())

    def kill(self) -> None:
        """SIGKILL all members at once."""
        members = self.members()
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        for root in self._roots:
            root.wait()
        psutil.wait_procs(members, timeout=10)
        _LIVING.discard(self)

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 20) -> None:
        """Ask the roots to end, then kill what is left."""
        for root in self._roots:
            if root.poll() is None:
                root.send_signal(number)
        deadline = time.monotonic() + timeout_s
        while any(root.poll() is None for root in self._roots) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill()


def kill_all() -> None:
    """End every tree that still lives."""
    for tree in list(_LIVING):
        tree.kill()


def _family(pid: int) -> Iterator[psutil.Process]:
    try:
        root = psutil.Process(pid)
        yield root
        yield from root.children(recursive=True)
    except psutil.NoSuchProcess:
        return


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)

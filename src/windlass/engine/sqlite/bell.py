"""The bell: wakes waiters in other processes the moment a job is committed.

Every waiter owns a datagram socket in the folder beside the database. While it waits, the socket's
name ends in `.idle`. Whoever commits n jobs renames up to n of them to `.busy` and sends each a
byte: the rename makes sure that two committers never spend their wake-ups on the same waiter.
A waiter first shows itself idle and then looks for work once more, so no wake-up is lost; and a
wait is never longer than the poll floor, so nothing depends on the bell but speed.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from windlass.engine.waiting import POLL_FLOOR_MS, OfThisProcess, await_readable, new_nudge

_LONGEST_SOCKET_PATH: Final = 100


class Bell:
    """The waiting and waking of one engine object. With no folder, within this object only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._inside = OfThisProcess(lambda: _Inside(folder))

    def wait(self, has_work: Callable[[], bool], timeout_ms: int) -> None:
        """Return when rung or nudged, when `has_work` says so at the start, or after a time."""
        inside = self._inside.get()
        inside.bind()
        inside.show("idle")
        try:
            if not has_work():
                inside.block(min(timeout_ms, POLL_FLOOR_MS))
        finally:
            inside.show("busy")

    def nudge(self) -> None:
        self._inside.get().nudge.give()

    def ring(self, waiters: int) -> None:
        """Wake up to so many waiters, in whatever process."""
        if waiters <= 0:
            return
        if self._folder is None:
            self.nudge()
            return
        inside = self._inside.get()
        for name in inside.idle_names():
            if waiters and inside.ring_one(name):
                waiters -= 1

    def close(self) -> None:
        self._inside.close()


class _Inside:
    """The sockets and the pipe of one bell in one process."""

    def __init__(self, folder: Path | None) -> None:
        self.nudge = new_nudge()
        self._folder = folder if hasattr(socket, "AF_UNIX") else None
        self._folder_fd: int | None = None  # opened when a path is too long for a socket
        self._bound: socket.socket | None = None  # made at the first wait
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._sender: socket.socket | None = None

    # ---------------------------------------------------------------------------- the waiter

    def bind(self) -> None:
        if self._folder is None or self._bound is not None:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._sweep()
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.setblocking(False)
        try:
            bound.bind(self._path(f"{self._name}.busy"))
            os.chmod(self._path(f"{self._name}.busy"), 0o600)
        except OSError:  # too long a path, or no sockets on this file system: polling remains
            bound.close()
            return
        self._bound = bound

    def _sweep(self) -> None:
        """Remove the sockets of processes that were killed; one that lives accepts a connection."""
        assert self._folder is not None
        for name in os.listdir(self._folder):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect(self._path(name))
                except ConnectionRefusedError:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self._path(name))
                except OSError:
                    continue  # it was renamed or removed meanwhile

    def show(self, ending: str) -> None:
        if self._bound is None:
            return
        before = "busy" if ending == "idle" else "idle"
        with contextlib.suppress(FileNotFoundError):  # whoever rang has renamed it already
            os.rename(self._path(f"{self._name}.{before}"), self._path(f"{self._name}.{ending}"))

    def block(self, timeout_ms: int) -> None:
        sources = [self.nudge.descriptor, *([self._bound.fileno()] if self._bound else [])]
        for source in await_readable(sources, timeout_ms / 1000):
            if source == self.nudge.descriptor:
                self.nudge.take()
                continue
            with contextlib.suppress(BlockingIOError):
                os.read(source, 4096)

    # ---------------------------------------------------------------------------- the ringer

    def idle_names(self) -> list[str]:
        if self._folder is None:
            return []
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(".idle")]
        except FileNotFoundError:
            return []
        random.shuffle(names)
        return names

    def ring_one(self, name: str) -> bool:
        taken = name.removesuffix("idle") + "busy"
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        try:
            os.rename(self._path(name), self._path(taken))
            self._sender.sendto(b"1", self._path(taken))
        except FileNotFoundError:
            return False  # another committer was faster, or it has just stopped waiting
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(taken))  # its process is gone
            return False
        except OSError:
            return True  # its buffer is full: it has been rung often enough
        return True

    def _path(self, name: str) -> str:
        """The path of a socket, through a descriptor of the folder where it would be too long."""
        assert self._folder is not None
        plain = str(self._folder / name)
        if len(os.fsencode(plain)) <= _LONGEST_SOCKET_PATH:
            return plain
        if self._folder_fd is None:
            self._folder_fd = os.open(self._folder, os.O_RDONLY)
        return f"/proc/self/fd/{self._folder_fd}/{name}"

    def close(self) -> None:
        if self._bound is not None:
            for ending in ("idle", "busy"):
                with contextlib.suppress(OSError):
                    os.unlink(self._path(f"{self._name}.{ending}"))
        for owned in (self._bound, self._sender):
            if owned is not None:
                owned.close()
        if self._folder_fd is not None:
            os.close(self._folder_fd)
        self.nudge.close()

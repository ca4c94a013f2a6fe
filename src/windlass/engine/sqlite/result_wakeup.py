"""Wake-ups of callers that wait for the end of jobs.

1. The first waiting caller binds a datagram socket in a folder next to the database, before it
   reads its job. All callers of the engine object share it, threads and coroutines alike.
2. A commit that ended jobs sends their ids to every socket in the folder. Without waiting callers,
   this costs one listing of an empty folder.
3. A thread reads the ids and passes them on. The thread ends, and removes the socket, when no
   caller has read a job for a while.

A database in memory has no folder: the thread that commits passes the ids on. Callers also poll
from time to time, so a lost wake-up only costs time.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from windlass.engine.sqlite.files import SocketPaths
from windlass.engine.wakeup import PerProcess, await_readable, new_nudge

OnEnd = Callable[[str], None]

#: The thread ends when no caller has read a job for this long, in seconds.
IDLE_S: Final = 10.0
#: How long the thread may take to end, in seconds.
_END_S: Final = 1.0
#: The number of ids per message.
_CHUNK: Final = 200
_MOST_BYTES: Final = 65_536


class SQLiteResultWakeup:
    """Wake-ups for callers that wait for jobs. Without a folder, only in this object."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder if hasattr(socket, "AF_UNIX") else None
        self._hooks: set[OnEnd] = set()
        self._sockets = PerProcess(self._make)

    def _make(self) -> _ResultSockets:
        assert self._folder is not None, "sockets need a folder"
        return _ResultSockets(self._folder, self._pass_on)

    def listen(self, on_end: OnEnd) -> None:
        """Receive the ids of ended jobs from now on, for a while."""
        self._hooks.add(on_end)
        if self._folder is not None:
            self._sockets.get().listen()

    def publish(self, ids: Sequence[str]) -> None:
        """Announce jobs after the commit that ended them."""
        if self._folder is None:
            self._pass_on(ids)
        else:
            self._sockets.get().publish(ids)

    def _pass_on(self, ids: Sequence[str]) -> None:
        for hook in tuple(self._hooks):
            for job_id in ids:
                hook(job_id)

    def close(self) -> None:
        self._sockets.close()


class _ResultSockets:
    """Sockets of one engine object in one process: one receives ids, one sends them."""

    def __init__(self, folder: Path, pass_on: Callable[[Sequence[str]], None]) -> None:
        self._folder = folder
        self._pass_on = pass_on
        self._lock = threading.Lock()
        self._inbox: _Inbox | None = None
        self._thread: threading.Thread | None = None
        self._sender: socket.socket | None = None
        self._used_at = 0.0

    # ----------------------------------------------------------------------------- receiving

    def listen(self) -> None:
        with self._lock:
            self._used_at = time.monotonic()
            if self._inbox is not None:
                return
            # A path that is too long, no sockets on this file system, or the end of the
            # interpreter, when no thread can start: callers still poll.
            with suppress(OSError, RuntimeError):
                self._start()

    def _start(self) -> None:
        inbox = _Inbox(self._folder)
        thread = threading.Thread(
            target=self._read, args=(inbox,), name="windlass-results", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            inbox.close()
            raise
        self._inbox, self._thread = inbox, thread

    def _read(self, inbox: _Inbox) -> None:
        try:
            while self._is_wanted(inbox):
                self._pass_on(inbox.receive(IDLE_S))
        finally:
            inbox.close()

    def _is_wanted(self, inbox: _Inbox) -> bool:
        """Decide atomically whether the thread ends: no caller may rely on an ending thread."""
        with self._lock:
            if self._inbox is inbox and time.monotonic() - self._used_at > IDLE_S:
                self._inbox = None
            return self._inbox is inbox

    # ------------------------------------------------------------------------------- sending

    def publish(self, ids: Sequence[str]) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:  # no caller has waited yet, or the folder was removed
            return
        if names:
            with self._lock:
                for at in range(0, len(ids), _CHUNK):
                    self._send("\n".join(ids[at : at + _CHUNK]).encode(), names)

    def _send(self, message: bytes, names: Sequence[str]) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        with closing(SocketPaths(self._folder)) as paths:
            for name in names:
                try:
                    self._sender.sendto(message, paths.of(name))
                except ConnectionRefusedError:  # the receiving process is gone
                    with suppress(OSError):
                        os.unlink(self._folder / name)
                except OSError:  # the receiver closed the socket, or its buffer is full
                    continue

    def close(self) -> None:
        with self._lock:
            inbox, self._inbox = self._inbox, None
            sender, self._sender = self._sender, None
        if inbox is not None and self._thread is not None:
            inbox.nudge.give()
            self._thread.join(_END_S)
        if sender is not None:
            sender.close()


class _Inbox:
    """A bound socket that receives ids. A single thread reads and closes it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            with closing(SocketPaths(folder)) as paths:
                self._socket.bind(paths.of(self._path.name))
            os.chmod(self._path, 0o600)
        except OSError:
            self._socket.close()
            raise
        self.nudge = new_nudge()

    def receive(self, timeout_s: float) -> list[str]:
        """Return the ids of one message as soon as it comes; none after the timeout or a nudge."""
        ready = await_readable([self._socket.fileno(), self.nudge.descriptor], timeout_s)
        if self._socket.fileno() not in ready:
            return []
        with suppress(OSError):
            return self._socket.recv(_MOST_BYTES).decode().split("\n")
        return []

    def close(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
        self._socket.close()
        self.nudge.close()

"""Wake-ups of callers that wait for the end of jobs.

1. The first waiting caller opens a connection that listens. All callers of the engine object share
   it, threads and coroutines alike. A caller first writes into the table `watches` that this
   process waits for its job, and then reads the job.
2. A commit that ended jobs removes their rows, and notifies the processes in these rows. A process
   that has just found the table empty does not look again at once. So a worker has almost no cost
   while no caller waits.
3. A thread reads the notifications and passes the ids on. The thread ends, with its connection,
   when no caller has read a job for a while, or when the connection is lost: the next read of a job
   makes another.

Callers also poll from time to time, so a lost notification only costs time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import psycopg

from windlass.engine.contract import WATCH_MS
from windlass.engine.postgres.connections import Connections, DeadlineConnection
from windlass.engine.postgres.notifications import (
    FAILURES,
    MOST_BYTES,
    Hints,
    Listener,
    listen_conninfo,
    run_hint,
)
from windlass.engine.wakeup import PerProcess, await_readable, new_nudge

OnEnd = Callable[[str], None]

#: The thread ends when no caller has read a job for this long, in seconds.
IDLE_S: Final = 30.0
#: How often the thread checks its connection, in seconds.
PULSE_S: Final = 5.0
#: How long to wait before another attempt to listen, in seconds.
RETRY_S: Final = 1.0
#: How long the thread may take to end, in seconds.
_END_S: Final = 3.0
#: A process that found no watches does not look for any for this long, in seconds.
UNWATCHED_S: Final = 0.01


class PostgresResultWakeup:
    """Wake-ups for callers of one engine object that wait for jobs to end."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._hooks: set[OnEnd] = set()
        self._watcher = PerProcess(lambda: _Watcher(connections, self._pass_on))
        self._unwatched_until = 0.0

    def watch(self, ids: Sequence[str], on_end: OnEnd) -> None:
        """From now on, and for a while, receive the ids of these jobs when they end."""
        self._hooks.add(on_end)
        number = self._watcher.get().listen()
        if number is None or not ids:
            return

        def remember(connection: DeadlineConnection) -> None:
            Hints(self._connections, connection).rows("watch", sorted(set(ids)), number, WATCH_MS)

        with suppress(psycopg.Error):  # the tables are missing: the read that follows makes them
            self._connections.run(remember)

    def publish(self, ids: Sequence[str]) -> None:
        """Announce jobs after the commit that ended them."""
        if ids and time.monotonic() >= self._unwatched_until:
            run_hint(self._connections, lambda hints: self._announce(hints, ids))

    def _announce(self, hints: Hints, ids: Sequence[str]) -> None:
        has_watches = False
        for some in _chunks(ids):
            ((are_there, _),) = hints.rows("announce_ends", some)
            has_watches = has_watches or are_there
        self._unwatched_until = 0.0 if has_watches else time.monotonic() + UNWATCHED_S

    def _pass_on(self, ids: Sequence[str]) -> None:
        for hook in tuple(self._hooks):
            for job_id in ids:
                hook(job_id)

    def close(self) -> None:
        self._watcher.close()


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    """Split ids so that those of each part fit into one payload."""
    chunk: list[str] = []
    size = 0
    for job_id in ids:
        size += len(job_id.encode()) + 1
        if size > MOST_BYTES and chunk:
            yield chunk
            chunk, size = [], len(job_id.encode()) + 1
        chunk.append(job_id)
    yield chunk


class _Watcher:
    """The thread of one engine object in one process that receives ids."""

    def __init__(self, connections: Connections, pass_on: Callable[[Sequence[str]], None]) -> None:
        self._connections = connections
        self._can_listen = listen_conninfo(connections) is not None
        self._pass_on = pass_on
        self._lock = threading.Lock()
        self._reader: _ResultReader | None = None
        self._used_at = 0.0
        self._may_try_at = 0.0

    def listen(self) -> int | None:
        """Listen from now on, for a while. Return the number of the channel; None on failure."""
        with self._lock:
            now = self._used_at = time.monotonic()
            if self._reader is None and self._can_listen and now >= self._may_try_at:
                try:
                    self._start()
                except (*FAILURES, RuntimeError):  # RuntimeError: the interpreter is ending
                    self._may_try_at = time.monotonic() + RETRY_S
            return None if self._reader is None else self._reader.listener.number

    def _start(self) -> None:
        reader = _ResultReader(self._connections)
        thread = threading.Thread(
            target=self._read, args=(reader,), name="windlass-results", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            reader.close()
            raise
        reader.thread = thread
        self._reader = reader

    def _read(self, reader: _ResultReader) -> None:
        try:
            while self._is_wanted(reader):
                self._pass_on(reader.receive())
        except FAILURES:
            with self._lock:
                if self._reader is reader:
                    self._reader = None
        finally:
            reader.close()

    def _is_wanted(self, reader: _ResultReader) -> bool:
        """Decide atomically whether the thread ends: no caller may rely on an ending thread."""
        with self._lock:
            if self._reader is reader and time.monotonic() - self._used_at > IDLE_S:
                self._reader = None
            return self._reader is reader

    def close(self) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None and reader.thread is not None:
            reader.nudge.give()
            reader.thread.join(_END_S)


class _ResultReader:
    """A connection that receives ids. A single thread reads and closes it."""

    def __init__(self, connections: Connections) -> None:
        self.thread: threading.Thread | None = None
        self.listener = Listener(connections)
        self.nudge = new_nudge()

    def receive(self) -> list[str]:
        """Return ids as soon as some come; none after a while or on a nudge. Raise when the
        connection is lost."""
        ready = await_readable([self.listener.fileno(), self.nudge.descriptor], PULSE_S)
        if not ready:
            self.listener.run("pulse")
        return [job_id for payload in self.listener.receive() for job_id in payload.split("\n")]

    def close(self) -> None:
        self.listener.close()
        self.nudge.close()

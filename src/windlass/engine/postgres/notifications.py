"""Notifications of the server: a connection that listens, and how to send them.

1. `Listener` is a connection that listens on a channel of its own, and has a descriptor to wait
   for.
2. `run_hint` sends notifications on a connection of the pool, in transactions of their own: inside
   another transaction, they would make all commits of the server queue for a lock. They are hints,
   so no failure matters.
3. `Throttle` calls a function at once, but seldom: calls that follow each other quickly are joined.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psycopg

from windlass.engine import fork_safety
from windlass.engine.postgres.connections import Connections, DeadlineConnection
from windlass.engine.postgres.pipeline import pipelined
from windlass.engine.postgres.statements import statements_for
from windlass.engine.sql.statements import Row
from windlass.errors import EngineError

#: What a broken connection, or a refusal of the server, raises.
FAILURES: Final = (psycopg.Error, TimeoutError)
#: A payload must have fewer than 8,000 bytes.
MOST_BYTES: Final = 7_000
#: How long a statement of a hint, or of a connection that listens, may take, in seconds.
_CALL_S: Final = 2.0

#: Connections of the parent process, which the driver must not find abandoned.
_INHERITED: Final[list[object]] = []


class Listener:
    """A connection that listens on a channel of its own, which has a number."""

    def __init__(self, connections: Connections) -> None:
        conninfo = listen_conninfo(connections)
        assert conninfo is not None, "there is no way around the pooler"
        self.number = secrets.randbits(63)
        self._sql = statements_for(connections.address.schema)
        self._payloads: list[str] = []
        self._connection = connections.connect(conninfo, time.monotonic() + _CALL_S)
        fork_safety.watch(self)
        try:
            self._connection.add_notify_handler(self._keep)
            self._connection.execute(f"LISTEN windlass_{self.number}".encode())
        except BaseException:
            self.close()
            raise

    def _keep(self, notification: psycopg.Notify) -> None:
        """Keep what comes while a statement runs."""
        self._payloads.append(notification.payload)

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> list[str]:
        """Return the payloads that have come. Raise when the connection is lost."""
        server = self._connection.pgconn
        server.consume_input()
        while (notification := server.notifies()) is not None:
            self._payloads.append(notification.extra.decode())
        payloads, self._payloads = self._payloads, []
        return payloads

    def run(self, name: str, *values: Any) -> None:
        self._connection.deadline = time.monotonic() + _CALL_S
        self._connection.execute(self._sql[name], values)

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()

    def before_fork(self) -> None:
        """Do nothing: the connection stays in the parent."""

    def after_fork_in_parent(self) -> None:
        """Do nothing: the connection stays in the parent."""

    def after_fork_in_child(self) -> None:
        _INHERITED.append(self)


def listen_conninfo(connections: Connections) -> str | None:
    """Return the connection string for `LISTEN`; None behind a pooler without the url option
    `listen`."""
    address = connections.address
    return address.listen_conninfo if address.is_pooled else address.conninfo


class Hints:
    """Runs statements on a connection of the pool, each as a transaction."""

    def __init__(self, connections: Connections, connection: DeadlineConnection) -> None:
        self._connection = connection
        self._sql = statements_for(connections.address.schema)
        self._prepare = not connections.address.is_pooled

    def rows(self, name: str, *values: Any) -> list[Row]:
        with pipelined(self._connection) as pipeline:
            reply = pipeline.send(self._sql[name], values, prepare=self._prepare)
        return reply.rows()


def run_hint(connections: Connections, work: Callable[[Hints], None]) -> None:
    """Run statements whose failure only costs time: once, and not for long."""

    def attempt(connection: DeadlineConnection) -> None:
        with suppress(*FAILURES):
            work(Hints(connections, connection))

    with suppress(EngineError):
        connections.run(attempt, most_s=_CALL_S)


def run_hint_apart(connections: Connections, work: Callable[[Hints], None]) -> None:
    """The same on a connection of its own, if those of the pool are busy."""
    if not connections.is_busy:
        run_hint(connections, work)
        return
    with suppress(EngineError, *FAILURES):
        connections.run_apart(lambda connection: work(Hints(connections, connection)), _CALL_S)


class Throttle:
    """Calls a function at once when asked to, or soon, in a thread, when it is asked too often. One
    call does all that was asked for until then. Calls may overlap."""

    #: The function is called this often at once, and then again after each spacing, in seconds.
    BURST: Final = 4
    SPACING_S: Final = 0.005
    #: The thread ends after this time without use, in seconds.
    IDLE_S: Final = 1.0

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_asked = False  # the thread is to call the function
        self._is_closed = False
        self._tokens: float = self.BURST
        self._filled_at = time.monotonic()

    def ask(self) -> None:
        with self._change:
            if self._is_asked:
                return
            is_now = self._take_token() == 0 or not self._has_thread()
            self._is_asked = not is_now
            self._change.notify()
        if is_now:
            self._work()

    def _take_token(self) -> float:
        """Take a token; without one, return the seconds until there is one."""
        now = time.monotonic()
        filled = self._tokens + (now - self._filled_at) / self.SPACING_S
        self._tokens, self._filled_at = min(self.BURST, filled), now
        if self._tokens < 1:
            return (1 - self._tokens) * self.SPACING_S
        self._tokens -= 1
        return 0.0

    def _has_thread(self) -> bool:
        """Start the thread if there is none; return False if it cannot run."""
        if self._thread is None and not self._is_closed:
            thread = threading.Thread(target=self._run, name="windlass-notify", daemon=True)
            with suppress(RuntimeError):  # the interpreter is ending
                thread.start()
                self._thread = thread
        return self._thread is not None and not self._is_closed

    def _run(self) -> None:
        while self._await_turn():
            self._work()

    def _await_turn(self) -> bool:
        """Wait until the function is to be called; return False when the thread is to end."""
        with self._change:
            self._change.wait_for(lambda: self._is_asked or self._is_closed, self.IDLE_S)
            while self._is_asked and (wait_s := self._take_token()) > 0:
                self._change.wait(wait_s)
            was_asked, self._is_asked = self._is_asked, False
            if not was_asked:
                self._thread = None
            return was_asked

    def close(self) -> None:
        """Call the function if the thread was to call it."""
        with self._change:
            self._is_closed = True
            was_asked, self._is_asked = self._is_asked, False
            thread = self._thread
            self._change.notify()
        if thread is not None:
            thread.join(_CALL_S)
        if was_asked:
            self._work()

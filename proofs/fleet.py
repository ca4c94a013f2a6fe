"""The cost of a large fleet of idle workers for a server.

1. A driver of the engine contract simulates supervisors with 20 idle children each: each supervisor
   waits for its children by `wait`, and sends heartbeats every third of a lease, like a real one.
   The server also holds the connection of every idle child.
2. The proof measures the calls that the server counts, and its CPU time, first for waits alone and
   then with heartbeats.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

import psutil
import psycopg

from benchmarks.stage import cpu_s
from tests.postgres_server import COUNT_LAG_S, OWNER, PostgresServer
from tests.redis_server import RedisServer, documented_rights
from windlass.engine.contract import Beat, Engine, EngineOptions, Plan, Waiter
from windlass.engine.url import open_engine
from windlass.errors import EngineError

CHILDREN: Final = 20
LEASE_MS: Final = 30_000
MEASURED_S: Final = 30.0
NAMESPACE: Final = "fleet"


def prove(_folder: Path) -> Iterator[str]:
    """Redis: under 1,000 wait calls a second for 10,000 idle children, and as many heartbeats.
    PostgreSQL, where a supervisor looks for jobs several times a second: as many for 2,000."""
    for server in (_Redis(), _Postgres()):
        with closing(server), closing(Fleet(server)) as fleet:
            fleet.start()
            waits, wait_cpu = _measure(server)
            fleet.beats.set()
            both, both_cpu = _measure(server)
            yield (
                f"{server.name}: {server.supervisors} supervisors x {CHILDREN} idle children, "
                f"{server.connections():,} connections: waits {waits:.0f} calls/s with "
                f"{wait_cpu:.1%} of a core of the server; beats {max(0.0, both - waits):.0f} "
                f"calls/s more, {both_cpu:.1%} with both"
            )
            assert fleet.errors == []
            assert waits < server.most_calls
            assert both - waits < server.most_calls


class _Closable(Protocol):
    def close(self) -> None: ...


class _Server(Protocol):
    """A server that counts calls."""

    name: str
    lag_s: float  # until a call is counted
    supervisors: int
    most_calls: float  # of waits, and of heartbeats, a second

    def open(self, number: int) -> Engine:
        """Open an engine that shares no connection with others."""

    def connect_child(self) -> _Closable:
        """Hold the connection of an idle child."""

    def calls(self) -> int: ...

    def cpu_s(self) -> float: ...

    def connections(self) -> int: ...

    def close(self) -> None: ...


class _Redis:
    name = "redis"
    lag_s = 3.0
    supervisors = 500
    most_calls = 1_000.0

    def __init__(self) -> None:
        self._server = RedisServer("--appendfsync", "everysec", "--maxclients", "15000")

    def open(self, number: int) -> Engine:
        """Open an engine with a separate login, so that each supervisor has its own connections."""
        user = f"worker{number}"
        self._server.add_user(user, *documented_rights(NAMESPACE))
        url = f"redis://{user}:secret@127.0.0.1:{self._server.port}/0?namespace={NAMESPACE}"
        return open_engine(url, _OPTIONS)

    def connect_child(self) -> _Closable:
        return socket.create_connection(("127.0.0.1", self._server.port))

    def calls(self) -> int:
        return int(self._info("commandstats", r"cmdstat_evalsha:calls"))

    def cpu_s(self) -> float:
        return sum(float(self._info("cpu", f"used_cpu_{part}")) for part in ("user", "sys"))

    def connections(self) -> int:
        return int(self._info("clients", "connected_clients"))

    def _info(self, section: str, name: str) -> str:
        told = self._server.tell("INFO", section).decode()
        found = re.search(rf"^{name}[:=]([\d.]+)", told, re.MULTILINE)
        assert found is not None, name
        return found[1]

    def close(self) -> None:
        self._server.end()


class _Postgres:
    name = "postgres"
    lag_s = COUNT_LAG_S
    supervisors = 100
    most_calls = 1_000.0

    def __init__(self) -> None:
        self._server = PostgresServer(fsync=True, max_connections="2600")
        self._database = self._server.new_database()
        self._url = self._server.url(self._database, user=OWNER)

    def open(self, number: int) -> Engine:
        return open_engine(self._url, _OPTIONS)

    def connect_child(self) -> _Closable:
        return psycopg.connect(self._url)

    def calls(self) -> int:
        return self._server.count_transactions(self._database)

    def cpu_s(self) -> float:
        return cpu_s(psutil.Process(self._server.pid))

    def connections(self) -> int:
        return self._server.count_connections(self._database)

    def close(self) -> None:
        self._server.end()


_OPTIONS: Final = EngineOptions(lease_ms=LEASE_MS, timeout_ms=60_000)


class Fleet:
    """Idle workers in one process: a waiting thread per supervisor, one thread for heartbeats."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._is_over = threading.Event()
        self.beats = threading.Event()
        self.errors: list[str] = []
        self._idle: list[_Closable] = []
        self._threads: list[threading.Thread] = []
        self._waiting = threading.Semaphore(0)

    def start(self) -> None:
        threading.stack_size(256 * 1024)
        for number in range(self._server.supervisors):
            thread = threading.Thread(target=self._supervise, args=(number,), daemon=True)
            thread.start()
            self._threads.append(thread)
        for _ in range(self._server.supervisors * CHILDREN):
            self._idle.append(self._server.connect_child())
        for _ in range(self._server.supervisors):
            assert self._waiting.acquire(timeout=120), self.errors[:3]

    def _supervise(self, number: int) -> None:
        try:
            self._wait_and_beat(number)
        except (EngineError, OSError) as error:
            self.errors.append(str(error))

    def _wait_and_beat(self, number: int) -> None:
        waiting, beating = self._server.open(number), self._server.open(number)
        sessions = [f"worker-{number}-{child}" for child in range(CHILDREN)]
        beating.beat([Beat(session=session, info=b"a worker") for session in sessions])
        waiters = [Waiter(session, Plan(), "nonce") for session in sessions]
        waiters.insert(0, Waiter("", Plan(suspects=True)))
        every_s = LEASE_MS / 1000 / 3
        beat_at = time.monotonic() + every_s * number / self._server.supervisors
        is_counted = False
        while not self._is_over.is_set():
            if waiting.wait(waiters, 1000):
                self.errors.append("an idle session was woken")
            if not is_counted:
                is_counted = True
                self._waiting.release()
            if self.beats.is_set() and time.monotonic() >= beat_at:
                beating.beat([Beat(session=session) for session in sessions])
                beat_at = time.monotonic() + every_s

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(10)
        for connection in self._idle:
            connection.close()


def _measure(server: _Server) -> tuple[float, float]:
    """Calls a second, and the CPU time of the server as a share of a core."""
    time.sleep(server.lag_s)  # until what has just begun goes its usual way, and is counted
    calls, cpu, began = server.calls(), server.cpu_s(), time.monotonic()
    time.sleep(MEASURED_S)
    took_s = time.monotonic() - began
    return (server.calls() - calls) / took_s, (server.cpu_s() - cpu) / took_s

"""The cost of a large fleet of idle workers for a Redis server.

1. A driver of the engine contract simulates 500 supervisors with 20 idle children each: each
   supervisor waits for its children by `wait`, and sends heartbeats every third of a lease, like a
   real one. The server also holds the connection of every idle child.
2. The proof measures the calls that the server counts, and its CPU time, first for waits alone
   and then with heartbeats.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.redis_server import RedisServer, documented_rights
from windlass.engine.contract import Beat, Engine, EngineOptions, Plan, Waiter
from windlass.engine.url import open_engine
from windlass.errors import EngineError

SUPERVISORS: Final = 500
CHILDREN: Final = 20
LEASE_MS: Final = 30_000
MEASURED_S: Final = 30.0
MOST_CALLS_S: Final = 1_000.0
NAMESPACE: Final = "fleet"


def prove(_folder: Path) -> Iterator[str]:
    """Under 1,000 wait calls a second for 10,000 idle children, and as many heartbeats."""
    server = RedisServer("--appendfsync", "everysec", "--maxclients", "15000")
    fleet = Fleet(server)
    try:
        fleet.start()
        waits, wait_cpu = _measure(server)
        fleet.beats.set()
        both, both_cpu = _measure(server)
        connections = int(_info(server, "clients", "connected_clients"))
        yield (
            f"{SUPERVISORS} supervisors x {CHILDREN} idle children, {connections:,} connections: "
            f"waits {waits:.0f} calls/s with {wait_cpu:.1%} of a core of the server; "
            f"beats {max(0.0, both - waits):.0f} calls/s more, {both_cpu:.1%} with both"
        )
        assert fleet.errors == []
        assert waits < MOST_CALLS_S
        assert both - waits < MOST_CALLS_S
    finally:
        fleet.end()
        server.end()


class Fleet:
    """Idle workers in one process: a waiting thread per supervisor, one thread for heartbeats."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._is_over = threading.Event()
        self.beats = threading.Event()
        self.errors: list[str] = []
        self._idle: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._waiting = threading.Semaphore(0)

    def start(self) -> None:
        threading.stack_size(256 * 1024)
        for number in range(SUPERVISORS):
            thread = threading.Thread(target=self._supervise, args=(number,), daemon=True)
            thread.start()
            self._threads.append(thread)
        for _ in range(SUPERVISORS * CHILDREN):
            self._idle.append(socket.create_connection(("127.0.0.1", self._server.port)))
        for _ in range(SUPERVISORS):
            assert self._waiting.acquire(timeout=120), self.errors[:3]

    def _supervise(self, number: int) -> None:
        try:
            self._wait_and_beat(number)
        except (EngineError, OSError) as error:
            self.errors.append(str(error))

    def _wait_and_beat(self, number: int) -> None:
        waiting, beating = self._open(number), self._open(number)
        sessions = [f"worker-{number}-{child}" for child in range(CHILDREN)]
        beating.beat([Beat(session=session, info=b"a worker") for session in sessions])
        waiters = [Waiter(session, Plan(), "nonce") for session in sessions]
        waiters.insert(0, Waiter("", Plan(suspects=True)))
        every_s = LEASE_MS / 1000 / 3
        beat_at = time.monotonic() + every_s * number / SUPERVISORS
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

    def _open(self, number: int) -> Engine:
        """Open an engine with a separate login, so that each supervisor has its own connections."""
        user = f"worker{number}"
        self._server.add_user(user, *documented_rights(NAMESPACE))
        url = f"redis://{user}:secret@127.0.0.1:{self._server.port}/0?namespace={NAMESPACE}"
        return open_engine(url, EngineOptions(lease_ms=LEASE_MS, timeout_ms=60_000))

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(10)
        for connection in self._idle:
            connection.close()


def _measure(server: RedisServer) -> tuple[float, float]:
    """Calls a second, and the CPU time of the server as a share of a core."""
    time.sleep(3.0)  # until what has just begun goes its usual way
    calls, cpu, began = _calls(server), _cpu(server), time.monotonic()
    time.sleep(MEASURED_S)
    took_s = time.monotonic() - began
    return (_calls(server) - calls) / took_s, (_cpu(server) - cpu) / took_s


def _calls(server: RedisServer) -> int:
    return int(_info(server, "commandstats", r"cmdstat_evalsha:calls"))


def _cpu(server: RedisServer) -> float:
    return sum(float(_info(server, "cpu", f"used_cpu_{part}")) for part in ("user", "sys"))


def _info(server: RedisServer, section: str, name: str) -> str:
    found = re.search(rf"^{name}[:=]([\d.]+)", server.tell("INFO", section).decode(), re.MULTILINE)
    assert found is not None, name
    return found[1]

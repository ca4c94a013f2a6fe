"""Kill whole workers with SIGKILL repeatedly: no job is lost, every extra start has a cause.

Lease 2 s, 2,000 jobs of 50 ms, 2 workers. Every 2 s for 30 s the proof kills the process group of
a random worker and starts a new one. On PostgreSQL it also kills a random process of the server
that serves a worker, by turns gently and with SIGKILL, after which the server recovers.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Final

import psycopg

from tests.postgres_server import OWNER, PostgresServer
from tests.worker.yard import Worker, Yard, until
from windlass import State

JOBS: Final = 2_000
SLOTS: Final = 2
KILLING_S: Final = 30.0
EVERY_S: Final = 2.0


def prove(folder: Path) -> Iterator[str]:
    yield from prove_on(folder, f"sqlite:///{folder / 'jobs.db'}", lambda: None)


def prove_postgres(folder: Path) -> Iterator[str]:
    server = PostgresServer(fsync=True)
    backends = Backends(server)
    try:
        url = server.url(server.new_database(), user=OWNER)
        yield from prove_on(folder, url, backends.kill_one)
        yield f"{backends.killed} processes of the server killed, {backends.ended} ended"
        assert backends.killed
        assert backends.ended
    finally:
        server.end()


def prove_on(folder: Path, url: str, disturb: Callable[[], None]) -> Iterator[str]:
    with closing(Yard(folder, lease="2s", grace="5s", max_crashes=3, url=url)) as yard:
        call = yard.script.plain.bind
        yard.script.plain.enqueue_many(call(f"job-{n}", ["sleep:0.05"]) for n in range(JOBS))
        workers = [yard.start(slots=SLOTS), yard.start(slots=SLOTS)]
        killed = keep_killing(yard, workers, disturb)
        yield f"{JOBS} jobs, {len(killed)} processes killed in {KILLING_S:g} s"
        yard.await_count(State.SUCCEEDED, JOBS, seconds=120)
        yield from account(yard, killed)
    yield "windlass check: records, indexes and counters agree"


def keep_killing(yard: Yard, workers: list[Worker], disturb: Callable[[], None]) -> set[int]:
    """The ids of all killed processes."""
    killed: set[int] = set()
    end = time.monotonic() + KILLING_S
    while time.monotonic() < end:
        time.sleep(EVERY_S)  # the pace of the killing is what is asked for
        index = random.randrange(len(workers))
        worker = workers[index]
        killed.update(worker.children(), [worker.pid])
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        workers[index] = yard.start(slots=SLOTS)
        disturb()
    return killed


class Backends:
    """Kills processes that serve connections."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = count()
        self.killed = 0
        self.ended = 0

    def kill_one(self) -> None:
        with self._server.connect() as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'windlass'"
            ).fetchall()
            if not found:
                return
            [pid] = random.choice(found)
            if next(self._numbers) % 2:
                connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                self.ended += 1
                return
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, signal.SIGKILL)
            self.killed += 1
        until(self._is_ready, "a server that has recovered")

    def _is_ready(self) -> bool:
        with suppress(psycopg.OperationalError), self._server.connect() as connection:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        return False


def account(yard: Yard, killed: set[int]) -> Iterator[str]:
    """Check that every extra start of a job follows the kill of its process."""
    starts: dict[str, list[int]] = defaultdict(list)
    for line in yard.events("start"):
        starts[line.label].append(line.pid)
    ended = {line.label for line in yard.events("end")}
    lost = [f"job-{n}" for n in range(JOBS) if f"job-{n}" not in ended]
    extra = sum(len(pids) - 1 for pids in starts.values())
    unexplained = sum(pid not in killed for pids in starts.values() for pid in pids[:-1])
    yield f"lost {len(lost)}, extra starts {extra}, unexplained {unexplained}"
    assert not lost
    assert not unexplained

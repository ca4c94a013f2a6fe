"""A PostgreSQL server restarts, ends all connections, freezes or is read-only while workers run:
they continue within five seconds, no job is lost, and every extra start has a cause. The server
syncs every commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from proofs import outage_load
from proofs.outage_load import (
    ENQUEUE_S,
    TOLERANCE_S,
    Scene,
    fail_to_enqueue,
    open_scene,
    stand_still,
    told,
)
from tests.postgres_server import OWNER, Mode, PostgresServer
from tests.worker.yard import until
from windlass import Windlass
from windlass.engine.postgres.wakeup import POLL_FLOOR_S

RESTARTS: Final = 20
MODES: Final[tuple[Mode, ...]] = ("fast", "immediate")
DOWN_S: Final = 0.7
CLIENT_KILLS: Final = 100
FROZEN_S: Final = 60.0
READONLY_S: Final = 20.0
WORKERS: Final = 2
#: Jobs that are enqueued for idle workers.
PICK_UPS: Final = 9
_LISTENERS: Final = """
SELECT count(*) FROM windlass.waiters JOIN pg_locks
ON locktype = 'advisory' AND granted AND classid::bigint = (number >> 32) & 4294967295
   AND objid::bigint = number & 4294967295
WHERE to_timestamp(until_ms / 1000.0) > now()
"""

PostgresScene = Scene[PostgresServer]


def scene(folder: Path, *, is_proxied: bool = False) -> AbstractContextManager[PostgresScene]:
    server = PostgresServer(fsync=True)
    url = server.url(server.new_database(), user=OWNER)
    return open_scene(folder, server, url, is_proxied=is_proxied)


def prove_restarted(folder: Path) -> Iterator[str]:
    """An orderly restart, which ends all connections, and a crash, in turn."""
    with scene(folder) as it:
        it.start_workers(WORKERS)
        it.load()
        resumed = []
        for number in range(RESTARTS):
            it.server.stop(MODES[number % len(MODES)])
            time.sleep(DOWN_S)  # how long it is away is part of what is shown
            it.server.start()
            resumed.append(it.resume())
            it.work(50)
        yield f"restarted {RESTARTS} times, away {DOWN_S:g} s each: {told(resumed)}"
        it.drain()
        yield listening(it)
        yield from it.finish()


def listening(it: PostgresScene) -> str:
    """Show that idle workers are notified again."""
    until(lambda: count_listeners(it) == WORKERS, "all workers listening", 15.0)
    waited = []
    for number in range(PICK_UPS):
        time.sleep(2 * POLL_FLOOR_S)  # until the workers are idle
        began = time.monotonic()
        it.enqueue(f"idle-{number}")
        it.yard.await_start(f"idle-{number}")
        waited.append(time.monotonic() - began)
    middle = sorted(waited)[PICK_UPS // 2]
    return f"{WORKERS} workers listen again; idle ones start a job after {middle * 1000:.0f} ms"


def count_listeners(it: PostgresScene) -> int:
    """The number of workers that are shown as waiting, and hold a lock while they listen."""
    database = urlsplit(it.url).path.removeprefix("/")
    with it.server.connect(database) as connection:
        [(number,)] = connection.execute(_LISTENERS).fetchall()
    return int(number)


def prove_client_kill(folder: Path) -> Iterator[str]:
    """The server ends all connections, including those that listen for wake-ups."""
    with scene(folder) as it:
        it.start_workers(WORKERS)
        it.load()
        database = urlsplit(it.url).path.removeprefix("/")
        ended, resumed = 0, []
        for _ in range(CLIENT_KILLS):
            with it.server.connect(database) as connection:
                ended += it.server.signal_others(connection)
            resumed.append(it.resume())
            it.work(10)
        yield f"all clients ended {CLIENT_KILLS} times, {ended} connections: {told(resumed)}"
        it.drain()
        yield listening(it)
        yield from it.finish()


def prove_frozen(folder: Path) -> Iterator[str]:
    """Twelve leases without an answer, in two ways: all processes of the server are stopped by
    SIGSTOP, or no data passes on the way to the server, which runs on."""
    for name, freeze in {"suspended": _suspended, "cut off": _cut_off}.items():
        own = folder / name
        own.mkdir()
        for line in freeze(own):
            yield f"{name}: {line}"


def _suspended(folder: Path) -> Iterator[str]:
    with scene(folder) as it:
        # Its job may be stored after all: the server reads the statement when it continues.
        other = it.server.url(it.server.new_database(), user=OWNER)
        yield from _freeze(it, other, it.server.freeze, it.server.thaw)


def _cut_off(folder: Path) -> Iterator[str]:
    with scene(folder, is_proxied=True) as it:
        database = it.server.new_database()
        other = it.server.url(database, user=OWNER, port=it.proxy.port)
        yield from _freeze(it, other, it.proxy.freeze, it.proxy.heal)


def _freeze(
    it: PostgresScene, other: str, freeze: Callable[[], None], thaw: Callable[[], None]
) -> Iterator[str]:
    """Freeze the server under load, and enqueue at the url of another database meanwhile."""
    with ThreadPoolExecutor() as pool, Windlass(other) as app:
        app.engine.stats()
        it.start_workers(WORKERS)
        it.load()
        freeze()
        enqueue = pool.submit(fail_to_enqueue, app)
        time.sleep(FROZEN_S)
        thaw()
        resumed_s = it.resume()
        for worker in it.workers:
            worker.await_log("lost connection to engine")
        yield f"frozen for {FROZEN_S:g} s, lease 5 s: {told([resumed_s])}"
        seconds, message = enqueue.result()
        yield f"an enqueue meanwhile failed after {seconds:.2f} s: {message}"
        assert abs(seconds - ENQUEUE_S) < TOLERANCE_S
    it.drain()
    yield owners(it)
    yield from it.finish()


def owners(it: PostgresScene) -> str:
    """Check that no job ended twice, and none was run by two processes to its end."""
    ends = [line.label for line in it.yard.events("end")]
    twice = len(ends) - len(set(ends))
    stale = it.yard.app.engine.stats().totals.get("stale", 0)
    assert twice <= stale, f"{twice} jobs ran twice to their end, {stale} of these results rejected"
    return f"{len(set(ends))} jobs ran to their end, {twice} of them twice; stale results {stale}"


def prove_readonly(folder: Path) -> Iterator[str]:
    """As in a failover, when the server is a standby for a while."""
    with scene(folder) as it:
        it.start_workers(WORKERS)
        it.load()
        set_readonly(it.server, "on")
        stand_still(it, READONLY_S)
        set_readonly(it.server, "off")
        yield f"read-only for {READONLY_S:g} s: {told([it.resume()])}"
        yield from it.finish()


def set_readonly(server: PostgresServer, value: str) -> None:
    with server.connect() as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")


def prove_long_job(folder: Path) -> Iterator[str]:
    yield from outage_load.prove_long_job(folder, partial(scene, is_proxied=True))


def prove_enqueue(_folder: Path) -> Iterator[str]:
    server = PostgresServer(fsync=True)
    try:
        url = server.url(server.new_database(), user=OWNER)
        yield from outage_load.prove_enqueue(server, url)
    finally:
        server.end()
